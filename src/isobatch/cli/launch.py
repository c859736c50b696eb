"""Start several processes on this machine that train one run: isobatch launch --num-processes 2 -- train ..."""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_dataclass, construct, given
from isobatch.errors import UsageError
from isobatch.executors.cores import available_cores, stay_on
from isobatch.executors.process_count import check_process_count
from isobatch.executors.signals import beside_ctrl_c
from isobatch.settings.team import Team

LAUNCHED = ("train",)
END_SECONDS = 20.0  # that the others have to end when one has ended, beyond the time limit of their own


def add_flags(parser: Parser) -> None:
    add_dataclass(parser, "several processes", Team)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- train ...", help="what each of them runs")


def run(args: argparse.Namespace) -> int:
    chosen = given(args, Team)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if command[:1] not in [[name] for name in LAUNCHED]:
        raise UsageError(
            f"launch starts {' or '.join(LAUNCHED)}, not {' '.join(command[:1]) or 'nothing'}: isobatch launch "
            "--num-processes 2 -- train --env CartPole-v1"
        )
    for name in ("coordinator", "process_id"):
        if name in chosen:
            raise UsageError(f"{name}={chosen[name]} is what launch tells each process: leave it out.")
    cores = available_cores()
    team = construct(Team, {"num_processes": 2} | chosen | {"coordinator": f"127.0.0.1:{free_port()}"})
    check_process_count(f"num_processes={team.num_processes}", team.num_processes)
    if team.num_processes > len(cores):
        console.say(f"note: {team.num_processes} processes share {len(cores)} cores: they will take turns.")
    with tempfile.TemporaryDirectory() as scratch, started(team, command, cores, Path(scratch)) as processes:
        return wait(processes, team.process_timeout, Path(scratch))


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@contextmanager
def started(team: Team, command: list[str], cores: list[int], scratch: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes, each on its share of the cores; process 0 speaks for all. None of them outlives this one."""
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        for process in processes:
            process.send_signal(number)

    with ExitStack() as stack:
        for index in range(team.num_processes):
            share = cores[index * len(cores) // team.num_processes : (index + 1) * len(cores) // team.num_processes]
            errors = stack.enter_context((scratch / str(index)).open("wb")) if index else None
            silent = subprocess.DEVNULL if index else None
            process = subprocess.Popen(
                [sys.executable, "-m", "isobatch", *command, *team_flags(team, index)],
                stdin=silent,
                stdout=silent,
                stderr=errors,
                preexec_fn=partial(stay_on, share or cores),
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        answers = dict.fromkeys(beside_ctrl_c(), forward) | {signal.SIGINT: signal.SIG_IGN}  # Ctrl-C reaches all
        for number, handler in answers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield processes


def team_flags(team: Team, index: int) -> list[str]:
    fields = {
        "coordinator": team.coordinator,
        "num-processes": team.num_processes,
        "process-id": index,
        "process-timeout": team.process_timeout,
    }
    return [word for name, value in fields.items() for word in (f"--{name}", str(value))]


def wait(processes: list[subprocess.Popen[bytes]], limit: float, scratch: Path) -> int:
    """For all of them; the exit code is that of the first that failed, and its words are shown if nobody heard them."""
    failed: tuple[int, int] | None = None
    end = float("inf")
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
        time.sleep(0.05)
        for index, process in enumerate(processes):
            if process.poll() and failed is None:
                failed, end = (index, int(process.returncode)), time.monotonic() + limit + END_SECONDS
    index, code = failed or (0, 0)
    said_nothing = processes[0].poll() in (None, 0) if index else code < 0  # process 0, which speaks for all
    if said_nothing and len(processes) > 1:
        sys.stderr.write((scratch / str(index or 1)).read_text(errors="replace"))
    return code if code >= 0 else 1
