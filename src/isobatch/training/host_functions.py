"""What is compiled of a run whose environments step outside: acting, processing a rollout, learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from isobatch.envs.host_interface import HostEnvironment
from isobatch.learning.iteration import Keys, iteration_keys, learn
from isobatch.learning.state import Learner, Learning, Phase, TrainState
from isobatch.networks.moments import Moments, RewardScale
from isobatch.rollouts.acting import Acting
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.compiling import compile_for
from isobatch.rollouts.env_groups import LocalEnvs
from isobatch.rollouts.host_rollout import PolicyOutput, process
from isobatch.rollouts.segment import Segment
from isobatch.rollouts.staleness import due, put
from isobatch.settings.config import Config, Hypers
from isobatch.settings.parsing import JsonMapping
from isobatch.training.custom_parts import learning_parts
from isobatch.training.program import EPISODES, all_finite, metric_vector

Others = tuple[RewardScale | None, Moments]  # what changes besides the learner and the phase
Shapes: TypeAlias = PyTree[jax.ShapeDtypeStruct]


class CompiledFunctions:
    """The compiled functions of a run, for all seeds at once. Called with arrays of other shapes they fail."""

    names: tuple[str, ...]  # of the metrics

    def __init__(
        self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers, here: LocalEnvs
    ) -> None:
        self.config, self.env, self.here = config, env, here
        self.acting = Acting(env, here, (states.networks, states.obs_moments, hypers.obs_clip))
        self.num_groups = self.acting.num_groups * (config.num_envs // here.count)  # in all processes, of all actors
        keys = jax.eval_shape(jax.vmap(partial(split_keys, self.num_groups)), states.key)[0]
        raw, steps = self.acting.raw, config.num_steps
        rollout = rollout_shapes(steps, raw(steps, here.count), raw(here.count), self.acting.output)
        self.compile_learning(states, hypers, keys, rollout)

    def compile_learning(self, states: TrainState, hypers: Hypers, keys: Keys, rollout: CollectedRollout) -> None:
        """The functions that concern all environments of the run, from the shapes of a rollout of those here."""
        config, env, number = self.config, self.env, jnp.int32(0)
        networks, moments, clip = states.networks, states.obs_moments, hypers.obs_clip
        self.keys = compile_for(jax.vmap(partial(split_keys, self.num_groups)), states.key)
        process_all = jax.vmap(partial(process, config.complete_episodes, env))
        before = (networks, moments, clip, states.envs.episodes, states.envs.state.fills_in, rollout)
        self.process = compile_for(process_all, *before)
        segment = jax.eval_shape(process_all, *before).segment
        self.learn = compile_for(self._learn, *split(states.learning), segment, hypers, number, keys, donate=2)
        if states.queue is not None:
            take = jax.vmap(partial(due, staleness=config.staleness), in_axes=(0, None))
            store = jax.vmap(partial(put, staleness=config.staleness), in_axes=(0, 0, None))
            self.due = compile_for(take, states.queue, number)
            self.put = compile_for(store, states.queue, segment, number, donate=0)

    def _learn(
        self,
        learner: Learner,
        others: Others,
        phase: Phase | None,
        segment: Segment,
        hypers: Hypers,
        iteration: Array,
        keys: Keys,
    ) -> tuple[Learning, Array, Array]:
        """The phase is large, and its memory is used again; of the rest the old values may still be needed.

        In another order of its arguments it is another program to XLA, with other last bits.
        """
        one = jax.vmap(self.learn_one, in_axes=(0, 0, 0, 0, 0, 0, None))
        return one(learner, others, phase, segment, hypers, keys, iteration)

    def learn_one(
        self,
        learner: Learner,
        others: Others,
        phase: Phase | None,
        segment: Segment,
        hypers: Hypers,
        keys: Keys,
        iteration: Array,
    ) -> tuple[Learning, Array, Array]:
        """Of one seed."""
        before = Learning(learner, *others, phase)
        after, metrics = learn(self.config, before, segment, hypers, iteration, keys)
        self.names = (*sorted(metrics), *EPISODES)  # told by the trace
        return after, metric_vector(metrics), all_finite(after.learner.networks)


def split(learning: Learning) -> tuple[Learner, Others, Phase | None]:
    """The phase by itself, since its memory alone is given away."""
    return learning.learner, (learning.reward_scale, learning.advantage_moments), learning.phase


def rollout_shapes(steps: int, obs: Shapes, last_obs: Shapes, output: PolicyOutput) -> CollectedRollout:
    """A rollout of shapes and types [S, T, N, ...], from those of one step [S, N, ...]."""

    def over_time(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((leaf.shape[0], steps, *leaf.shape[1:]), leaf.dtype)

    shape = obs.shape[:3]
    numbers: Shapes = jax.ShapeDtypeStruct(shape, jnp.float32)
    flags: Shapes = jax.ShapeDtypeStruct(shape, bool)
    whole: PolicyOutput = jax.tree.map(over_time, output)
    return CollectedRollout(
        obs, last_obs, whole.action, whole.behavior, numbers, flags, flags, final_value=numbers, value=whole.value
    )


def split_keys(groups: int, key: Array) -> tuple[Keys, Array]:
    """The keys of an iteration, and one for each group of environments."""
    keys = iteration_keys(key)
    return keys, jax.random.key_data(jax.random.split(keys.rollout, groups))


def looks(config: Config, env: HostEnvironment, states: TrainState) -> tuple[Hashable, ...]:
    """What compiled functions depend on: equal for environments that look alike, whatever they are called."""
    nameless = dataclasses.replace(
        config.static, env="", env_kwargs=JsonMapping("{}"), vectorization="sync", schedule="free"
    )
    spaces = (env.obs_shape, env.obs_dtype, env.action_space, env.max_steps, env.autoreset, env.in_parallel)
    return nameless, learning_parts(config), spaces, states.iteration.shape[0]
