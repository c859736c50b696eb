"""Settings that work: every algorithm can be trained with those of every environment that has some."""

import pytest

import isobatch as ib
from isobatch.envs.catalog import GYMNAX
from isobatch.settings.presets import ALGORITHMS, BY_HAND, ENVIRONMENTS, TIME_LIMITS


def test_time_limits_are_those_of_the_environments() -> None:
    assert {env: GYMNAX[env].max_steps for env in ENVIRONMENTS if env not in BY_HAND} == TIME_LIMITS


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_every_algorithm_has_settings_that_fit(env: str) -> None:
    """Whole episodes need rows that the longest of them leaves something of: here a half at least."""
    for algo in ALGORITHMS:
        config = ib.preset(algo, env)
        assert config.num_iterations >= 10, algo
        if config.complete_episodes:
            assert config.num_steps >= 2 * GYMNAX[env].max_steps
            assert config.geometry.iteration_batch >= 1000


@pytest.mark.parametrize("env", ["Asterix-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar"])
def test_games_of_minatar_have_the_settings_that_purejaxrl_published(env: str) -> None:
    assert ib.preset("ppo", env) == ib.preset("minatar-ppo", env)
