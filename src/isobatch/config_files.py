"""Settings on disk: YAML in and out, and files that are written all at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from isobatch.config import Config
from isobatch.errors import UsageError


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file all at once: a reader, or a kill, sees the old content or the new one."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def dump_config(config: Config) -> str:
    return dump_settings(config.to_dict())


def dump_settings(settings: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False)


def read_text(path: Path, flag: str) -> str:
    """A file that a flag names."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{flag} {str(path)!r} cannot be read ({why}): check the path.") from None


def write_file(path: Path, content: str | bytes) -> None:
    """A file that a person asked for."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise UsageError(f"--out {str(path)!r} cannot be written ({error.strerror}): name another place.") from None


def load_config(path: Path, base: Config | None = None) -> Config:
    """A config from a YAML file of settings, those it does not name taken from `base`."""
    return (base or Config()).replace(**load_yaml(path))


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    return parse_mapping(read_text(path, "--config"), f"config={str(path)!r}")


def parse_mapping(text: str, name: str) -> dict[str, Any]:
    """The mapping in a YAML text; `name` is what to call it in a complaint."""
    try:
        mapping = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UsageError(f"{name} is not valid YAML{line}: use lines of `name: value`.") from None
    if not isinstance(mapping, dict):
        kind = {list: "a list", str: "a text", type(None): "empty"}.get(type(mapping), f"a {type(mapping).__name__}")
        raise UsageError(f"{name} is not a mapping but {kind}: use lines of `name: value`.")
    return {str(key): value for key, value in mapping.items()}
