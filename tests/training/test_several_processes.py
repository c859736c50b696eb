"""Several processes that train one run: the numbers of one, an end in common, one sentence if they cannot meet."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import one_more_case
from tiny import flags, tiny

from isobatch.errors import UsageError
from isobatch.settings.team import Team
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.lifeline import Lifeline
from isobatch.training.run_directory import RunDirectory

LIMIT = 120
CONFIG: dict[str, Any] = dict(num_envs=4, num_steps=8, num_shards=2, total_timesteps=32 * 12, hidden_sizes="8")


def isobatch(*words: str, **settings: Any) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}  # where environments of tests are
    return subprocess.Popen([sys.executable, "-m", "isobatch", *words], env=environment, **pipes, **settings)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out, err


def launch(*words: str, timeout: float = 30) -> subprocess.Popen[str]:
    return isobatch(
        "launch", "--num-processes", "2", "--process-timeout", str(timeout), "--", "train", *words, "--quiet"
    )


def state_of(run_dir: Path) -> dict[str, np.ndarray]:
    from isobatch.training.checkpoint_file import read_checkpoint

    checkpoints = Checkpoints(RunDirectory(run_dir).checkpoints)
    return read_checkpoint(checkpoints.path(checkpoints.iterations()[-1]))[1]


ENVS = ["Probe-ActionObserved", *(["host_envs:Clock-v0"] if os.environ.get("ISOBATCH_TEST_ALL") else [])]


@pytest.fixture(scope="module", params=ENVS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A run of two processes, and its environment."""
    run_dir = tmp_path_factory.mktemp("pair") / "run"
    words = flags(tiny(env=request.param, **CONFIG))
    code, out, err = finish(launch(*words, "--run-dir", str(run_dir), "--json"))
    assert code == 0, err
    assert "Traceback" not in err
    assert out.lstrip().startswith("{")  # and nothing of the libraries that connect processes
    return request.param, run_dir


@one_more_case
def test_two_processes_are_one_with_two_devices(pair: tuple[str, Path], tmp_path: Path) -> None:
    env, run_dir = pair
    words = flags(tiny(env=env, **CONFIG))
    code, _, err = finish(isobatch("train", *words, "--devices", "2", "--run-dir", str(tmp_path / "one"), "--quiet"))
    assert code == 0, err
    mine, theirs = state_of(run_dir), state_of(tmp_path / "one")
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)
    # And either can go on with what the other left.
    more = str(2 * 32 * 12)
    code, _, err = finish(isobatch("train", "--resume", str(run_dir), "--total-timesteps", more, "--quiet"))
    assert code == 0, err
    code, _, err = finish(launch("--resume", str(tmp_path / "one"), "--total-timesteps", more))
    assert code == 0, err
    one, two = (RunDirectory.open(path).metrics() for path in (run_dir, tmp_path / "one"))
    np.testing.assert_allclose(one["losses/value_loss"], two["losses/value_loss"], rtol=1e-2)


@one_more_case
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_ends_the_others_with_its_name(tmp_path: Path, victim: int) -> None:
    config = tiny(**CONFIG | dict(total_timesteps=32 * 40_000))  # longer than anybody waits
    options = ["--checkpoint-interval", "200", "--log-interval", "100"]
    running = launch(*flags(config), *options, "--run-dir", str(tmp_path / "run"))
    wait_for(lambda: len(list((tmp_path / "run" / "checkpoints").glob("*.checkpoint"))) > 1, running)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[victim]), signal.SIGKILL)
    clock = time.monotonic()
    code, _, err = finish(running)
    assert time.monotonic() - clock < 30
    assert code == 1
    assert f"process {victim} of 2 ended without a word" in err
    assert f"--resume {tmp_path / 'run'}" in err
    assert "Traceback" not in err


def test_launched_processes_stop_together_where_everything_can_be_kept(tmp_path: Path) -> None:
    """SIGTERM of the one that launched them, as soon as there is a run: they still compile."""
    config = tiny(**CONFIG | dict(total_timesteps=32 * 40_000))
    running = launch(*flags(config), "--run-dir", str(tmp_path / "run"))
    wait_for((tmp_path / "run" / "run.json").exists, running)
    running.terminate()
    code, _, err = finish(running)
    assert code == 130, err
    assert "SIGTERM caught" not in err  # by JAX, which would do nothing
    lines = [[line for line in err.splitlines() if word in line] for word in ("stopping where", "interrupted")]
    assert lines[0] or lines[1]  # the first one where they train already
    assert max(map(len, lines)) <= 1, err  # and not from each process


