"""Settings of another library that stand alone in a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from isobatch.settings.files import parse_mapping


def parse_flat(text: str, env: str | None) -> tuple[dict[str, Any], str | None]:
    """A file that holds the settings of one run."""
    return parse_mapping(text, "the text"), env


def render_flat(settings: Mapping[str, Any], env: str | None) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False, default_flow_style=False, width=10_000)
