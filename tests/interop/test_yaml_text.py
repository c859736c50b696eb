"""YAML that is changed in place: everything else stays, character by character."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from isobatch.errors import UsageError
from isobatch.interop.yaml_text import edit, entries_changed, entry_text

FILE = """\
# a comment
first:   # of the first
  lr: !!float 1e-3   # why
  steps: &n 128
  'quoted': "yes"

  # before the nested one
  nested: {a: 1, b: [1, 2]}  # flow
  text: |
    two
    lines

second:
  <<: {lr: 0x10}
  steps: *n
"""


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({}, "", ""),
        ({"lr": 0.002}, "!!float 1e-3   # why", "0.002   # why"),
        ({"quoted": "no, not"}, '"yes"', "'no, not'"),
        ({"nested": {"a": 2, "b": [1, 2]}}, "{a: 1, b", "{a: 2, b"),
        ({"nested": {"a": 1, "b": [1, 2], "c": None}}, "[1, 2]}", "[1, 2], c: null}"),
        ({"text": "one"}, "|\n    two\n    lines", "one"),
        ({"more": 1.0e-5}, "    lines\n", "    lines\n  more: 1.0e-05\n"),
    ],
)
def test_only_the_value_changes(changes: dict[str, Any], old: str, new: str) -> None:
    after = yaml.safe_load(FILE)["first"] | changes
    edited = edit(FILE, after, "first")
    assert edited == FILE.replace(old, new, 1)
    assert yaml.safe_load(edited) == yaml.safe_load(FILE) | {"first": after}


def test_an_alias_is_written_out_where_the_value_changes() -> None:
    """And what it stands for stays what it was."""
    edited = edit(FILE, {"lr": 16, "steps": 256}, "second")
    assert edited == FILE.replace("steps: *n", "steps: 256")


def test_a_value_taken_from_another_mapping_is_added() -> None:
    assert edit(FILE, {"lr": 8, "steps": 128}, "second") == FILE + "  lr: 8\n".rstrip("\n") + "\n"


def test_an_anchor_stays_and_others_change_with_it() -> None:
    edited = edit(FILE, yaml.safe_load(FILE)["first"] | {"steps": 64}, "first")
    assert edited == FILE.replace("&n 128", "&n 64")
    assert entries_changed(FILE, edited, "first") == ["second"]


def test_aliases_inside_the_same_mapping_keep_their_value() -> None:
    assert edit("a: &x 1\nb: *x\nc: *x\n", {"a": 2, "b": 1, "c": 2}) == "a: &x 2\nb: 1\nc: 2\n"


def test_files_of_all_kinds() -> None:
    assert edit("{}", {"a": 1}) == "{a: 1}"
    assert edit("a:\nb: 2", {"a": 1, "b": 2}) == "a: 1\nb: 2"
    assert edit("a: 1", {"a": 1, "b": {"c": 2}}) == "a: 1\nb: {c: 2}"
    assert edit("a: {\n  b: 1,\n}\n", {"a": {"b": 1, "c": 2}}) == "a: {\n  b: 1, c: 2\n}\n"
    assert edit("---\na: 1\n# end\n", {"a": 1, "b": 2}) == "---\na: 1\nb: 2\n# end\n"
    assert edit("\ufeffa: 1\n", {"a": 2}) == "\ufeffa: 2\n"


def test_the_lines_of_an_entry() -> None:
    assert entry_text(FILE, "second") == "second:\n  <<: {lr: 0x10}\n  steps: *n\n"
    assert entry_text(FILE, "first").endswith("    lines\n")


def test_a_setting_cannot_be_taken_away() -> None:
    with pytest.raises(UsageError, match="cannot be changed in place"):
        edit("a: 1\nb: 2\n", {"a": 1})


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab ,:#{}[]*&!|>'\"%@", max_size=8)
)
MAPPINGS = st.dictionaries(st.sampled_from("abcdef"), SCALARS, min_size=1)


@given(MAPPINGS, MAPPINGS, st.booleans())
def test_any_values_can_be_put_in(before: dict[str, Any], changes: dict[str, Any], flow: bool) -> None:
    after = before | changes
    text = yaml.safe_dump(before, default_flow_style=flow)
    assert yaml.safe_load(edit(text, after)) == after
    nested = yaml.safe_dump({"x": {"y": before}, "z": 1}, default_flow_style=flow)
    assert yaml.safe_load(edit(nested, {"x": {"y": after}, "z": 1})) == {"x": {"y": after}, "z": 1}
