"""Shards of a run whose environments step outside: every process steps its own, and all learn from all of them."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jaxtyping import Array

from isobatch.envs.host_interface import HostEnvironment
from isobatch.learning.iteration import Keys
from isobatch.learning.state import TrainState
from isobatch.networks.actor_critic import Networks
from isobatch.networks.moments import Moments
from isobatch.networks.shards import axes_of
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.env_groups import LocalEnvs
from isobatch.rollouts.host_rollout import ProcessedRollout, process
from isobatch.rollouts.segment import EpisodeSums, OpenEpisodes, Segment
from isobatch.rollouts.staleness import due, put
from isobatch.settings.config import Config, Hypers
from isobatch.training.host_functions import CompiledFunctions, Shapes, looks, split, split_keys
from isobatch.training.sharding import READ, WHOLE, ShardLayout, env_axes


def rollout_axes(rollout: CollectedRollout) -> CollectedRollout:
    """The axes of environments in a rollout [T, N, ...]."""
    value = None if rollout.value is None else 1
    return CollectedRollout.of_leaves(
        obs=1, last_obs=0, action=1, behavior=1, reward=1, terminated=1, truncated=1, final_value=1, value=value
    )


class ShardedFunctions(CompiledFunctions):
    """Acting as without shards; what concerns all environments is computed for each shard, where the layout has it."""

    def __init__(
        self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers, layout: ShardLayout
    ) -> None:
        self.layout = layout
        super().__init__(config, env, states, hypers, layout.local_envs(config.num_envs))

    def compile_learning(self, states: TrainState, hypers: Hypers, keys: Keys, rollout: CollectedRollout) -> None:
        config, layout, number = self.config, self.layout, np.int32(0)
        self.keys = layout.compiled(partial(split_keys, self.num_groups), (WHOLE,), 0, (WHOLE, READ), (states.key,))
        policy = (states.networks, states.obs_moments, hypers.obs_clip)
        before = (*policy, states.envs.episodes, states.envs.state.fills_in, self.of_all_processes(rollout))
        ins, outs = (WHOLE, WHOLE, WHOLE, 0, 0, rollout_axes(rollout)), (1, READ, WHOLE, 0, 0)
        process_all = layout.compiled(self.process_one, ins, 0, outs, before)
        self.process = lambda *args: ProcessedRollout(*process_all(*args))
        segment = process_all.out_info[0]
        axes = env_axes(states).learning
        learner, others, phase = split(axes)
        learn_all = layout.compiled(
            self.learn_one,
            (learner, others, phase, 1, WHOLE, WHOLE),
            1,
            (axes, READ, READ),
            (*split(states.learning), segment, hypers, keys, number),
            donate=2,
        )
        self.learn = lambda *args: learn_all(*args[:-2], args[-1], args[-2])
        if states.queue is not None:
            take, store = (partial(function, staleness=config.staleness) for function in (due, put))
            taken = layout.compiled(lambda *args: (take(*args),), (2,), 1, (1,), (states.queue, number))
            self.due = lambda *args: taken(*args)[0]
            stored = layout.compiled(
                lambda *args: (store(*args),), (2, 1), 1, (2,), (states.queue, segment, number), donate=0
            )
            self.put = lambda *args: stored(*args)[0]

    def process_one(
        self,
        networks: Networks,
        moments: Moments | None,
        clip: Array,
        episodes: OpenEpisodes,
        fills_in: Array,
        rollout: CollectedRollout,
    ) -> tuple[Segment, EpisodeSums, Moments | None, OpenEpisodes, Array]:
        """Of one shard of a seed."""
        whole, across = self.config.complete_episodes, axes_of(self.config.num_shards)
        after = process(whole, self.env, networks, moments, clip, episodes, fills_in, rollout, across)
        return after.segment, after.episodes, after.obs_moments, after.open_episodes, after.fills_in

    def of_all_processes(self, rollout: CollectedRollout) -> CollectedRollout:
        """The shapes of a rollout of all environments, from those of the ones here."""

        def widened(axis: int, branch: Shapes) -> Shapes:
            def one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
                shape = list(leaf.shape)
                shape[axis + 1] = self.config.num_envs
                return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)

            return jax.tree.map(one, branch)

        return jax.tree.map(widened, rollout_axes(rollout), rollout)


_COMPILED: dict[tuple, CompiledFunctions] = {}


def functions_for(
    config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers, layout: ShardLayout | None
) -> CompiledFunctions:
    """Compiled once for environments that look alike, whatever they are called."""
    key = (*looks(config, env, states), layout)
    if key not in _COMPILED:
        if layout is None:
            functions = CompiledFunctions(config.static, env, states, hypers, LocalEnvs(config.num_envs))
        else:
            functions = ShardedFunctions(config.static, env, states, hypers, layout)
        _COMPILED[key] = functions
    return _COMPILED[key]