def wait_for(condition: Any, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def test_processes_with_other_settings_are_told(tmp_path: Path) -> None:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    words = [*flags(tiny(**CONFIG)), "--quiet", "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2"]
    both = [
        isobatch("train", *words, "--process-id", str(k), "--gamma", str(gamma), cwd=tmp_path)
        for k, gamma in ((0, 0.9), (1, 0.8))
    ]
    ends = [finish(process) for process in both]
    assert [code for code, _, _ in ends] == [2, 2]
    assert "process 1 was started with other settings than process 0: gamma (0.8, there 0.9)." in ends[0][2]


def test_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    words = [*flags(tiny(**CONFIG)), "--coordinator", "127.0.0.1:9", "--num-processes", "2", "--process-id", "1"]
    code, _, err = finish(isobatch("train", *words, "--process-timeout", "1", cwd=tmp_path))
    assert code == 1
    assert "coordinator=127.0.0.1:9 does not answer within 1 seconds" in err


def test_others_that_do_not_come(tmp_path: Path) -> None:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    words = [*flags(tiny(**CONFIG)), "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2"]
    code, _, err = finish(isobatch("train", *words, "--process-timeout", "2", cwd=tmp_path))
    assert code == 1
    assert "of 2 processes number 1 did not come within 2 seconds" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_processes": 2}, "num_processes=2 need a place to meet"),
        ({"coordinator": "here", "num_processes": 2}, "coordinator='here' is no HOST:PORT"),
        ({"coordinator": "h:1", "num_processes": 2, "process_id": 2}, "process_id=2 is not one of num_processes=2"),
    ],
)
def test_a_team_that_cannot_be(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Team(**settings)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["launch", "--", "eval", "x"], "launch starts train, not eval"),
        (["launch", "--process-id", "1", "--", "train"], "process_id=1 is what launch tells each process"),
    ],
)
def test_what_launch_does_not_start(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    from isobatch.cli.main import main

    assert main(words) == 2
    assert sentence in capsys.readouterr().err


class Ends:
    """Two ends of a lifeline in one process, and what they say."""

    def __init__(self, limit: float) -> None:
        self.said: list[list[str]] = [[], []]
        self.codes: list[list[int]] = [[], []]
        self.lines = [Lifeline(k, 2, limit, self.said[k].append, self.codes[k].append) for k in range(2)]
        server = socket.create_server(("127.0.0.1", 0))
        self.lines[1].connect("127.0.0.1", server.getsockname()[1])
        self.lines[0].accept(server)

    def close(self) -> None:
        for line in self.lines:
            for connection in line._peers.values():
                connection.close()

    def wait(self, k: int) -> None:
        end = time.monotonic() + 20
        while not self.codes[k] and time.monotonic() < end:
            time.sleep(0.02)


@pytest.fixture
def request_ends() -> Iterator[Callable[..., Ends]]:
    made: list[Ends] = []

    def make(limit: float) -> Ends:
        made.append(Ends(limit))
        return made[-1]

    yield make
    for ends in made:
        ends.close()


def test_a_silent_process_is_given_up(request_ends: Callable[..., Ends]) -> None:
    ends = request_ends(limit=3)
    ends.lines[1]._closed.set()  # it hangs: no more beats, and the connection stays
    ends.wait(0)
    assert ends.said[0] == ["process 1 of 2 showed no life for 3 seconds (process_timeout)."]
    assert ends.codes == [[1], []]


def test_a_process_that_fails_says_why(request_ends: Callable[..., Ends]) -> None:
    ends = request_ends(limit=20)
    ends.lines[1].fail("environment 3 raised ValueError.")
    ends.wait(0)
    assert ends.said[0] == ["process 1 of 2 failed: environment 3 raised ValueError."]


def test_an_end_in_order_is_none_to_speak_of(request_ends: Callable[..., Ends]) -> None:
    ends = request_ends(limit=2)
    ends.lines[1].close()
    time.sleep(3)  # longer than a silence may be
    assert ends.said == [[], []]
