"""The command `isobatch`: picks the subcommand, and turns errors into one sentence and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from types import ModuleType

from isobatch.cli.flags import Parser, check_unknown
from isobatch.errors import RunError, UsageError, near_matches

COMMANDS = {
    "train": "train an algorithm on an environment",
    "eval": "play episodes with a trained policy and report their returns",
    "play": "watch a trained policy",
    "export": "write a trained policy into a file for other programs",
    "rescale": "change the batch size, and let the hyperparameters follow",
    "advise": "see where the samples go, and what to watch",
    "diagnose": "measure how noisy and how biased the gradient is",
    "study": "run an experiment that tests a claim",
    "plot": "draw learning curves of runs",
    "verify": "train twice and compare every bit",
    "envs": "list the environments",
    "demo": "see what it is about, in a few minutes",
}
COMPILING = ("train", "eval", "play", "diagnose", "study", "verify", "demo")
COMPILE_CACHE = "ISOBATCH_COMPILE_CACHE"  # a directory, or 0
USAGE = """isobatch: policy optimization that behaves the same at any batch size.

usage: isobatch COMMAND [flags]      isobatch COMMAND --help

"""


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        find_modules_here()
        return run(words)
    except UsageError as error:
        print(f"isobatch: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"isobatch: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        return 0


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE + "\n".join(f"  {name:9} {help_text}" for name, help_text in COMMANDS.items()))
        return 0
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(version("isobatch"))
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise UsageError(
            f"command {name!r} is unknown{near_matches(name, COMMANDS) or '; use ' + ', '.join(COMMANDS) + '.'}"
        )
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
    args, unknown = parser.parse_known_args([_hyphens(word) for word in words[1:]])
    check_unknown(parser, unknown)
    if name in COMPILING:
        keep_programs(not args.no_compile_cache)
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
