"""Settings on disk: YAML in and out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from isobatch.errors import UsageError
from isobatch.files import read_text
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.safe_yaml import read_yaml


def dump_config(config: Config) -> str:
    return dump_settings(config.to_dict())


def dump_settings(settings: Mapping[str, object]) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False)


def load_config(path: Path) -> Config:
    """A config from a YAML file of settings."""
    return Config().replace(**load_yaml(path))


def load_yaml(path: Path) -> SettingsByName:
    """The mapping in a YAML file."""
    return parse_mapping(read_text(path, "--config"), f"config={str(path)!r}")


def parse_mapping(text: str, name: str) -> SettingsByName:
    """The mapping in a YAML text; `name` is what to call it in a complaint."""
    try:
        mapping = read_yaml(text)
    except ValueError as error:
        raise UsageError(f"{name} {error}: use lines of `name: value`.") from None
    if not isinstance(mapping, dict):
        kind = {list: "a list", str: "a text", type(None): "empty"}.get(type(mapping), f"a {type(mapping).__name__}")
        raise UsageError(f"{name} is not a mapping but {kind}: use lines of `name: value`.")
    return {str(key): value for key, value in mapping.items()}
