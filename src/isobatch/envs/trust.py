"""Modules of environments that this user has imported before, each with the file it was found in.

`module:Id` imports a module. Where the id comes from the user, by a flag or in Python, that was asked for; where
it comes from a run directory, the command line asks `is_trusted` first.
"""

from __future__ import annotations

import importlib.util
import json
import os
from contextlib import suppress
from pathlib import Path

from isobatch.envs.catalog import module_of
from isobatch.files import replace_file

ALLOWED = "ISOBATCH_TRUSTED_MODULES"


def package_of(env_id: str) -> str:
    return module_of(env_id).partition(".")[0]


def is_trusted(env_id: str) -> bool:
    """Whether its package is in ISOBATCH_TRUSTED_MODULES, or was imported before from the same file."""
    package = package_of(env_id)
    allowed = [word.strip() for word in os.environ.get(ALLOWED, "").split(",")]
    return package in allowed or [package, _origin(package)] in _remembered()


def is_absent(env_id: str) -> bool:
    """Whether there is no such package here, so that importing it would execute nothing."""
    with suppress(ImportError, ValueError, AttributeError):
        return importlib.util.find_spec(package_of(env_id)) is None
    return False


def remember(env_id: str) -> None:
    """This user's runs may import the module of this environment, as long as it is the same file."""
    if is_trusted(env_id):
        return
    package = package_of(env_id)
    with suppress(OSError):  # without a place to keep it in, it is asked for again
        path = _file()
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps([*_remembered(), [package, _origin(package)]]))


def _origin(package: str) -> str:
    """The file that importing a package executes."""
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
