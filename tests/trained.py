"""Run directories as training leaves them, made without training: random weights and normalizers in a checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tiny import tiny

from isobatch.learning.state import TrainState
from isobatch.networks.moments import Moments
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.programs import initial_states
from isobatch.training.run_directory import RunDirectory

Runs = Callable[..., Path]
ITERATION = 3
SEEDS = [0, 1]


def make_runs(directory: Path) -> Runs:
    """A function of an environment and settings: the directory of such a run."""
    made: dict[Any, Path] = {}

    def run(env: str, **settings: Any) -> Path:
        key = (env, *sorted(settings.items()))
        if key not in made:
            made[key] = directory / str(len(made))
            write_run(made[key], tiny(env=env, **settings))
        return made[key]

    return run


def write_run(path: Path, config: Any) -> None:
    directory = RunDirectory.make(path)
    directory.describe(config, {"seed": SEEDS[0], "num_seeds": len(SEEDS), "log_interval": 1})
    states = initial_states(config, SEEDS)
    checkpoints = Checkpoints(directory.checkpoints)
    checkpoints.save(ITERATION, as_if_trained(states))
    checkpoints.close()


def as_if_trained(states: TrainState) -> TrainState:
    """Noise on all weights, and moments that are not the first ones."""
    rng = np.random.default_rng(0)

    def noisy(leaf: jax.Array) -> jax.Array:
        return jnp.asarray(np.asarray(leaf) + 0.3 * rng.standard_normal(leaf.shape), leaf.dtype)

    def seen(moments: Moments) -> Moments:
        return eqx.tree_at(lambda m: (m.mean, m.variance), moments, (noisy(moments.mean), moments.variance / 4))

    states = eqx.tree_at(lambda s: s.learning.learner.networks, states, jax.tree.map(noisy, states.networks))
    if states.obs_moments is not None:
        states = eqx.tree_at(lambda s: s.obs_moments, states, seen(states.obs_moments))
    if states.learning.reward_scale is not None:
        states = eqx.tree_at(
            lambda s: s.learning.reward_scale.moments, states, seen(states.learning.reward_scale.moments)
        )
    return states
