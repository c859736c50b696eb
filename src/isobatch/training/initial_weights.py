"""A new run that starts from the weights of another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError
from isobatch.learning.proximal import Ewma
from isobatch.learning.state import TrainState
from isobatch.rollouts.jax_rollout import start_envs
from isobatch.settings.config import Config
from isobatch.training.checkpoints import flatten
from isobatch.training.loading import load_run


def start_from(path: Path, states: TrainState, say: Callable[[str], None]) -> TrainState:
    """`states` with the networks and the observation normalizer of the newest checkpoint of another run.

    Seed number i starts from its seed number i, and from the first ones again where it has fewer.
    """
    run = load_run(path, say=say)
    check_same_shapes(path, run.states, states)
    places = np.arange(states.iteration.shape[0]) % len(run.seeds)
    networks, moments = jax.tree.map(lambda leaf: leaf[places], (run.states.networks, run.states.obs_moments))
    states = eqx.tree_at(lambda s: s.learning.learner.networks, states, networks)
    if moments is not None:
        states = eqx.tree_at(lambda s: s.obs_moments, states, moments)
    if states.learning.learner.proximal is not None:
        proximal = jax.vmap(Ewma.start)(networks.policy)
        states = eqx.tree_at(lambda s: s.learning.learner.proximal, states, proximal)
    what = "weights" if moments is None else "weights and observation normalizer"
    say(f"{what} of {path} at iteration {run.iteration}; everything else begins anew.")
    return states


def carry_over(path: Path, states: TrainState, config: Config) -> TrainState:
    """`states` as those of a finished run of another number of environments: all that was learned, and its randomness.

    Environments begin anew, and the discounted returns behind the scale of rewards with them.
    """
    theirs = load_run(path).states
    check_same_shapes(path, theirs, states)
    places: list[Callable[[TrainState], object]] = [
        lambda s: s.learning.learner,
        lambda s: s.learning.advantage_moments,
        lambda s: s.key,
    ]
    if states.obs_moments is not None:
        places.append(lambda s: s.obs_moments)
    for place in places:
        states = eqx.tree_at(place, states, place(theirs))
    ours, rewards = states.learning.reward_scale, theirs.learning.reward_scale
    if ours is not None and rewards is not None:
        scale = eqx.tree_at(lambda r: r.moments, ours, rewards.moments)
        states = eqx.tree_at(lambda s: s.learning.reward_scale, states, scale)
    env = environment_of(config)
    if isinstance(env, HostEnvironment):  # its seeds are those of the run
        return states
    keys = jax.vmap(lambda key: jax.random.fold_in(key, config.num_envs))(theirs.key)
    start = jax.jit(jax.vmap(lambda key: start_envs(env, config.num_envs, config.staggered_resets, key)))
    return eqx.tree_at(lambda s: s.envs, states, start(keys))


def check_same_shapes(path: Path, theirs: TrainState, ours: TrainState) -> None:
    """UsageError that names the arrays of networks and normalizer which differ, without their axis of seeds."""
    there, here = (
        {name: leaf.shape[1:] for name, leaf in flatten((each.networks, each.obs_moments)).items()}
        for each in (theirs, ours)
    )
    differ = [
        f"{name.split('/', 1)[1]} ({there.get(name, 'none')} there, {here.get(name, 'none')} here)"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    normalized = [each.obs_moments is not None for each in (theirs, ours)]
    if normalized[0] != normalized[1]:
        differ = [f"normalize_observations ({normalized[0]} there, {normalized[1]} here)"]
    if differ:
        more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
        raise UsageError(
            f"init_from={str(path)!r} has other networks: {', '.join(differ[:3])}{more}; use the same networks and "
            "spaces as that run."
        )
