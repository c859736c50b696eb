"""Settings of other libraries as YAML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from isobatch.errors import UsageError


def parse_mapping(text: str) -> dict[str, Any]:
    try:
        mapping = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UsageError(f"the settings are not valid YAML{line}: use lines of `name: value`.") from None
    if not isinstance(mapping, dict):
        raise UsageError(f"the settings are not a mapping but {_kind(mapping)}: use lines of `name: value`.")
    return {str(name): value for name, value in mapping.items()}


def parse_flat(text: str, env: str | None) -> tuple[dict[str, Any], str | None]:
    """A file that holds the settings of one run."""
    return parse_mapping(text), env


def render_flat(settings: Mapping[str, Any], env: str | None) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False, default_flow_style=False, width=10_000)


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", type(None): "empty"}.get(type(value), f"a {type(value).__name__}")
