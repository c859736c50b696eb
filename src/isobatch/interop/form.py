"""The form of a library's files: how a text of settings is read, written, and changed in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from isobatch.interop.yaml_text import edit_flat, parse_flat, render_flat
from isobatch.settings.parsing import SettingsByName


@dataclass(frozen=True)
class Form:
    """What is asked of a text; unless said otherwise it is YAML that holds the settings of one run."""

    parse: Callable[[str, str | None], tuple[SettingsByName, str | None]] = parse_flat
    """Text and environment -> its settings, and the environment that they are for."""
    render: Callable[[Mapping[str, object], str | None], str] = render_flat
    """Settings and environment -> text, the inverse of `parse`."""
    edit: Callable[[str, Mapping[str, object], str | None], str] = edit_flat
    """Text, settings and environment -> the text with these settings; what they do not change stays as it is."""
    excerpt: Callable[[str, str | None], str] = lambda text, env: text
    """Text and environment -> the part of the text that is about the environment."""
    side_effects: Callable[[str, str, str | None], list[str]] = lambda before, after, env: []
    """Text before and after, and environment -> other environments in it whose settings changed too."""
    entries: Callable[[str], list[str]] = lambda text: []
    """Text -> the environments (or behaviors, or classes) that it has settings for, if it names them."""

    shared: Callable[[str, str | None], str | None] = lambda text, env: None
    """Text and environment -> the entry that it takes because it has none of its own, if that is so."""


FLAT_YAML = Form()
