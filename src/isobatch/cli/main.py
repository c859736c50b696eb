"""The command `isobatch`: picks the subcommand, and is the boundary at which every error becomes one sentence."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType

from isobatch.cli.failures import report
from isobatch.cli.flags import Parser, check_unknown
from isobatch.cli.streams import Results, flush_streams, prepare_streams
from isobatch.cli.trust import add_trust, check_trust
from isobatch.errors import unknown_name
from isobatch.executors.signals import beside_ctrl_c

COMMANDS = {
    "train": "train an algorithm on an environment",
    "launch": "start several processes that train one run",
    "eval": "play episodes with a trained policy and report their returns",
    "play": "watch a trained policy",
    "export": "write a trained policy into a file for other programs",
    "rescale": "change the batch size, and let the hyperparameters follow",
    "advise": "see where the samples go, and what to watch",
    "diagnose": "measure how noisy and how biased the gradient is",
    "tune": "search for better hyperparameters",
    "plan": "find the batch that reaches a score soonest on this machine",
    "study": "run an experiment that tests a claim",
    "plot": "draw learning curves of runs",
    "verify": "train twice and compare every bit",
    "envs": "list the environments",
    "demo": "see what it is about, in a few minutes",
}
HELP_WORDS = ("-h", "--help", "--help-all")
COMPILING = ("train", "eval", "play", "diagnose", "tune", "plan", "study", "verify", "demo")
COMPILE_CACHE = "ISOBATCH_COMPILE_CACHE"  # a directory, or 0
USAGE = """isobatch: policy optimization that behaves the same at any batch size.

usage: isobatch COMMAND [flags]      isobatch COMMAND --help

"""


def main(argv: list[str] | None = None) -> int:
    prepare_streams()
    try:
        with ended_by_signals():
            find_modules_here()
            code = run(sys.argv[1:] if argv is None else argv)
    except BaseException as error:
        code = report(error)
    return flush_streams(code)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM, which `timeout` may send twice, and the end of the terminal are answered as Ctrl-C is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in beside_ctrl_c()}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(words: list[str]) -> int:
    if words[:1] == ["help"] and len(words) > 1:  # help train
        words = [words[1], "--help"]
    if not words or words[0] in (*HELP_WORDS, "help"):
        print(USAGE + "\n".join(f"  {name:9} {help_text}" for name, help_text in COMMANDS.items()), file=Results())
        return 0
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(version("isobatch"))
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise unknown_name(f"command {name!r}", name, COMMANDS)
    # Only the module of this command is loaded: one that merely computes numbers should not wait for JAX.
    command: ModuleType = importlib.import_module(f"isobatch.cli.{name}")
    parser = Parser(prog=f"isobatch {name}", description=command.__doc__)
    command.add_flags(parser)
    if name in COMPILING:
        parser.add_argument(
            "--no-compile-cache",
            action="store_true",
            help=f"do not keep compiled programs for the next run (always: {COMPILE_CACHE}=0; elsewhere: =DIR)",
        )
    add_trust(name, parser)
    words = [_hyphens(word) for word in words[1:]]
    if any(word in HELP_WORDS for word in words):
        from isobatch.cli.help import help_text

        others = [word for word in words if word not in HELP_WORDS]
        print(help_text(name, parser, others, "--help-all" in words), end="", file=Results())
        return 0
    args, unknown = parser.parse_known_args(words)
    check_unknown(parser, unknown)
    if name in COMPILING:
        keep_programs(not args.no_compile_cache)
    check_trust(name, args)
    return int(command.run(args))


def keep_programs(wanted: bool) -> None:
    """Tell where compiled programs are kept; `training.program_cache` reads it, when JAX is needed."""
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    os.environ.setdefault(COMPILE_CACHE, os.path.join(parent, "isobatch", "programs"))
    if not wanted:
        os.environ[COMPILE_CACHE] = "0"


def find_modules_here() -> None:
    """`--env my_module:MyEnv-v0` is found in the current directory, after whatever is installed under that name."""
    with suppress(FileNotFoundError):  # the current directory was removed
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


def _hyphens(word: str) -> str:
    """`--num_envs` is as good as `--num-envs`."""
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else word


if __name__ == "__main__":
    sys.exit(main())
