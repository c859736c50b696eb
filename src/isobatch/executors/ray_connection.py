"""A connection to a Ray cluster: one that is running somewhere, or one that is started here and ended again."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from isobatch.errors import RunError, UsageError, first_line
from isobatch.executors.cores import available_cores

SECONDS_TO_ANSWER = 10.0
OBJECT_STORE = 100 * 1024**2  # bytes, where this process starts the cluster: results are small
# What results depend on, as it is here: workers get these variables, whatever their node was started with.
FORWARDED = ("JAX_", "XLA_", "PJRT_", "ISOBATCH_", "OPENBLAS_", "OMP_", "MKL_")
# Read by Ray when it is imported: nothing is sent anywhere, and nothing is printed, least of all on standard output.
QUIETLY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
# The beginning of a connection of HTTP/2, on which Ray speaks: a preface and empty settings; settings are the answer.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


@contextmanager
def connected(address: str | None, what: str, instead: str) -> Iterator[None]:
    """The cluster at HOST:PORT; else the one of RAY_ADDRESS; else one that is started on this machine and ended again.

    `what` needs it, and people without Ray can `instead`.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"{what} needs the package ray: pip install 'isobatch[ray]', or {instead}.")
    address = address or os.environ.get("RAY_ADDRESS")
    check_address(address)
    for name, value in QUIETLY.items():
        os.environ.setdefault(name, value)
    if address:
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")  # attempts to connect, of some 40 seconds each
    import ray

    if ray.is_initialized():  # by the program that calls this
        yield
        return
    where = {"address": address} if address else own_cluster()
    at_end = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # of many kinds, some of them of Ray's core
        raise RunError(
            f"--address {address or 'local'}: Ray cannot be used ({first_line(error).rstrip('.')}): this machine has "
            "to be a node of that cluster (`ray start --address=HOST:PORT`), with the same versions of Ray and Python, "
            "and with RAY_AUTH_MODE=token if the cluster asks for a token."
        ) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, at_end)  # Ray has taken it
    try:
        yield
    finally:
        ray.shutdown()


def own_cluster() -> dict[str, str | int | bool]:
    return {
        "address": "local",
        "num_cpus": len(available_cores()),
        "object_store_memory": OBJECT_STORE,
        "include_dashboard": False,
    }


def check_address(address: str | None) -> None:
    """Raise unless somebody answers as Ray would: Ray itself would try for minutes."""
    if address in (None, "auto", "local"):
        return
    host, _, port = str(address).rpartition(":")
    if "://" in host or not host or not port.isdigit():
        raise UsageError(f"--address {address!r} is not HOST:PORT: use that of `ray start --head`, port 6379 mostly.")
    try:
        with socket.create_connection((host, int(port)), SECONDS_TO_ANSWER) as connection:
            connection.sendall(GREETING)
            if connection.recv(4)[3:] != b"\x04":
                raise ConnectionError("something else does")
    except (OSError, OverflowError) as error:
        raise RunError(
            f"--address {address}: no Ray cluster answers there ({first_line(error)}): start one with `ray start "
            "--head`, or leave --address out."
        ) from None


def forwarded() -> dict[str, str]:
    """Ray would otherwise choose the threads of NumPy by the CPUs of a task, and NumPy's bits depend on them."""
    here = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
    return {"OMP_NUM_THREADS": str(len(available_cores()))} | here
