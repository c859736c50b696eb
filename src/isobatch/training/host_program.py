"""The same face as `program.Program` for environments that step outside: rollouts in NumPy, learning compiled.

With stale data an iteration collects one rollout and learns from another, so both happen at once; every value that
either of them needs is fixed before it starts, so the results are those of one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isobatch.envs import env_of
from isobatch.envs.host_interface import HostEnvironment, XlaStepper
from isobatch.errors import RunError
from isobatch.learning.iteration import Keys, count_turns, iteration_keys, learn
from isobatch.learning.state import Learning, TrainState
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.moments import Moments
from isobatch.rollouts.collector import Actor, Collector
from isobatch.rollouts.compiled import EnvCarry, Segment
from isobatch.rollouts.env_groups import columns_of
from isobatch.rollouts.host import Finished, OpenEpisodes, PolicyOutput, Rollout, act, finish, replaced, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.scan_steps import stretch, stretch_length
from isobatch.rollouts.staleness import due, put
from isobatch.settings.config import Config, Hypers
from isobatch.settings.parsing import JsonMapping
from isobatch.training.chunks import COMPILER_OPTIONS, EPISODES, MAX_ROWS, Chunk, kind_of, row_ends


class StoppedError(RunError):
    """A call ended early: an environment failed, or somebody asked. `chunk` was completed before, up to `iteration`."""

    def __init__(self, fault: str | None, chunk: Chunk, iteration: int) -> None:
        super().__init__(fault or "stopped")
        self.fault, self.chunk, self.iteration = fault, chunk, iteration


class CompiledFunctions:
    """The compiled functions of a run, for all seeds at once. Called with arrays of other shapes they fail."""

    def __init__(self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers) -> None:
        self.config, self.env = config, env
        seeds, width = states.iteration.shape[0], config.num_envs
        halves = columns_of(env, width)
        networks, moments, clip, number = states.learner.networks, states.obs_moments, hypers.obs_clip, jnp.int32(0)

        def raw(*shape: int) -> Any:
            return jax.ShapeDtypeStruct((seeds, *shape, *env.obs_shape), env.obs_dtype)

        self.keys = compile_for(jax.vmap(partial(split_keys, len(halves))), states.key)
        keys, half_keys = jax.eval_shape(jax.vmap(partial(split_keys, len(halves))), states.key)
        one_key = jax.eval_shape(lambda k: k[:, 0], half_keys)
        # Flat: to take networks apart at every step would take as long as to compute with small ones.
        leaves, self._acting = jax.tree.flatten((networks, moments, clip))
        # The halves are equal: one program serves both.
        self._seen = jax.eval_shape(lambda *args: args, leaves, one_key, raw(halves[0].stop))
        self.act = compile_for(self._act, *self._seen)
        self.value = compile_for(jax.vmap(value), networks, moments, clip, raw(width))
        choice = jax.eval_shape(self.choose, leaves, one_key, raw(width))[1]
        self.packing = Packing(jax.eval_shape(lambda c: jax.tree.map(lambda leaf: leaf[0], c), choice))
        rollout = rollout_shapes(config.num_steps, raw(config.num_steps, width), raw(width), choice)
        finish_all = jax.vmap(partial(finish, config.complete_episodes, env))
        self.finish = compile_for(finish_all, networks, moments, clip, underway(states.envs), rollout)
        segment = jax.eval_shape(finish_all, networks, moments, clip, underway(states.envs), rollout).segment
        learning = (states.learner, (states.reward_scale, states.advantage_moments), states.phase)
        self.learn = compile_for(self._learn, *learning, segment, hypers, number, keys, donate=2)
        one = jax.tree.map(lambda leaf: leaf[0], (states.learning, hypers))
        one_segment, one_keys = jax.eval_shape(lambda s, k: jax.tree.map(lambda leaf: leaf[0], (s, k)), segment, keys)
        metrics = jax.eval_shape(partial(learn, config), one[0], one_segment, one[1], number, one_keys)[1]
        self.names = (*sorted(metrics), *EPISODES)
        if states.queue is not None:
            take = jax.vmap(partial(due, staleness=config.staleness), in_axes=(0, None))
            store = jax.vmap(partial(put, staleness=config.staleness), in_axes=(0, 0, None))
            self.due = compile_for(take, states.queue, number)
            self.put = compile_for(store, states.queue, segment, number, donate=0)

    def stretch(self, xla_steppers: list[XlaStepper], length: int) -> Callable[..., Any]:
        """`Actor.stretch`, of leaves too, for these very environments: their addresses are in the program."""
        leaves, key, obs = self._seen
        handles, halves = [inside.handle for inside in xla_steppers], len(xla_steppers)
        steps = compile_for(
            partial(stretch, xla_steppers, length, self.choose), leaves, handles, [key] * halves, [obs] * halves
        )
        return lambda leaves, keys, obs: steps(leaves, handles, keys, obs)

    def choose(self, leaves: list[Array], keys: Array, obs: Array) -> tuple[Array, PolicyOutput]:
        networks, moments, clip = jax.tree.unflatten(self._acting, leaves)
        return jax.vmap(partial(act, self.env))(networks, moments, clip, keys, obs)

    def _act(self, leaves: list[Array], keys: Array, obs: Array) -> tuple[Array, Array]:
        keys, choice = self.choose(leaves, keys, obs)
        return keys, jax.vmap(packed)(choice)

    def _learn(
        self, learner: Any, others: Any, phase: Any, segment: Segment, hypers: Hypers, iteration: Array, keys: Keys
    ) -> tuple[Learning, Array, Array]:
        """The phase is large, and its memory is used again; of the rest the old values may still be needed."""

        def one(learner: Any, others: Any, phase: Any, segment: Segment, hypers: Hypers, keys: Keys) -> Any:
            reward_scale, advantage_moments = others
            before = Learning(learner, reward_scale, advantage_moments, phase)
            after, metrics = learn(self.config, before, segment, hypers, iteration, keys)
            finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(after.learner.networks)]
            values = [jnp.asarray(metrics[name], jnp.float32) for name in sorted(metrics)]
            return after, jnp.stack(values), jnp.all(jnp.array(finite))

        return jax.vmap(one)(learner, others, phase, segment, hypers, keys)


def compile_for(function: Callable[..., Any], *args: Any, donate: int | tuple[int, ...] = ()) -> Any:
    """The function, compiled for arguments of these shapes."""
    options = COMPILER_OPTIONS if jax.default_backend() == "cpu" else None
    return jax.jit(function, donate_argnums=donate).lower(*args).compile(compiler_options=options)


def rollout_shapes(steps: int, obs: Any, last_obs: Any, choice: PolicyOutput) -> Any:
    """A rollout of shapes and types [S, T, N, ...], from those of one step [S, N, ...]."""

    def over_time(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct((leaf.shape[0], steps, *leaf.shape[1:]), leaf.dtype)

    shape = obs.shape[:3]
    numbers: Any = jax.ShapeDtypeStruct(shape, jnp.float32)
    flags: Any = jax.ShapeDtypeStruct(shape, bool)
    whole: PolicyOutput = jax.tree.map(over_time, choice)
    return Rollout(obs, last_obs, whole.action, whole.behavior, numbers, flags, flags, numbers, whole.value)


def underway(envs: EnvCarry) -> OpenEpisodes:
    return OpenEpisodes(envs.episode_return, envs.episode_length, envs.counts, envs.state.over)


def split_keys(halves: int, key: Array) -> tuple[Keys, Array]:
    """The keys of an iteration, and one for each half of the environments."""
    keys = iteration_keys(key)
    return keys, jax.random.key_data(jax.random.split(keys.rollout, halves))


def structure(config: Config, env: HostEnvironment) -> tuple:
    """What compiled functions depend on: environments that look alike share them, whatever they are called."""
    nameless = dataclasses.replace(config.static, env="", env_kwargs=JsonMapping("{}"), vectorization="sync")
    looks = (env.obs_shape, env.obs_dtype, env.action_space, env.max_steps, env.autoreset, env.in_parallel)
    return nameless, looks


_COMPILED: dict[tuple, CompiledFunctions] = {}


class HostProgram:
    """Many seeds advance many iterations in one call, as `program.Program` does it."""

    def __init__(
        self, config: Config, states: TrainState, hypers: Hypers, log_interval: int, overlap: bool = True
    ) -> None:
        env = env_of(config)
        key = (structure(config, env), states.iteration.shape[0])
        if key not in _COMPILED:
            _COMPILED[key] = CompiledFunctions(config.static, env, states, hypers)
        self.parts, self.config, self.env = _COMPILED[key], config, env
        self.log_interval, self.overlap = log_interval, overlap
        self.collector: Collector | None = None
        self._stretch: Callable[..., Any] | None = None  # where environments can be stepped from inside
        self._at_once = stretch_length(config.num_steps)
        self._is_stopped: Callable[[], bool] = lambda: False

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts.names

    def begin(
        self,
        states: TrainState,
        iteration: int,
        say: Callable[[str], None],
        time_limit: float,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> TrainState:
        """Start the environments where the states say they stood. `is_stopped` is asked before each iteration."""
        self._is_stopped = is_stopped
        envs = jax.tree.map(np.asarray, states.envs)
        seeds = np.asarray(envs.state.run_seed)
        self.collector = Collector(self.env, self.config, seeds, time_limit, self.overlap)
        if not self.env.replays:
            say(
                f"note: resuming a run of {self.config.env} starts new episodes; weights, optimizer, normalizers and "
                "counters are exact."
            )
        states = replaced(states, envs=self.collector.open(envs, iteration, say))
        xla_steppers = self.collector.xla_steppers()
        self._stretch = None if xla_steppers is None else self.parts.stretch(xla_steppers, self._at_once)
        return states

    def end(self) -> None:
        if self.collector is not None:
            self.collector.close()

    def __call__(self, states: TrainState, hypers: Hypers, iteration: int, rows: int) -> Chunk:
        """Advance from `iteration` by `rows` rows, which end at multiples of the log interval."""
        finite: Any = np.ones(states.iteration.shape[0], bool)
        table: Any = np.zeros((len(finite), MAX_ROWS, len(self.names)), np.float32)
        for row, end in enumerate(row_ends(iteration, rows, self.log_interval, self.config.num_iterations)):
            begin, sums = iteration, np.zeros(len(self.names))
            while iteration < end:
                fault = None
                try:
                    after = None if self._is_stopped() else self.iterate(states, hypers, iteration)
                except RunError as error:
                    after, fault = None, str(error)
                if after is None:
                    if iteration > begin:
                        table[:, row] = self.means(sums, begin, iteration)
                    raise StoppedError(fault, Chunk(states, table, finite), iteration)
                states, metrics, finite = after
                iteration, sums = iteration + 1, sums + metrics
            table[:, row] = self.means(sums, begin, iteration)
        return Chunk(states, table, finite)

    def means(self, sums: Any, begin: int, end: int) -> np.ndarray:
        """Over the iterations that had a policy update, or an auxiliary phase; sums over episodes."""
        counts = np.array([1, *(int(n) for n in count_turns(self.config, begin, end))])
        return sums / np.maximum(counts, 1)[[kind_of(name) for name in self.names]]

    def iterate(self, states: TrainState, hypers: Hypers, iteration: int) -> tuple[TrainState, np.ndarray, np.ndarray]:
        """One iteration of all seeds: collect and learn, at once where the data is stale."""
        parts, collector = self.parts, self.collector
        assert collector is not None
        networks, moments, clip = states.learner.networks, states.obs_moments, hypers.obs_clip
        keys, half_keys = parts.keys(states.key)
        number = jnp.int32(iteration)
        seeing = (networks, moments, clip)
        leaves = jax.tree.leaves(seeing)
        actor = Actor(partial(parts.act, leaves), partial(parts.value, *seeing), parts.packing)
        if self._stretch is not None:
            actor = actor._replace(stretch=partial(self._stretch, leaves), at_once=self._at_once)
        running = collector.start(states.envs, actor, list(jnp.unstack(half_keys, axis=1)), iteration)
        if not self.overlap:
            collector.wait(running)
        if states.queue is None:
            envs, finished = self.finished(networks, moments, clip, *collector.wait(running))
            learned = self.learn(states, finished.segment, hypers, number, keys)
            queue = None
        else:
            learned = self.learn(states, parts.due(states.queue, number), hypers, number, keys)
            envs, finished = self.finished(networks, moments, clip, *collector.wait(running))
            queue = parts.put(states.queue, finished.segment, number)
        learning, metrics, finite = learned
        state = replaced(
            states,
            learner=learning.learner,
            envs=envs,
            obs_moments=finished.obs_moments,
            reward_scale=learning.reward_scale,
            advantage_moments=learning.advantage_moments,
            queue=queue,
            phase=learning.phase,
            key=keys.next,
            iteration=states.iteration + 1,
        )
        episodes = np.stack([np.asarray(leaf) for leaf in jax.tree.leaves(finished.episodes)], axis=1)
        return state, np.concatenate([np.asarray(metrics), episodes], axis=1), np.asarray(finite)

    def learn(self, states: TrainState, segment: Segment, hypers: Hypers, number: Array, keys: Keys) -> Any:
        others = (states.reward_scale, states.advantage_moments)
        return self.parts.learn(states.learner, others, states.phase, segment, hypers, number, keys)

    def finished(
        self, networks: ActorCritic, moments: Moments | None, clip: Any, envs: EnvCarry, rollout: Rollout
    ) -> tuple[EnvCarry, Finished]:
        found: Finished = self.parts.finish(networks, moments, clip, underway(envs), rollout)
        total, length, counts, over = (np.asarray(leaf) for leaf in jax.tree.leaves(found.underway))
        state = replaced(envs.state, over=over)
        return replaced(envs, state=state, episode_return=total, episode_length=length, counts=counts), found
