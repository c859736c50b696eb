"""Settings in .ini files keep everything but the values that change."""

from __future__ import annotations

import configparser

import pytest

from isobatch.errors import UsageError
from isobatch.interop.ini_text import edit, parse, render

FILE = """\
; a comment
[vec]
num_envs =  8

[train]
# another
learning_rate = 0.015
batch_size=auto
total_timesteps: 10_000_000

[sweep.train.gamma]
min = 0.8
"""


def test_values_are_read_as_python_reads_them() -> None:
    settings, _ = parse(FILE, None)
    assert settings == {
        "vec": {"num_envs": 8},
        "train": {"learning_rate": 0.015, "batch_size": "auto", "total_timesteps": 10_000_000},
    }


def test_an_edit_changes_one_value_and_adds_after_its_section() -> None:
    settings, _ = parse(FILE, None)
    assert edit(FILE, settings, None) == FILE
    settings["vec"]["num_envs"] = 16
    assert edit(FILE, settings, None) == FILE.replace("num_envs =  8", "num_envs =  16")
    settings["train"]["gamma"] = 0.9
    added = FILE.replace("8\n", "16\n", 1).replace("10_000_000\n", "10_000_000\ngamma = 0.9\n")
    assert edit(FILE, settings, None) == added
    assert edit("[a]\nx = 1\n", {"a": {"x": 1}, "b": {"y": 2}}, None) == "[a]\nx = 1\n\n[b]\ny = 2\n"


def test_what_is_written_anew_is_read_by_the_standard_library() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(render({"train": {"learning_rate": 3e-4}, "vec": {"num_envs": 2}}, None))
    assert parser.getfloat("train", "learning_rate") == 3e-4
    assert parser.getint("vec", "num_envs") == 2


def test_what_is_no_ini_file_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"not a valid \.ini file") as caught:
        parse("n_envs: 8\n", None)
    assert "\n" not in str(caught.value)
