"""Actors that are processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection

import jax

from isobatch.errors import RunError, first_line
from isobatch.executors.signals import ENDING

BEAT = 1.0  # seconds between two signs of life
SILENCE = 30.0  # seconds without one, after which a process is given up
START_SECONDS = 300.0  # that a process may take to begin: it imports JAX and compiles
ALIVE = b""
# Its networks are small, and others want the other cores: no call changes threads.
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
ALONE = {
    "JAX_PLATFORMS": "cpu",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    "PJRT_NPROC": "1",
    "OMP_NUM_THREADS": "1",
}
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


class ProcessChannel:
    """A child process with an `ActorServer` in it."""

    def __init__(self, index: int, made_from: bytes) -> None:
        self._index = index
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "isobatch.rollouts.actors.processes", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
                env=os.environ | environment(),
            )
        self._connection = Connection(ours.detach())
        self._patience = START_SECONDS
        with suppress(OSError):  # it has ended already, which the first call finds out
            self._connection.send_bytes(made_from)

    def call(self, method: str, message: bytes) -> bytes:
        try:
            self._connection.send_bytes(method.encode())
            self._connection.send_bytes(message)
            while True:
                if not self._connection.poll(self._patience):
                    silent = f"showed no sign of life for {self._patience:g} seconds"
                    raise RunError(f"the process of actor {self._index} {silent}.")
                answer = self._connection.recv_bytes()
                self._patience = SILENCE
                if answer != ALIVE:
                    return answer
        except (OSError, EOFError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            raise RunError(f"the process of actor {self._index} ended with code {self._process.poll()}.") from None

    def close(self) -> None:
        """Killed, which needs nobody's consent; whoever waits for an answer learns it from the end of the socket."""
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid


def environment() -> dict[str, str]:
    """Of a child: one device, one thread, and the compiled programs that this process keeps."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1 {ONE_THREAD}"
    kept = {name.upper(): str(value) for name in CACHE if (value := getattr(jax.config, name)) is not None}
    return kept | ALONE | {"XLA_FLAGS": flags.strip()}


def serve(descriptor: int) -> None:
    """Answer what comes through a socket until it is closed."""
    for number in ENDING:  # which all processes may get, for the one that learns
        signal.signal(number, signal.SIG_IGN)
    connection, lock = Connection(descriptor), threading.Lock()

    def send(message: bytes) -> None:
        with lock:
            connection.send_bytes(message)

    def beat(over: threading.Event) -> None:
        with suppress(OSError):
            while not over.wait(BEAT):
                send(ALIVE)

    def alive(work: Callable[[], bytes]) -> bytes:
        """The result of work during which this process is known to live."""
        over = threading.Event()
        threading.Thread(target=beat, args=(over,), daemon=True).start()
        try:
            return work()
        finally:
            over.set()

    from isobatch.rollouts.actors.server import ActorServer
    from isobatch.rollouts.actors.wire import to_bytes

    server = None
    made_from = connection.recv_bytes()
    while True:
        method = connection.recv_bytes().decode()
        message = connection.recv_bytes()
        try:
            if server is None:
                server = ActorServer(made_from)
            call = server.open if method == "open" else server.collect
            send(alive(partial(call, message)))
        except OSError:
            return
        except Exception as error:
            send(to_bytes([], fault=f"its actor raised {type(error).__name__}: {first_line(error)}"))


def main() -> None:
    with suppress(EOFError, OSError):
        serve(int(sys.argv[1]))
    os._exit(0)  # environments that hang over being closed hold up nobody


if __name__ == "__main__":
    main()
