"""Settings that a library keeps in YAML, or in Python that is read without being executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isobatch.interop.python_text import edit as edit_python
from isobatch.interop.python_text import entries as python_entries
from isobatch.interop.python_text import excerpt as python_excerpt
from isobatch.interop.python_text import find_settings, is_python
from isobatch.interop.python_text import side_effects as python_side_effects
from isobatch.interop.yaml_text import edit_flat, parse_flat


@dataclass(frozen=True)
class PythonOrYaml:
    """What `Library` asks of a text, for either form; `mark` is a setting that every class or function of it has."""

    mark: str

    def parse(self, text: str, env: str | None) -> tuple[dict[str, Any], str | None]:
        """A YAML or JSON text, or the class or function of that name in a Python text."""
        if not is_python(text):
            return parse_flat(text, env)
        found, name = find_settings(text, self.mark, env)
        return found.plain(), name

    def entries(self, text: str) -> list[str]:
        return python_entries(text, self.mark) if is_python(text) else []

    def edit(self, text: str, settings: Mapping[str, Any], env: str | None) -> str:
        if is_python(text):
            return edit_python(text, self.mark, settings, env)
        return edit_flat(text, settings, env)

    def excerpt(self, text: str, env: str | None) -> str:
        return python_excerpt(text, self.mark, env) if is_python(text) else text

    def side_effects(self, before: str, after: str, env: str | None) -> list[str]:
        return python_side_effects(before, after, self.mark, env) if is_python(before) else []
