"""Returns of policies along a run: whose they are, when they are measured, and what becomes of lanes that diverge."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from tiny import tiny

from isobatch.rollouts.evaluation import Episodes, Evaluator, StackedPolicies
from isobatch.settings.config import Config
from isobatch.studies import policy_returns
from isobatch.studies.claims import STUDIES
from isobatch.studies.grid import Cell
from isobatch.studies.lanes import train_cells
from isobatch.studies.policy_returns import PolicyReturns
from isobatch.studies.rows import INSIDE, OUTSIDE, POINTS, Diverged, final_return, mean_return
from isobatch.training.metrics import EPISODES, LENGTH, RETURN
from isobatch.training.programs import initial_states
from isobatch.training.trainer import train


def trained(config: Config) -> dict[str, np.ndarray]:
    """The table of one config, two seeds."""
    (outcome,) = train_cells([Cell(config, {})], [0, 1], evaluated=True)
    return outcome.table


def test_the_last_point_is_the_policy_that_training_ends_with() -> None:
    """Its episodes differ from point to point: those of the last one begin with its number."""
    config = tiny()
    table, run = trained(config), train(config, num_seeds=2, log_interval=1)
    played = Evaluator(config, INSIDE, deterministic=False, seed=0).play(run.states, POINTS - 1)
    last = table["env_steps"] == config.env_steps
    np.testing.assert_allclose(table[RETURN][last], played.return_mean, atol=1e-6)
    assert table[EPISODES].tolist() == [INSIDE] * len(table["seed"])


def test_episodes_that_no_run_has_time_for_are_played() -> None:
    """128 environments, three steps each: none ends an episode of five steps, each of which brings a reward of 1."""
    config = tiny(env="Probe-Truncation", num_envs=128, num_steps=1, total_timesteps=384)
    (without,) = train_cells([Cell(config, {})], [0, 1])
    assert without.table[EPISODES].sum() == 0
    table = trained(config)
    assert set(table[RETURN]) == {5.0}
    assert set(table[LENGTH]) == {5.0}
    one = {name: values[table["seed"] == 0] for name, values in table.items()}
    assert (final_return(one, config.env_steps), mean_return(one)) == (5.0, 5.0)


def test_a_point_is_measured_on_the_newest_policy() -> None:
    """Six iterations, twenty points: after 1/20 to 3/20 of the steps there is none but the first, and so on."""
    config = tiny(total_timesteps=32 * 6)
    returns = PolicyReturns(config, initial_states(config, [0]), log_interval=1)
    assert returns.iterations == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 4 + [4] * 3 + [5] * 3 + [6]
    assert returns.pauses == [1, 2, 3, 4, 5, 6]
    # Training stops at multiples of what a line has, and at the end: 4 iterations of 10, 20 and 23.
    config = tiny(total_timesteps=32 * 23)
    assert PolicyReturns(config, initial_states(config, [0]), log_interval=10).pauses == [10, 20, 23]


def test_a_lane_that_is_not_finite_has_no_return_and_changes_no_other() -> None:
    config = tiny()
    states = initial_states(config, [0, 1])
    poisoned = eqx.tree_at(
        lambda state: state.networks, states, jax.tree.map(lambda leaf: leaf.at[1].set(np.nan), states.networks)
    )
    returns, clean = (PolicyReturns(config, states, log_interval=1) for _ in range(2))
    for iteration in returns.pauses:
        returns.note(iteration, poisoned)
        clean.note(iteration, states)
    training: dict[str, Any] = {name: np.zeros(0) for name in ("seed", "env_steps")}
    at = {1: Diverged(200, "losses/policy_loss")}
    table, other = (each.curve(slice(0, 2), [0, 1], training, at) for each in (returns, clean))
    known = np.isfinite(table[RETURN])
    assert known[table["seed"] == 0].all()
    assert not known[(table["seed"] == 1) & (table["iteration"] > 0)].any()
    assert table[EPISODES][~known].sum() == 0
    assert table["env_steps"][table["seed"] == 1].max() < 200  # from where it diverged there are no lines
    mine = [each["seed"] == 0 for each in (table, other)]
    assert table[RETURN][mine[0]].tolist() == other[RETURN][mine[1]].tolist()


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", ["quick", "laptop", "paper"])
def test_studies_that_compare_numbers_of_environments_are_evaluated(name: str, scale: str) -> None:
    """Where they differ, episodes of training lag differently."""
    grid, envs = STUDIES[name].grid(scale), {}
    for cell in grid.cells:
        envs.setdefault(cell.config.env, set()).add(cell.config.num_envs)
    assert grid.evaluated == any(len(counts) > 1 for counts in envs.values())
    assert grid.sizes()["evaluated"] == grid.evaluated


def test_outside_jax_policies_of_all_points_play_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each point gets what its own policies got: here the seed of their episodes, which is the point's number."""
    config = tiny(env="gymnasium/CartPole-v1")
    states = initial_states(config, [0, 1, 2])
    monkeypatch.setattr(policy_returns, "AT_ONCE", 26)  # two lanes of thirteen policies, then one
    returns, calls = PolicyReturns(config, states, log_interval=1), []

    def play(policies: StackedPolicies, seeds: np.ndarray) -> Episodes:
        calls.append(len(seeds))
        assert all(len(leaf) == len(seeds) for leaf in jax.tree.leaves(policies))
        return Episodes(np.repeat(seeds[:, None], OUTSIDE, axis=1).astype(float), np.ones((len(seeds), OUTSIDE), int))

    monkeypatch.setattr(returns._evaluator, "play", play)
    for iteration in returns.pauses:
        returns.note(iteration, states)
    assert calls == []
    training: dict[str, Any] = {name: np.zeros(0) for name in ("seed", "env_steps")}
    table = returns.curve(slice(0, 3), [0, 1, 2], training, {})
    assert calls == [26, 13]
    first = [returns.iterations.index(iteration) for iteration in returns.iterations]
    for seed in (0, 1, 2):
        assert table[RETURN][table["seed"] == seed].tolist() == first
    assert set(table[EPISODES]) == {OUTSIDE}


def test_outside_jax_real_episodes_are_played() -> None:
    table = trained(tiny(env="gymnasium/CartPole-v1", num_envs=2))
    assert ((table[RETURN] >= 8) & (table[RETURN] <= 500)).all()
    assert table[RETURN].tolist() == table[LENGTH].tolist()  # a reward of 1 a step
