"""Flags for who trains the parts of a grid or the groups of a search: this machine, or a cluster."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from isobatch.cli import console
from isobatch.cli.flags import Parser
from isobatch.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from isobatch.executors.interface import Executor

PLACES = ("local", "ray")


def add_executor(parser: Parser, parts: str) -> None:
    """`parts` is what is trained at once."""
    parser.add_argument("--on", default="local", metavar="{local,ray}", help="who trains: this machine, or a cluster")
    parser.add_argument(
        "--processes", type=int, metavar="N", help=f"on this machine: {parts} trained at once (default 1)"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; without it one is started here")


def executor_of(args: argparse.Namespace) -> AbstractContextManager[Executor]:
    """Who trains the parts; raises where flags do not go together."""
    if args.on not in PLACES:
        raise unknown_name(f"on={args.on!r}", args.on, PLACES)
    if args.on == "ray":
        if args.processes is not None:
            raise UsageError(f"processes={args.processes} is for --on local: Ray counts the CPUs of its nodes.")
        from isobatch.executors.ray_cluster import ray_cluster

        return ray_cluster(args.address, console.say)
    if args.address is not None:
        raise UsageError(f"address={args.address!r} is that of a Ray cluster: add --on ray, or leave it out.")
    from isobatch.executors.processes import LocalProcesses

    return nullcontext(LocalProcesses(1 if args.processes is None else args.processes))
