"""What people write, in flags, YAML and Python, as the type of a field, and back."""

import json

import numpy as np
import pytest
import yaml

from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.settings.files import dump_config
from isobatch.settings.parsing import inf_as_text, parse_value, plain_json


@pytest.mark.parametrize("word", [True, 1, "1", "true", "True", "yes", "on", "ON", np.True_])
def test_words_for_true(word):
    assert parse_value("bootstrap", word, bool) is True


@pytest.mark.parametrize("word", [False, 0, "0", "false", "no", "off", "Off", np.False_])
def test_words_for_false(word):
    assert parse_value("bootstrap", word, bool) is False


@pytest.mark.parametrize("word", ["maybe", "", "2", 2, 0.5, None, [], "truee"])
def test_other_words_are_refused(word):
    with pytest.raises(UsageError, match=r"bootstrap=.* is not valid: use true or false\."):
        parse_value("bootstrap", word, bool)


@pytest.mark.parametrize("text", ["noise_scale: on", "noise_scale: 1", "noise_scale: 'yes'", "noise_scale: true"])
def test_booleans_in_yaml(text):
    assert Config.from_dict(yaml.safe_load(text)).noise_scale


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["--noise-scale", "1"], False, True),
        (["--noise-scale"], False, True),
        (["--noise-scale=on"], False, True),
        (["--no-noise-scale"], False, False),
        (["--noise-scale", "off"], False, False),
    ],
)
def test_booleans_as_flags(words, before, after, capsys):
    assert main(["rescale", *words, "--factor", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after"]["noise_scale"] is after


def test_a_flag_that_is_neither_true_nor_false(capsys):
    assert main(["rescale", "--noise-scale", "maybe", "--factor", "2"]) == 2
    assert "noise_scale='maybe' is not valid: use true or false." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "number"),
    [("1e6", 10**6), ("1_000", 1000), (" 12 ", 12), (3.0, 3), (np.int64(2**60 + 1), 2**60 + 1), (str(10**30), 10**30)],
)  # fmt: skip
def test_whole_numbers(value, number):
    assert parse_value("num_envs", value, int) == number


@pytest.mark.parametrize("value", ["1.5", 1.5, True, "nan", "inf", float("inf"), "1e400", None, [4], "many"])
def test_what_is_no_whole_number(value):
    with pytest.raises(UsageError, match=r"num_envs=.* is not valid: use a whole number\."):
        parse_value("num_envs", value, int)


def test_a_list_says_what_it_is_a_list_of():
    with pytest.raises(UsageError, match=r"use a list of numbers, for example 0\.9,0\.95"):
        parse_value("lambdas", "a,b", tuple[float, ...])
    with pytest.raises(UsageError, match="use a list of whole numbers, for example 64,64"):
        parse_value("hidden_sizes", 64, tuple[int, ...])


def test_infinity_is_written_so_that_it_is_read_back():
    config = Config.from_dict({"max_grad_norm": "inf"})
    assert inf_as_text(config.hypers.max_grad_norm) == "inf"
    assert inf_as_text(0.5) == 0.5
    assert Config.from_dict(yaml.safe_load(dump_config(config))) == config
    assert Config.from_dict({k: inf_as_text(v) for k, v in config.to_dict().items()}) == config


def test_what_json_has_nothing_for_is_text() -> None:
    """YAML has dates and bytes, and so have files of other libraries."""
    read = yaml.safe_load("{day: 2020-01-02, key: !!binary aGk=, numbers: [1, 0.5, true, null, .nan]}")
    assert json.loads(json.dumps(plain_json(read), allow_nan=False)) == {
        "day": "2020-01-02",
        "key": "b'hi'",
        "numbers": [1, 0.5, True, None, None],
    }
