"""What is searched: defaults of every algorithm, ranges as people type them, and what is wrong with some."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.errors import UsageError
from isobatch.settings.presets import ALGORITHMS, preset
from isobatch.tuning.ranges import AGE, Choice, Interval, chosen_ranges, config_of, default_ranges, settings_of

EWMA = preset("ppo-ewma", "CartPole-v1")


@pytest.mark.parametrize(
    ("low", "high", "scale", "middle"),
    [
        (1e-4, 1e-2, "log", 1e-3),
        (0.9, 0.999, "log distance from 1", 0.99),  # distances .1 and .001: the middle is their geometric mean, .01
        (-1.0, 3.0, "linear", 1.0),
    ],
)
def test_the_middle_of_a_range_by_hand(low: float, high: float, scale: object, middle: float) -> None:
    each = Interval("x", low, high, scale)  # type: ignore[arg-type]
    assert each.at(0.5) == pytest.approx(middle)
    assert each.at(0) == low
    assert each.at(1) == high


@given(st.floats(0, 1), st.sampled_from(["learning_rate", "gamma", AGE]))
def test_a_place_is_found_again(unit: float, name: str) -> None:
    """Up to the rounding of values to four digits."""
    each = default_ranges(EWMA)[name]
    assert isinstance(each, Interval)
    assert each.place(each.at(unit)) == pytest.approx(unit, abs=2e-4)


def test_values_outside_count_as_the_nearer_end() -> None:
    each = Interval("ent_coef", 1e-4, 0.1, "log")
    assert each.place(0.0) == 0
    assert each.place(5.0) == 1


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_defaults_fit_the_algorithm(algo: str) -> None:
    """Only what it makes use of; every end of every range is a valid config, and its own values are inside."""
    config = preset(algo, "CartPole-v1")
    ranges = default_ranges(config)
    assert "learning_rate" in ranges
    assert ("clip_eps" in ranges) == (config.objective == "clip")
    assert ("kl_coef" in ranges) == (config.objective == "kl")
    assert (AGE in ranges) == (config.proximal_policy == "ewma")
    assert ("num_minibatches" in ranges) == (config.objective != "policy-gradient")
    for each in ranges.values():
        for value in each.values if isinstance(each, Choice) else (each.low, each.high):
            config_of(config, {each.name: value})
        own = settings_of(config, ranges)[each.name]
        assert own in each.values if isinstance(each, Choice) else own == 0 or each.low <= own <= each.high


def test_an_age_is_one_in_environment_steps() -> None:
    """CartPole: 1,024 steps in 4 x 4 gradient steps are 64 each. An age of 512 is a center of mass of 8: beta 8/9.
    With 8 minibatches a gradient step has 32 new ones, so it is 16, and beta 16/17."""
    assert config_of(EWMA, {AGE: 512}).hypers.beta_prox == pytest.approx(8 / 9)
    assert config_of(EWMA, {AGE: 512, "num_minibatches": 8}).hypers.beta_prox == pytest.approx(16 / 17)
    assert settings_of(EWMA, {AGE: default_ranges(EWMA)[AGE]})[AGE] == pytest.approx(512)


def test_what_is_given_is_not_searched() -> None:
    assert "gae_lambda" not in chosen_ranges(EWMA, [], [], {"gae_lambda"})
    assert AGE not in chosen_ranges(EWMA, [], [], {"beta_prox"})
    assert list(chosen_ranges(EWMA, ["learning-rate"], [], {"gae_lambda"})) == ["learning_rate"]
    also = chosen_ranges(EWMA, [], ["vf_coef=0.1:1", "learning_rate=1e-3,1e-2"], ())
    assert also["vf_coef"] == Interval("vf_coef", 0.1, 1.0, "log")
    assert also["learning_rate"] == Choice("learning_rate", (1e-3, 1e-2))
    assert len(also) == len(default_ranges(EWMA)) + 1


def test_scales_follow_from_the_setting_and_the_ends() -> None:
    found = chosen_ranges(EWMA, ["ent_coef=0:0.1", "gamma=0.9:1", "beta1=0.5:0.99", "activation=tanh,relu"], [], ())
    scales = [each.scale for each in found.values() if isinstance(each, Interval)]
    assert scales == ["linear", "linear", "log distance from 1"]
    assert found["activation"] == Choice("activation", ("tanh", "relu"))


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (["learning_rat"], "search 'learning_rat' is no setting that can be searched; did you mean learning_rate"),
        (["lr"], "search 'lr' is no setting that can be searched; here it is called learning_rate."),
        (["learning_rate=1e-2:1e-4"], "search learning_rate=1e-2:1e-4 is empty: the first number has to be below"),
        (["learning_rate="], "search learning_rate= is empty: give a range, learning_rate=LOW:HIGH"),
        (["learning_rate=0.1"], "search learning_rate=0.1 is one value: give a range"),
        (["learning_rate=a:b"], "learning_rate='a' is not valid: use a number."),
        (["clip_eps=0.1:inf"], "search clip_eps=0.1:inf has no end"),
        (["gae_lambda=0.5:1.5"], "gae_lambda=1.5 is out of range: use a number from 0 to 1."),
        (["kl_coef=0.1:1"], "search kl_coef: it changes nothing with objective=clip; leave it out."),
        (["vf_coef"], "search vf_coef has no default range: give one, vf_coef=LOW:HIGH or vf_coef=A,B."),
        (["num_minibatches=2:8"], "each value is a program of its own; list them, num_minibatches=A,B."),
        (["num_minibatches=3,4"], "num_minibatches=3 does not evenly divide the iteration batch"),
        (["total_timesteps=1e5,1e6"], "search 'total_timesteps' is no setting that can be searched: it says what"),
        (["learning_rate", "learning_rate=1e-3:1e-2"], "search learning_rate is there twice: give one range."),
        (["beta_prox=0.5:0.9", AGE], "search beta_prox and proximal_age set the same thing"),
        (["num_steps=3,128", "num_minibatches=4,16"], "which do not go together: num_minibatches=16 does not evenly"),
        (["gamma=0.9:0.99"], "gamma is both given and searched: leave out its value or its range."),
        (["learning_rate=0:1"], "learning_rate=0 is out of range: use a number above 0 and finite."),
        (["learning_rate=nan:1"], "search learning_rate=nan:1 has no end: give two finite numbers."),
        (["learning_rate=1e-50:1"], "1e-50 is no number of single precision: stay between 1.18e-38 and 3.4e+38."),
        (["ent_coef=0:1e308"], "search ent_coef=0:1e308: 1e+308 is no number of single precision"),
        (["learning_rate=0.001:0.00100001"], "is narrower than the 4 digits of values that are tried"),
        (["beta1=0.9999999999999997:0.9999999999999998"], "is narrower than the 4 digits of values that are tried"),
        (["learning_rate=1:2:3"], "learning_rate='2:3' is not valid: use a number."),
        (["learning_rate=1e-3,0.001"], "search learning_rate=1e-3,0.001 is one value: give a range"),
        ([f"{AGE}=-5:100"], "proximal_age=-5 is not an age: use a number of environment steps."),
    ],
)
def test_wrong_ranges_are_one_sentence(search: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen_ranges(EWMA, search, [], {"gamma"})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_left_to_search() -> None:
    names = {"beta_prox" if name == AGE else name for name in default_ranges(EWMA)}
    with pytest.raises(UsageError, match="search is empty, every setting is given"):
        chosen_ranges(EWMA, [], [], names)


def test_values_are_short_enough_to_type() -> None:
    each = default_ranges(EWMA)["learning_rate"]
    assert isinstance(each, Interval)
    assert all(len(f"{each.at(unit):.10g}") <= 9 for unit in (0.123456789, 1 / 3, math.pi / 4))
