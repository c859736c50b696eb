"""Settings of other libraries in YAML files: read as those libraries read them, and changed in place.

Only the values that change are replaced in the text, and new ones are added where their mapping ends. Comments, order,
quotes, anchors, tags and the spelling of numbers are the file's own, because nothing else is written again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import yaml

from isobatch.errors import UsageError
from isobatch.settings.files import parse_mapping
from isobatch.settings.parsing import SettingsByName

ALIAS = re.compile(r"\s*:\s*(\*[^\s,\]}]+)")
ANCHOR = re.compile(r"&[^\s,\]}]+\s")
PASSES = 3  # a value that changes under an anchor can change others, which a second pass writes out


@lru_cache(maxsize=8)
def _mapping(text: str) -> SettingsByName:
    return parse_mapping(text, "the text")


def mapping_of(text: str) -> SettingsByName:
    """What a text holds. It is parsed once, since that is slow and whoever edits a text asks several times."""
    return copy.deepcopy(_mapping(text))


def parse_flat(text: str, env: str | None) -> tuple[SettingsByName, str | None]:
    """A file that holds the settings of one run."""
    return mapping_of(text), env


def render_flat(settings: Mapping[str, object], env: str | None) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False, default_flow_style=False, width=10_000)


def edit_flat(text: str, settings: Mapping[str, object], env: str | None) -> str:
    return edit(text, settings)


def edit(text: str, after: Mapping[str, object], *entry: str) -> str:
    """`text` with the mapping `after` in it, at the top or under these names; all that it has already stays."""
    for _ in range(PASSES):
        now = mapping_of(text)
        for name in entry:
            inner = now[name]
            assert isinstance(inner, dict)
            now = inner
        if now == after:
            return text
        node = _node(text, *entry)
        for start, end, replacement in sorted(_replacements(text, node, now, after), reverse=True):
            text = text[:start] + replacement + text[end:]
    raise UsageError("the file cannot be changed in place: write out what its anchors (&) and aliases (*) stand for.")


def entry_text(text: str, *entry: str) -> str:
    """The lines of one entry of a file that has many."""
    key, value = next(pair for pair in _node(text, *entry[:-1]).value if pair[0].value == entry[-1])
    return text[key.start_mark.index : _end(text, value)] + "\n"


def entries_changed(before: str, after: str, entry: str) -> list[str]:
    """The other entries of a file that changed with `entry`, because they take values from it by an alias."""
    old, new = _mapping(before), _mapping(after)
    return [name for name in old if name != entry and old[name] != new[name]]


def _compose(text: str) -> yaml.MappingNode:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode)
    return node


def _node(text: str, *entry: str) -> yaml.MappingNode:
    node = _compose(text)
    for name in entry:
        node = next(value for key, value in node.value if key.value == name)
    return node


def _replacements(
    text: str, node: yaml.MappingNode, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[tuple[int, int, str]]:
    """Start, end and new text of what has to change so that the mapping at `node` becomes `after`."""
    written = {key.value: (key, value) for key, value in node.value}
    added = []
    for name, value in after.items():
        known = before.get(name)
        if name in before and known == value:
            continue
        if name not in written:  # new, or so far taken from another mapping by `<<`
            added.append(f"{name}: {_inline(value)}")
            continue
        key, old = written[name]
        alias = ALIAS.match(text, key.end_mark.index) if old.start_mark.index < key.end_mark.index else None
        if alias:
            yield (*alias.span(1), _inline(value))
        elif isinstance(old, yaml.MappingNode) and isinstance(known, Mapping) and isinstance(value, Mapping):
            yield from _replacements(text, old, known, value)
        else:
            start, end = old.start_mark.index, _end(text, old)
            anchor = ANCHOR.match(text, start)
            yield start, end, (anchor[0] if anchor else " " if start == end else "") + _inline(value)
    if added:
        yield _insertion(text, node, added)


def _insertion(text: str, node: yaml.MappingNode, lines: list[str]) -> tuple[int, int, str]:
    """Lines of `name: value` at the end of a mapping, in its style."""
    if node.flow_style:
        end = len(text[: node.end_mark.index - 1].rstrip())
        comma = "" if text[end - 1] in "{," else ","
        return end, end, comma + (" " if node.value else "") + ", ".join(lines)
    end = _end(text, node)
    indent = " " * node.value[0][0].start_mark.column
    return end, end, "".join(f"\n{indent}{line}" for line in lines)


def _end(text: str, node: yaml.Node) -> int:
    """Where the text of a node ends; PyYAML lets blocks end where the next thing begins, after blanks and comments."""
    end = node.end_mark.index
    if getattr(node, "flow_style", None) or (isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">")):
        return end
    lines = text[:end].split("\n")
    while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):
        lines.pop()
    return len("\n".join(lines))


def _inline(value: object) -> str:
    """A value on one line, so written that it may also stand between the braces of a mapping."""
    return yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=10**9).strip()[1:-1]
