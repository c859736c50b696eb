"""What is compiled of a run whose environments step outside: acting, processing a rollout, learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from isobatch.envs.host_interface import HostEnvironment, XlaStepper
from isobatch.learning.iteration import Keys, iteration_keys, learn
from isobatch.learning.state import Learner, Learning, Phase, TrainState
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.env_groups import group_columns
from isobatch.rollouts.host_rollout import PolicyOutput, choose, process, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.scan_steps import scan_steps
from isobatch.rollouts.segment import Segment
from isobatch.rollouts.staleness import due, put
from isobatch.settings.config import Config, Hypers
from isobatch.settings.parsing import JsonMapping
from isobatch.training.own_parts import learning_parts
from isobatch.training.program import COMPILER_OPTIONS, EPISODES, all_finite, metric_vector
from isobatch.training.program_cache import not_kept


class CompiledFunctions:
    """The compiled functions of a run, for all seeds at once. Called with arrays of other shapes they fail."""

    def __init__(self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers) -> None:
        self.config, self.env = config, env
        seeds, width = states.iteration.shape[0], config.num_envs
        groups = group_columns(env, width)
        networks, moments, clip, number = states.networks, states.obs_moments, hypers.obs_clip, jnp.int32(0)

        def raw(*shape: int) -> Any:
            return jax.ShapeDtypeStruct((seeds, *shape, *env.obs_shape), env.obs_dtype)

        self.keys = compile_for(jax.vmap(partial(split_keys, len(groups))), states.key)
        keys, group_keys = jax.eval_shape(jax.vmap(partial(split_keys, len(groups))), states.key)
        one_key = jax.eval_shape(lambda k: k[:, 0], group_keys)
        # Flat: to take networks apart at every step would take as long as to compute with small ones.
        leaves, self._acting = jax.tree.flatten((networks, moments, clip))
        # The groups are equal: one program serves both.
        self._inputs = jax.eval_shape(lambda *args: args, leaves, one_key, raw(groups[0].stop))
        self.choose_packed = compile_for(self._choose_packed, *self._inputs)
        self.value = compile_for(jax.vmap(value), networks, moments, clip, raw(width))
        output = jax.eval_shape(self.choose, leaves, one_key, raw(width))[1]
        self.packing = Packing(jax.eval_shape(lambda o: jax.tree.map(lambda leaf: leaf[0], o), output))
        rollout = rollout_shapes(config.num_steps, raw(config.num_steps, width), raw(width), output)
        process_all = jax.vmap(partial(process, config.complete_episodes, env))
        before = (networks, moments, clip, states.envs.episodes, states.envs.state.fills_in, rollout)
        self.process = compile_for(process_all, *before)
        segment = jax.eval_shape(process_all, *before).segment
        self.learn = compile_for(self._learn, *split(states.learning), segment, hypers, number, keys, donate=2)
        one_learning, one_hypers = jax.tree.map(lambda leaf: leaf[0], (states.learning, hypers))
        one_segment, one_keys = jax.eval_shape(lambda s, k: jax.tree.map(lambda leaf: leaf[0], (s, k)), segment, keys)
        metrics = jax.eval_shape(partial(learn, config), one_learning, one_segment, one_hypers, number, one_keys)[1]
        self.names = (*sorted(metrics), *EPISODES)
        if states.queue is not None:
            take = jax.vmap(partial(due, staleness=config.staleness), in_axes=(0, None))
            store = jax.vmap(partial(put, staleness=config.staleness), in_axes=(0, 0, None))
            self.due = compile_for(take, states.queue, number)
            self.put = compile_for(store, states.queue, segment, number, donate=0)

    def scan_steps(self, xla_steppers: list[XlaStepper], length: int) -> Callable[..., Any]:
        """`Actor.scan_steps`, of leaves too, for these very environments: their addresses are in the program."""
        leaves, key, obs = self._inputs
        handles, groups = [stepper.handle for stepper in xla_steppers], len(xla_steppers)
        steps = partial(scan_steps, xla_steppers, length, self.choose)
        with not_kept():
            compiled = compile_for(steps, leaves, handles, [key] * groups, [obs] * groups)
        return lambda leaves, keys, obs: compiled(leaves, handles, keys, obs)

    def choose(self, leaves: list[Array], keys: Array, obs: Array) -> tuple[Array, PolicyOutput]:
        networks, moments, clip = jax.tree.unflatten(self._acting, leaves)
        return jax.vmap(partial(choose, self.env))(networks, moments, clip, keys, obs)

    def _choose_packed(self, leaves: list[Array], keys: Array, obs: Array) -> tuple[Array, Array]:
        keys, output = self.choose(leaves, keys, obs)
        return keys, jax.vmap(packed)(output)

    def _learn(
        self,
        learner: Learner,
        others: tuple[Any, Any],
        phase: Phase | None,
        segment: Segment,
        hypers: Hypers,
        iteration: Array,
        keys: Keys,
    ) -> tuple[Learning, Array, Array]:
        """The phase is large, and its memory is used again; of the rest the old values may still be needed."""

        def one(learner: Any, others: Any, phase: Any, segment: Segment, hypers: Hypers, keys: Keys) -> Any:
            reward_scale, advantage_moments = others
            before = Learning(learner, reward_scale, advantage_moments, phase)
            after, metrics = learn(self.config, before, segment, hypers, iteration, keys)
            return after, metric_vector(metrics), all_finite(after.learner.networks)

        return jax.vmap(one)(learner, others, phase, segment, hypers, keys)


def split(learning: Learning) -> tuple[Learner, tuple[Any, Any], Phase | None]:
    """The phase by itself, since its memory alone is given away."""
    return learning.learner, (learning.reward_scale, learning.advantage_moments), learning.phase


def compile_for(function: Callable[..., Any], *args: Any, donate: int | tuple[int, ...] = ()) -> Callable[..., Any]:
    """The function, compiled for arguments of these shapes."""
    options = COMPILER_OPTIONS if jax.default_backend() == "cpu" else None
    return jax.jit(function, donate_argnums=donate).lower(*args).compile(compiler_options=options)


def rollout_shapes(steps: int, obs: Any, last_obs: Any, output: PolicyOutput) -> CollectedRollout:
    """A rollout of shapes and types [S, T, N, ...], from those of one step [S, N, ...]."""

    def over_time(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct((leaf.shape[0], steps, *leaf.shape[1:]), leaf.dtype)

    shape = obs.shape[:3]
    numbers: Any = jax.ShapeDtypeStruct(shape, jnp.float32)
    flags: Any = jax.ShapeDtypeStruct(shape, bool)
    whole: PolicyOutput = jax.tree.map(over_time, output)
    return CollectedRollout(
        obs, last_obs, whole.action, whole.behavior, numbers, flags, flags, final_value=numbers, value=whole.value
    )


def split_keys(groups: int, key: Array) -> tuple[Keys, Array]:
    """The keys of an iteration, and one for each group of environments."""
    keys = iteration_keys(key)
    return keys, jax.random.key_data(jax.random.split(keys.rollout, groups))


_COMPILED: dict[tuple, CompiledFunctions] = {}


def functions_for(config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers) -> CompiledFunctions:
    """Compiled once for environments that look alike, whatever they are called."""
    nameless = dataclasses.replace(config.static, env="", env_kwargs=JsonMapping("{}"), vectorization="sync")
    looks = (env.obs_shape, env.obs_dtype, env.action_space, env.max_steps, env.autoreset, env.in_parallel)
    key = (nameless, learning_parts(config), looks, states.iteration.shape[0])
    if key not in _COMPILED:
        _COMPILED[key] = CompiledFunctions(config.static, env, states, hypers)
    return _COMPILED[key]
