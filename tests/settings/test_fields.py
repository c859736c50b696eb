"""Fields of settings: type, range and help text stand with them, and every dataclass is checked by the same code."""

import dataclasses
import pickle

import pytest

from isobatch.errors import UsageError
from isobatch.laboratory.options import LabOptions
from isobatch.settings.config import Config, Hypers, setting_fields
from isobatch.settings.fields import DECAY, POSITIVE, UNIT, Range, check_ranges, fields_of
from isobatch.settings.options import Options


@pytest.mark.parametrize("owner", [Config, Hypers, Options, LabOptions])
def test_every_field_has_a_help_text_and_every_number_a_range(owner):
    fields = fields_of(owner)
    assert set(fields) == {field.name for field in dataclasses.fields(owner)} - {"hypers"}
    for name, field in fields.items():
        assert field.help, name
        numbers = field.kind in (int, float, tuple[int, ...], tuple[float, ...])
        assert numbers == (field.range is not None), name


@pytest.mark.parametrize("owner", [Hypers, Options, LabOptions])
def test_defaults_are_within_their_ranges(owner):
    check_ranges(owner())


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (POSITIVE, [1e-9, 5, 1e300], [0, -1, float("inf"), float("nan")]),
        (UNIT, [0, 0.5, 1], [-1e-9, 1.0001, float("nan")]),
        (DECAY, [0, 0.999], [1, -0.1]),
        (Range(1), [1, float("inf")], [0.99, float("nan")]),
    ],
)
def test_a_range_holds_its_numbers(allowed, inside, outside):
    assert all(value in allowed for value in inside)
    assert not any(value in allowed for value in outside)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Hypers(learning_rate=0), "learning_rate=0 is out of range: use a number above 0 and finite."),
        (lambda: Hypers(gamma=1.5), "gamma=1.5 is out of range: use a number from 0 to 1."),
        (lambda: Hypers(beta_prox=1), "beta_prox=1 is out of range: use a number from 0 to 1 (excluded)."),
        (lambda: Hypers(clip_eps=-1), "clip_eps=-1 is out of range: use a number above 0."),
        (lambda: Hypers(importance_cap=0.5), "importance_cap=0.5 is out of range: use a number of at least 1."),
        (lambda: Config(num_envs=0), "num_envs=0 must be at least 1."),
        (lambda: Config(staleness=-1), "staleness=-1 must be at least 0."),
        (lambda: Config(num_envs=2**63), "num_envs=9223372036854775808 must be at most 9223372036854775807."),
        (lambda: Config(hidden_sizes=(0,)), "hidden_sizes=[0] must be a list of positive sizes, for example 64,64."),
        (lambda: Config(channels=()), "channels=[] must be a list of positive sizes, for example 64,64."),
        (lambda: LabOptions(chains=3), "chains=3 must be at least 4: an error bar needs so many independent ones."),
        (lambda: LabOptions(lambdas=(0.5, 1.5)), "lambdas=1.5 is out of range: use numbers from 0 to 1."),
        (lambda: Options(seed=-1), "seed=-1 must be at least 0."),
        (lambda: Options(env_timeout=0), "env_timeout=0 is out of range: use a number above 0 and finite."),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_with_one_sentence(make, sentence):
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value) == sentence


def test_hypers_may_hold_what_is_no_number_yet():
    """Inside a compiled program they are traced arrays, which were checked as numbers before."""
    traced = object()
    assert Hypers(learning_rate=traced).learning_rate is traced  # type: ignore[arg-type]


def test_a_config_is_hashable_and_survives_pickling():
    config = Config(num_envs=4, env_kwargs=Config().env_kwargs)
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))
    assert len({config, config.replace(num_envs="4"), config.replace(gamma=0.5)}) == 2


def test_settings_have_one_flat_name_each():
    assert list(setting_fields()) == list(Config().to_dict())
