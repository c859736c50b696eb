"""Which modules a run may have imported: those that this user has named, not those that a directory names.

The environment of a run may be `module:Id`, and loading the run imports the module. Modules that were ever given by
`--env` or `--config` are remembered with the file they were found in; others need --trust or ISOBATCH_TRUSTED_MODULES.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from pathlib import Path

from isobatch.cli.flags import Parser
from isobatch.envs.catalog import module_of
from isobatch.errors import UsageError
from isobatch.files import replace_file

ALLOWED = "ISOBATCH_TRUSTED_MODULES"
RUNS = {  # the arguments that name a run which is loaded, by command
    "train": ("resume", "init_from", "run_dir"),
    "eval": ("run_dir",),
    "play": ("run_dir",),
    "export": ("run_dir",),
    "diagnose": ("run_dir",),
}
TRAINING = ("train", "diagnose", "verify")  # commands whose flags and settings files name an environment to import


def add_trust(name: str, parser: Parser) -> None:
    if name in RUNS:
        parser.add_argument(
            "--trust", action="store_true", help="import the module that a run of somebody else names (module:Id)"
        )


def check_trust(name: str, args: argparse.Namespace) -> None:
    """Refuse to load a run that names a module which this user has not named; remember those that are given here."""
    if name in TRAINING:
        for env in _given_envs(args):
            remember(env)
    for path in (getattr(args, argument, None) for argument in RUNS.get(name, ())):
        env = _env_in(Path(path) / "config.yaml") if path else ""
        if not module_of(env):
            continue
        if args.trust:
            remember(env)
        elif not is_trusted(env):
            raise UsageError(
                f"run {str(path)!r} has env={env!r}, which imports the module {module_of(env)!r}, and you have not "
                f"used that module before: look at it, then add --trust, or set {ALLOWED}={_package(env)}."
            )


def is_trusted(env: str) -> bool:
    package = _package(env)
    allowed = [word.strip() for word in os.environ.get(ALLOWED, "").split(",")]
    return package in allowed or [package, _origin(package)] in _remembered()


def remember(env: str) -> None:
    """From now on this user's runs may import the module of this environment, as long as it is the same file."""
    if not module_of(env) or is_trusted(env):
        return
    package = _package(env)
    with suppress(OSError):  # without a place to keep it in, it is asked for again
        path = _file()
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps([*_remembered(), [package, _origin(package)]]))


def _given_envs(args: argparse.Namespace) -> list[str]:
    named = [getattr(args, "env", ""), _env_in(args.config) if args.config is not None else ""]
    return [env for env in named if env]


def _env_in(path: Path) -> str:
    from isobatch.settings.files import load_yaml

    with suppress(UsageError):  # which the command itself complains about
        env = load_yaml(path).get("env")
        return env if isinstance(env, str) else ""
    return ""


def _package(env: str) -> str:
    return module_of(env).partition(".")[0]


def _origin(package: str) -> str:
    """The file that importing a package would execute."""
    import importlib.util

    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(package)
        if spec is not None:
            return str(spec.origin or list(spec.submodule_search_locations or []))
    return ""


def _remembered() -> list[list[str]]:
    with suppress(OSError, ValueError):
        pairs = json.loads(_file().read_text(encoding="utf-8"))
        if isinstance(pairs, list):
            return [pair for pair in pairs if isinstance(pair, list)]
    return []


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "isobatch" / "modules.json"
