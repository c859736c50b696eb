"""Which modules a run may have imported: those that its user has used before, not those that a directory names."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from isobatch.cli.flags import Parser
from isobatch.envs.catalog import module_of
from isobatch.errors import UsageError

RUNS = {  # the arguments that name a run which is loaded, by command
    "train": ("resume", "init_from", "run_dir", "replay"),
    "eval": ("run_dir",),
    "play": ("run_dir",),
    "export": ("run_dir",),
    "diagnose": ("run_dir",),
    "advise": ("run_dir",),
    "plan": ("run_dir",),
}


def add_trust(name: str, parser: Parser) -> None:
    if name in RUNS:
        parser.add_argument(
            "--trust", action="store_true", help="import the module that a run of somebody else names (module:Id)"
        )


def check_trust(name: str, args: argparse.Namespace) -> None:
    """Refuse to load a run whose environment is in a module that this user has not used before."""
    for path in (getattr(args, argument, None) for argument in RUNS.get(name, ())):
        env = _env_in(Path(path)) if path and not args.trust else ""
        if not module_of(env):
            continue
        from isobatch.envs.trust import ALLOWED, is_absent, is_trusted, package_of

        if is_absent(env):  # perhaps one's own, from another directory; loading the run says what is missing
            continue
        if not is_trusted(env):
            raise UsageError(
                f"run {str(path)!r} has env={env!r}, which imports the module {module_of(env)!r}, and you have not "
                f"used that module before: look at it, then add --trust, or set {ALLOWED}={package_of(env)}."
            )


def _env_in(run: Path) -> str:
    from isobatch.settings.files import load_yaml

    with suppress(UsageError):  # which the command itself complains about
        env = load_yaml(run / "config.yaml").get("env")
        return env if isinstance(env, str) else ""
    return ""
