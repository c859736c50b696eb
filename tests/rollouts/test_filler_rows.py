"""Rows that fill in for a reset teach nothing: whatever stands in them, and whether they are there at all."""

from functools import partial
from typing import Any

import host_envs  # noqa: F401  registers its environments
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from isobatch.envs.registry import environment_of
from isobatch.learning.iteration import iteration_keys, learn
from isobatch.learning.state import initial_state
from isobatch.networks.distributions import Categorical
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.host_rollout import process, replaced
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.training.checkpoints import flatten

pytestmark = pytest.mark.xdist_group("hosts")
ENVS = 4
# An episode of 3 steps that ends by itself, one of 2 steps that is cut off, and the beginning of a third.
STEPS, ENDED, CUT = 7, 2, 4
FILLERS = (3, 6)  # rows that are none, if there are any
MEASURED = dict(noise_scale=True, normalize_observations=True, normalize_rewards=True)
ALGORITHMS: dict[str, Any] = {
    "ppo": dict(MEASURED, update_epochs=2, clip_value_loss=True, advantage_norm="minibatch", aggregation="trajectory"),
    "ppg-ewma": dict(MEASURED, policy_iterations_per_phase=1, aux_epochs=2, aux_minibatches=1, advantage_norm="ewma"),
    "reinforce": MEASURED,
}


def config_of(algo: str, fillers: bool) -> Config:
    """With fillers there are more rows for the same steps; one minibatch holds all of them."""
    rows = STEPS + len(FILLERS) * fillers
    return preset(
        algo, "host_envs:Short-v0", autoreset="next-step" if fillers else "disabled", num_envs=ENVS, num_steps=rows,
        total_timesteps=rows * ENVS, num_minibatches=1, hidden_sizes="8", learning_rate=1e-2, **ALGORITHMS[algo],
    )  # fmt: skip


def rollout_of(config: Config, networks: Any, moments: Any) -> CollectedRollout:
    """The same steps in either mode; in rows that are none stands what an episode ended with, and no reward."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(STEPS + 1, ENVS, 2)).astype(np.float32)
    final = rng.normal(size=(STEPS, ENVS, 2)).astype(np.float32)  # what the step led to, where it ended an episode
    action = rng.integers(0, 2, (STEPS, ENVS)).astype(np.int32)
    logits = rng.normal(size=(STEPS, ENVS, 2)).astype(np.float32)
    reward = rng.normal(size=(STEPS, ENVS)).astype(np.float32)
    terminated, truncated = (np.arange(STEPS) == row for row in (ENDED, CUT))
    terminated, truncated = (np.repeat(flag[:, None], ENVS, axis=1) for flag in (terminated, truncated))
    see = jnp.clip(moments.normalize(jnp.asarray(final), 1e-8), -10.0, 10.0)
    final_value = np.where(truncated, networks.value(see), 0.0).astype(np.float32)
    steps = [obs[:-1], action, logits, reward, terminated, truncated, final_value]
    if config.autoreset == "next-step":
        fill = [final[[ENDED, CUT]], action[:2], logits[:2], *(np.zeros((2, ENVS), x.dtype) for x in steps[3:])]
        before = np.array([row + 1 for row in (ENDED, CUT)])
        steps = [np.insert(x, before, rows, axis=0) for x, rows in zip(steps, fill, strict=True)]
    seen, action, logits, reward, terminated, truncated, final_value = map(jnp.asarray, steps)
    behavior = Categorical(logits)
    return CollectedRollout(
        seen, jnp.asarray(obs[-1]), action, behavior, reward, terminated, truncated, final_value=final_value
    )


def with_garbage(rollout: CollectedRollout) -> CollectedRollout:
    """Other numbers in the rows that are none: large ones, but for what the cut-off episode ended with."""
    first, both = jnp.array(FILLERS[:1]), jnp.array(FILLERS)
    return CollectedRollout(
        obs=rollout.obs.at[first].set(-1e4),
        last_obs=rollout.last_obs,
        action=rollout.action.at[both].set(1 - rollout.action[both]),
        behavior=Categorical(rollout.behavior.logits.at[both].add(jnp.array([3.0, -3.0]))),
        reward=rollout.reward.at[both].set(1e4),
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        final_value=rollout.final_value.at[both].set(1e4),
    )


def with_another_step(rollout: CollectedRollout) -> CollectedRollout:
    """The first step shows and earns something else."""
    return replaced(rollout, obs=rollout.obs.at[0].add(1.0), reward=rollout.reward.at[0].add(1.0))


@partial(jax.jit, static_argnums=0)
def taught(config: Config, state: Any, rollout: CollectedRollout, moments: Any) -> Any:
    """All that an iteration makes of a rollout: normalizers, episodes, policy phase, noise scale, auxiliary phase."""
    env, networks = environment_of(config), state.networks
    before = (state.envs.episodes, state.envs.state.fills_in)
    found = process(config.complete_episodes, env, networks, moments, jnp.float32(10.0), *before, rollout)
    hypers = jax.tree.map(jnp.float32, config.hypers)
    keys = iteration_keys(jax.random.key(0))
    learning, metrics = learn(config, state.learning, found.segment, hypers, jnp.int32(0), keys)
    learned = (learning.learner, learning.reward_scale, learning.advantage_moments)
    return {
        "learned": learned,
        "metrics": metrics,
        "seen": (found.episodes, found.obs_moments, found.open_episodes, found.fills_in),
    }


def lesson(config: Config, change: Any = lambda rollout: rollout) -> dict[str, np.ndarray]:
    state = initial_state(config, environment_of(config), 0)
    moments = state.obs_moments.update(jnp.asarray(np.random.default_rng(1).normal(size=(9, 2)), jnp.float32))
    rollout = change(rollout_of(config, state.networks, moments))
    return flatten(taught(config, state, rollout, moments))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_stands_in_them_changes_no_bit(algo: str):
    """Of networks, optimizers, normalizers, noise scale, auxiliary phase, metrics and sums over episodes."""
    config = config_of(algo, fillers=True)
    plain, garbage = lesson(config), lesson(config, with_garbage)
    assert {name for name in plain if plain[name].tobytes() != garbage[name].tobytes()} == set()
    # What a step shows and earns does change them.
    steps = lesson(config, with_another_step)
    changed = {name for name in plain if plain[name].tobytes() != steps[name].tobytes()}
    assert {"metrics/noise/trace", "metrics/losses/policy_loss", "seen/1/mean", "seen/0/return_sum"} <= changed


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_same_steps_without_them_teach_the_same(algo: str):
    """Of 9 rows 7 are steps: weights, noise scale and auxiliary phase count 7. Ages are in rows, as env_steps is."""
    found, expected = (lesson(config_of(algo, fillers)) for fillers in (True, False))
    assert set(found) == set(expected)
    for name in expected:
        if name != "metrics/proximal/age":
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=2e-5, err_msg=name)
