"""Several processes, on one machine or on many, that train one run together: how they meet and agree."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from isobatch.errors import RunError, UsageError, first_line
from isobatch.formatting import Say
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.settings.team import AUTO, Team
from isobatch.training.lifeline import Lifeline
from isobatch.training.sharding import is_key

GO = b"go"  # what process 0 says when all are there

Tree = TypeVar("Tree", bound=PyTree)


@contextmanager
def joined(team: Team, say: Say) -> Iterator[None]:
    """Meet the other processes, and end together: when one of them fails, all do."""
    if team.coordinator is None:
        yield
        return
    meet(team)
    with quiet_output():  # Gloo prints that it is connected
        lifeline = stay_in_touch(team, say)
    try:
        yield
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        code = 130 if interrupted else 2 if isinstance(error, UsageError) else 1
        atexit.register(leave, code)
        if isinstance(error, jax.errors.JaxRuntimeError):
            lifeline.wait_for_cause()
            error = RunError(f"process {jax.process_index()} lost the others ({first_line(error)}).")
        lifeline.fail("interrupted." if interrupted else str(error) or type(error).__name__, code)
        raise error from None
    lifeline.close()


def leave(code: int) -> None:
    """End this process at once: JAX would wait for the others, some of which are gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextmanager
def quiet_output() -> Iterator[None]:
    """Nothing on standard output, also not by libraries that do not ask Python: it may be JSON for another program."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def meet(team: Team) -> None:
    """Wait for the others, and let JAX see the devices of all."""
    limit = team.process_timeout
    seconds = max(int(limit), 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM, and nobody asks it
    try:
        if team.coordinator == AUTO:
            jax.distributed.initialize(initialization_timeout=seconds, shutdown_timeout_seconds=seconds)
        else:
            gather_at(team)
            place = team.coordinator, team.num_processes, team.process_id
            jax.distributed.initialize(*place, initialization_timeout=seconds, shutdown_timeout_seconds=seconds)
    except (RuntimeError, ValueError) as error:
        where = f"coordinator={team.coordinator}"
        if team.coordinator == AUTO:
            raise UsageError(
                f"{where} found no scheduler ({first_line(error)}): name HOST:PORT, num_processes and process_id."
            ) from None
        raise RunError(
            f"{where}: the {team.num_processes} processes did not meet within {limit:g} seconds (process_timeout; "
            f"{first_line(error)}): start each with the same coordinator and num_processes."
        ) from None


def gather_at(team: Team) -> None:
    """All processes come to the coordinator's address, or are named. JAX would wait, and abort without a sentence."""
    host, port = team.address
    end = time.monotonic() + team.process_timeout
    if team.process_id:
        _come_to(team, host, port, end)
        return
    try:
        server = socket.create_server(("", port))
    except OSError as error:
        raise UsageError(
            f"coordinator={team.coordinator}: process 0 cannot listen at port {port} ({error.strerror}): name another "
            "one, to all processes."
        ) from None
    there: dict[int, socket.socket] = {}
    with server, ExitStack() as stack:
        while len(there) < team.num_processes - 1:
            server.settimeout(max(end - time.monotonic(), 0.01))
            try:
                connection = stack.enter_context(server.accept()[0])
                connection.settimeout(max(end - time.monotonic(), 0.01))
                there[int(connection.recv(20).decode())] = connection
            except TimeoutError:
                missing = ", ".join(str(k) for k in range(1, team.num_processes) if k not in there)
                raise RunError(
                    f"coordinator={team.coordinator}: of {team.num_processes} processes number {missing} did not come "
                    f"within {team.process_timeout:g} seconds (process_timeout): start each with the same coordinator "
                    "and num_processes."
                ) from None
            except (OSError, ValueError):  # somebody else
                continue
        for connection in there.values():
            connection.sendall(GO)


def _come_to(team: Team, host: str, port: int, end: float) -> None:
    trouble: object = "it waits for others"
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, port), timeout=max(end - time.monotonic(), 0.1)) as connection:
                connection.sendall(str(team.process_id).encode())
                if connection.recv(len(GO)) == GO:
                    return
        except OSError as error:
            trouble = error
        time.sleep(0.2)
    raise RunError(
        f"coordinator={team.coordinator} does not answer within {team.process_timeout:g} seconds (process_timeout; "
        f"{trouble}): start process 0 there, or correct the address."
    )


def stay_in_touch(team: Team, say: Say) -> Lifeline:
    """Connections between the processes, over which each learns of the end of another."""
    index, count = jax.process_index(), jax.process_count()
    lifeline = Lifeline(index, count, team.process_timeout, say)
    server = socket.create_server(("", 0)) if index == 0 else None
    address = f"{socket.gethostname()} {server.getsockname()[1]}" if server is not None else ""
    host, port = share_text(address).split()
    if server is not None:
        lifeline.accept(server)
        return lifeline
    if team.coordinator != AUTO:  # that address is known to work
        host = team.address[0]
    try:
        lifeline.connect(host, int(port))
    except OSError as error:
        raise RunError(f"process 0 cannot be reached at {host}:{port} ({error}): open that port.") from None
    return lifeline


def is_first() -> bool:
    """Whether this process writes and speaks for all."""
    return jax.process_index() == 0


def share(tree: Tree, source: int = 0) -> Tree:
    """The numbers, arrays and random keys of one process, whose shapes all processes know."""
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return tree

    def one(leaf: PyTree) -> PyTree:
        if is_key(leaf):
            return jax.random.wrap_key_data(one(jax.random.key_data(leaf)))
        shared = multihost_utils.broadcast_one_to_all(np.asarray(leaf), is_source=jax.process_index() == source)
        return int(shared) if isinstance(leaf, int) else shared

    return jax.tree.map(one, tree)


def share_text(text: str, source: int = 0) -> str:
    """A text of one process."""
    encoded = np.frombuffer(text.encode(), np.uint8)
    length = share(len(encoded), source)
    mine = encoded if jax.process_index() == source else np.zeros(length, np.uint8)
    return bytes(np.asarray(share(mine, source), np.uint8)).decode()


def least(number: int) -> int:
    """The least of what the processes say."""
    return number if jax.process_count() == 1 else int(np.min(gather(np.array(number, np.int32))))


def gather(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, along a new axis."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array)).reshape(jax.process_count(), *array.shape)


def check_same(config: Config, options: Options) -> None:
    """Raise unless all processes were started for the same run, with the same versions."""
    if jax.process_count() == 1:
        return
    packages = {f"version of {name}": version(name) for name in ("isobatch", "jax", "jaxlib", "numpy")}
    mine = config.to_dict() | {"seed": options.seed, "num_seeds": options.num_seeds, "devices": options.devices}
    text = json.dumps(mine | packages, default=str)
    marks = gather(np.array([zlib.crc32(text.encode())], np.uint32))
    if np.all(marks == marks[0]):
        return
    first = json.loads(share_text(text))
    here = json.loads(text)
    differ = [f"{name} ({here[name]}, there {first.get(name)})" for name in here if first.get(name) != here[name]]
    sentences = [share_text("; ".join(differ), source) for source in range(jax.process_count())]
    k = next(k for k, sentence in enumerate(sentences) if sentence)
    raise UsageError(f"process {k} was started with other settings than process 0: {sentences[k]}.")
