"""Settings of other libraries in .ini files: read as those libraries read them, and changed in place."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping

from isobatch.errors import UsageError, brief, first_line
from isobatch.settings.parsing import SettingsByName

SECTION = re.compile(r"^\[(?P<name>[^\]]+)\]\s*$")


def parse(text: str, env: str | None) -> tuple[SettingsByName, str | None]:
    """Section -> name -> value; sections of sections (`[sweep.train.gamma]`) are left out."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UsageError(f"the text is not a valid .ini file ({first_line(error)}): check it.") from None
    plain = [name for name in parser.sections() if "." not in name and name != "sweep"]
    return {section: {name: _value(word) for name, word in parser[section].items()} for section in plain}, env


def _value(word: str) -> object:
    try:
        return ast.literal_eval(word)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return word


def _sections(settings: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for section, values in settings.items():
        if not isinstance(values, Mapping):
            raise UsageError(f"{section}={brief(values)} stands in no section: put it into a mapping.")
        yield section, values


def render(settings: Mapping[str, object], env: str | None) -> str:
    blocks = []
    for section, values in _sections(settings):
        lines = [f"{name} = {value}" for name, value in values.items()]
        blocks.append("\n".join([f"[{section}]", *lines]) + "\n")
    return "\n".join(blocks)


def edit(text: str, settings: Mapping[str, object], env: str | None) -> str:
    """The text with the values that change; a new one follows the last of its section."""
    before = dict(_sections(parse(text, env)[0]))
    for section, values in _sections(settings):
        for name, value in values.items():
            if before.get(section, {}).get(name, edit) != value:
                text = _with_value(text, section, name, value)
    return text


def _with_value(text: str, section: str, name: str, value: object) -> str:
    lines = text.split("\n")
    current, last = "", -1
    for i, line in enumerate(lines):
        header = SECTION.match(line)
        current = header["name"] if header else current
        if current != section:
            continue
        match = re.match(rf"^(\s*{re.escape(name)}\s*[=:]\s*)(.*?)(\s*)$", line, re.IGNORECASE)
        if match:
            lines[i] = f"{match[1]}{value}{match[3]}"
            return "\n".join(lines)
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            last = i
    if last < 0:
        return text.rstrip("\n") + f"\n\n[{section}]\n{name} = {value}\n"
    lines.insert(last + 1, f"{name} = {value}")
    return "\n".join(lines)
