"""Games of Procgen, through a whole phase of PPG-EWMA on a small network of the paper's kind.

Two of them, or all sixteen with ISOBATCH_TEST_ALL=1, as in `.ci/run`.
"""

from typing import Any

import numpy as np
import pytest
from needs import ALL, needs_procgen
from tiny import tiny

from isobatch.envs.catalog import envpool_ids
from isobatch.envs.registry import environment_of, make_env
from isobatch.envs.spaces import Discrete
from isobatch.settings.config import Config
from isobatch.training import host_program
from isobatch.training.programs import initial_states, stack_hypers
from isobatch.training.trainer import train

GAMES = (
    "Bigfish", "Bossfight", "Caveflyer", "Chaser", "Climber", "Coinrun", "Dodgeball", "Fruitbot", "Heist", "Jumper",
    "Leaper", "Maze", "Miner", "Ninja", "Plunder", "Starpilot",
)  # fmt: skip


TRIED = GAMES if ALL else ("Coinrun", "Starpilot")

pytestmark = [pytest.mark.xdist_group("procgen"), needs_procgen]


def phase_of(game: str) -> Config:
    """One phase of two policy iterations. With one time limit for all games they share a compiled program."""
    return tiny(
        "ppg-ewma", f"envpool/{game}Easy-v0", env_kwargs={"max_episode_steps": 1000}, encoder="impala",
        channels="4,4,4", hidden_sizes="32", num_envs=2, num_steps=4, num_minibatches=2, policy_iterations_per_phase=2,
        aux_epochs=1, aux_minibatches=2, total_timesteps=2 * 4 * 2,
    )  # fmt: skip


@pytest.mark.parametrize("game", TRIED)
def test_a_phase_of_a_game(game: str):
    config = phase_of(game)
    before = initial_states(config, [0])
    result = train(config)
    phase = result.states.learning.phase
    assert phase.obs.shape == (1, 2, 4, 2, 3, 64, 64)
    assert phase.obs.dtype == np.uint8
    assert len(np.unique(phase.obs)) > 10  # a picture
    for name in ("losses/policy_loss", "losses/value_loss", "proximal/approx_kl"):
        assert np.isfinite(result.metrics[name]).all()
    for name in ("aux/value_loss", "aux/true_value_loss", "aux/clone_kl"):
        assert np.isfinite(result.metrics[name][-1])
    old, new = (states.networks.policy.head.weight for states in (before, result.states))
    assert not np.array_equal(old, new)


def test_games_that_look_alike_share_a_program():
    programs = set()
    for game in GAMES[:3]:
        config = phase_of(game)
        states = initial_states(config, [0])
        hypers = stack_hypers([config.hypers] * states.iteration.shape[0])
        programs.add(id(host_program.HostProgram(config, environment_of(config), states, hypers, 1).functions))
    assert len(programs) == 1


def test_every_game_is_there_in_easy_and_hard():
    names = {f"{game}{level}-v0" for game in GAMES for level in ("Easy", "Hard")}
    assert {i for i in envpool_ids() if i.endswith(("Easy-v0", "Hard-v0"))} == names
    looks: set[Any] = set()
    for name in names:
        env = make_env(f"envpool/{name}")
        assert env.max_steps >= 500
        looks.add((env.obs_shape, env.obs_dtype, env.action_space))
    assert looks == {((3, 64, 64), "uint8", Discrete(15))}
