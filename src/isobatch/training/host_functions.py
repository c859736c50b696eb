"""What is compiled of a run whose environments step outside: acting, processing a rollout, learning."""

from __future__ import annotations

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
from isobatch.rollouts.env_groups import OwnEnvs, group_columns
from isobatch.rollouts.host_rollout import PolicyOutput, choose, process, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.scan_steps import scan_steps
from isobatch.rollouts.segment import Segment
from isobatch.rollouts.staleness import due, put
from isobatch.settings.config import Config, Hypers
from isobatch.training.program import COMPILER_OPTIONS, EPISODES, all_finite, metric_vector
from isobatch.training.program_cache import not_kept


class CompiledFunctions:
    """The compiled functions of a run, for all seeds at once. Called with arrays of other shapes they fail."""

    names: tuple[str, ...]  # of the metrics

    def __init__(self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers, here: OwnEnvs) -> None:
        self.config, self.env, self.here = config, env, here
        seeds, width = states.iteration.shape[0], here.count
        groups = group_columns(env, width, here.shards)
        self.num_groups = len(groups) * (config.num_envs // width)  # in all processes
        networks, moments, clip = states.networks, states.obs_moments, hypers.obs_clip

        def raw(*shape: int) -> Any:
            return jax.ShapeDtypeStruct((seeds, *shape, *env.obs_shape), env.obs_dtype)

        keys, group_keys = jax.eval_shape(jax.vmap(partial(split_keys, self.num_groups)), states.key)
        one_key = jax.eval_shape(lambda k: k[:, 0], group_keys)
        # Flat: to take networks apart at every step would take as long as to compute with small ones.
        leaves, self._acting = jax.tree.flatten((networks, moments, clip))
        # The groups are equal: one program serves both.
        self._inputs = jax.eval_shape(lambda *args: args, leaves, one_key, raw(groups[0].stop))
        self.choose_packed = compile_for(self._choose_packed, *self._inputs)
        values = jax.eval_shape(lambda *args: args, networks, moments, clip, raw(width))
        self.value = compile_for(jax.vmap(value), *values)
        output = jax.eval_shape(self.choose, leaves, one_key, raw(width))[1]
        self.packing = Packing(jax.eval_shape(lambda o: jax.tree.map(lambda leaf: leaf[0], o), output))
        rollout = rollout_shapes(config.num_steps, raw(config.num_steps, width), raw(width), output)
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
        one = jax.vmap(self.learn_one, in_axes=(0, 0, 0, 0, 0, 0, None))
        return one(learner, others, phase, segment, hypers, keys, iteration)

    def learn_one(
        self,
        learner: Learner,
        others: tuple[Any, Any],
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
