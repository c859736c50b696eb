"""Help: one screen with an example first, everything on request, and the values that would be used."""

from __future__ import annotations

import re

import pytest

from isobatch.cli.main import COMMANDS, main
from isobatch.settings.presets import ALGORITHMS, preset

ONE_SCREEN = 45  # lines


def shown(words: list[str], capsys: pytest.CaptureFixture) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def value_of(flag: str, text: str) -> str:
    found = re.search(rf"{flag} [^\[]*\[([^\]]*)\]", text)
    assert found, flag
    return found[1]


def test_without_words_the_commands_are_listed(capsys: pytest.CaptureFixture) -> None:
    assert all(re.search(f"^  {name} ", shown([], capsys), re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_one_screen_with_an_example_and_a_usage_line(name: str, capsys: pytest.CaptureFixture) -> None:
    text = shown([name, "--help"], capsys)
    assert text.index(f"  isobatch {name}") < text.index(f"usage: isobatch {name}")
    assert len(text.splitlines()) <= ONE_SCREEN
    assert not re.search(r" +$", text, re.MULTILINE)
    assert shown(["help", name], capsys) == text


def test_the_rest_is_under_help_all(capsys: pytest.CaptureFixture) -> None:
    brief, everything = shown(["train", "--help"], capsys), shown(["train", "--help-all"], capsys)
    assert "isobatch train --help-all" in brief
    assert "--beta-prox" not in brief
    for flag in ("--beta-prox", "--env-kwargs", "--keep-checkpoints", "--stale-objective"):
        assert flag in everything


def test_algorithms_are_named(capsys: pytest.CaptureFixture) -> None:
    assert ", ".join(ALGORITHMS) in " ".join(shown(["train", "--help"], capsys).split())


@pytest.mark.parametrize(
    ("command", "usage"),
    [("eval", "eval RUN [flags]"), ("plot", "plot RUN [RUN ...] [flags]"), ("export", "export RUN --out FILE [flags]"),
     ("rescale", "rescale [RUN] [flags]"), ("envs", "envs [WORD ...] [flags]")],
)  # fmt: skip
def test_usage_lines_have_the_arguments(command: str, usage: str, capsys: pytest.CaptureFixture) -> None:
    assert f"usage: isobatch {usage}\n" in shown([command, "--help"], capsys)


def test_values_are_those_of_the_preset(capsys: pytest.CaptureFixture) -> None:
    text = shown(["train", "--algo", "ppg", "--env", "Pendulum-v1", "--help"], capsys)
    config = preset("ppg", "Pendulum-v1")
    assert value_of("--num-minibatches", text) == str(config.num_minibatches) == "8"
    assert value_of("--gamma", text) == f"{config.hypers.gamma:g}" == "0.9"
    assert value_of("--total-timesteps", text) == str(config.total_timesteps)
    text = shown(["train", "--help", "--gamma", "0.5"], capsys)
    assert value_of("--gamma", text) == "0.5"


def test_a_value_that_stands_for_something_says_for_what(capsys: pytest.CaptureFixture) -> None:
    text = " ".join(shown(["diagnose", "--help"], capsys).split())
    assert "in many ways; 0: as many as the run's own [0]" in text
    assert "--time" in text


@pytest.mark.parametrize("words", [["--algo", "pppo"], ["--gamma", "x"], ["--nonsense"], ["--env"]])
def test_bad_flags_do_not_keep_help_away(words: list[str], capsys: pytest.CaptureFixture) -> None:
    assert "usage: isobatch train" in shown(["train", *words, "--help"], capsys)
