"""Settings that a library keeps in YAML, or in Python that is read without being executed."""

from __future__ import annotations

from collections.abc import Mapping

from isobatch.interop.form import Form
from isobatch.interop.python_text import edit as edit_python
from isobatch.interop.python_text import entries as python_entries
from isobatch.interop.python_text import excerpt as python_excerpt
from isobatch.interop.python_text import find_settings, is_python
from isobatch.interop.python_text import side_effects as python_side_effects
from isobatch.interop.yaml_text import edit_flat, parse_flat
from isobatch.settings.parsing import SettingsByName


def python_or_yaml(mark: str) -> Form:
    """Either form; `mark` is a setting that every class or function of a Python text has."""

    def parse(text: str, env: str | None) -> tuple[SettingsByName, str | None]:
        """A YAML or JSON text, or the class or function of that name in a Python text."""
        if not is_python(text):
            return parse_flat(text, env)
        branch, name = find_settings(text, mark, env)
        return branch.plain(), name

    def edit(text: str, settings: Mapping[str, object], env: str | None) -> str:
        return edit_python(text, mark, settings, env) if is_python(text) else edit_flat(text, settings, env)

    return Form(
        parse=parse,
        edit=edit,
        excerpt=lambda text, env: python_excerpt(text, mark, env) if is_python(text) else text,
        side_effects=lambda before, after, env: (
            python_side_effects(before, after, mark, env) if is_python(before) else []
        ),
        entries=lambda text: python_entries(text, mark) if is_python(text) else [],
    )
