"""The program of environments that step outside: rollouts in NumPy, learning compiled.

With stale data an iteration collects one rollout and learns from another, so both happen at once; every value that
either of them needs is fixed before it starts, so the results are those of one after the other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isobatch.envs.host_interface import HostEnvironment
from isobatch.learning.iteration import Keys
from isobatch.learning.state import Learning, TrainState
from isobatch.rollouts.acting import Policy
from isobatch.rollouts.actors.interface import LocalBackend, Place
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.collector import Collecting
from isobatch.rollouts.host_rollout import ProcessedRollout, replaced
from isobatch.rollouts.segment import EnvCarry, Segment
from isobatch.settings.config import Config, Hypers
from isobatch.training.host_functions import split
from isobatch.training.host_sharding import functions_for, rollout_axes
from isobatch.training.iterated_program import IteratedProgram
from isobatch.training.program import Supervision
from isobatch.training.sharding import ShardLayout, env_axes, local_copy, local_part


class HostProgram(IteratedProgram):
    """Many seeds advance many iterations in one call (`program.Program`)."""

    def __init__(
        self,
        config: Config,
        env: HostEnvironment,
        states: TrainState,
        hypers: Hypers,
        log_interval: int,
        overlap: bool = True,
        layout: ShardLayout | None = None,
    ) -> None:
        self.functions, self.config, self.env = functions_for(config, env, states, hypers, layout), config, env
        self.layout = layout
        self.log_interval, self.overlap = log_interval, overlap
        self.backend: LocalBackend | None = None
        self._supervision = Supervision()

    @property
    def names(self) -> tuple[str, ...]:
        return self.functions.names

    def begin(self, states: TrainState, iteration: int, supervision: Supervision) -> TrainState:
        """Start the environments where the states say they stood; whether to stop is asked before each iteration."""
        self._supervision = supervision
        envs = local_part(states.envs, env_axes(states).envs)
        seeds = np.asarray(envs.state.run_seed)
        place = Place(self.env, self.config, seeds, self.functions.here, supervision.env_timeout)
        self.backend = LocalBackend(self.functions.acting, place, self.overlap)
        self.say_what_resuming_keeps(self.env)
        return replaced(states, envs=self.backend.open(envs, iteration, supervision.say))

    def end(self) -> None:
        if self.backend is not None:
            self.backend.close()

    def iterate(self, states: TrainState, hypers: Hypers, iteration: int) -> tuple[TrainState, np.ndarray, np.ndarray]:
        """One iteration of all seeds: collect and learn, at once where the data is stale."""
        functions, backend = self.functions, self.backend
        assert backend is not None
        number = jnp.int32(iteration)
        keys, policy, running = self.start_rollout(states, hypers, iteration)
        if not self.overlap:
            backend.wait(running)
        if states.queue is None:
            envs, processed = self.process(policy, *backend.wait(running))
            learning, metrics, finite = self.learn(states, processed.segment, hypers, number, keys)
            queue = None
        else:
            learning, metrics, finite = self.learn(states, functions.due(states.queue, number), hypers, number, keys)
            envs, processed = self.process(policy, *backend.wait(running))
            queue = functions.put(states.queue, processed.segment, number)
        state = replaced(
            states,
            learning=learning,
            envs=envs,
            obs_moments=processed.obs_moments,
            queue=queue,
            key=keys.next,
            iteration=states.iteration + 1,
        )
        episodes = np.stack([np.asarray(leaf) for leaf in jax.tree.leaves(processed.episodes)], axis=1)
        return state, np.concatenate([np.asarray(metrics), episodes], axis=1), np.asarray(finite)

    def start_rollout(self, states: TrainState, hypers: Hypers, iteration: int) -> tuple[Keys, Policy, Collecting]:
        """The keys of an iteration, the policy that acts in it, and its rollout, on its way in another thread."""
        functions, backend = self.functions, self.backend
        assert backend is not None
        keys, group_keys = functions.keys(states.key)
        policy = (states.networks, states.obs_moments, hypers.obs_clip)
        acting = policy
        if self.layout is not None:
            acting = (*local_copy(policy[:2]), policy[2])
            first_group = functions.num_groups * functions.here.first // self.config.num_envs
            group_keys = jnp.asarray(np.asarray(group_keys)[:, first_group:])
        running = backend.start(states.envs, acting, list(jnp.unstack(group_keys, axis=1)), iteration)
        return keys, policy, running

    def learn(
        self, states: TrainState, segment: Segment, hypers: Hypers, number: Array, keys: Keys
    ) -> tuple[Learning, Array, Array]:
        return self.functions.learn(*split(states.learning), segment, hypers, number, keys)

    def process(self, policy: Policy, envs: EnvCarry, rollout: CollectedRollout) -> tuple[EnvCarry, ProcessedRollout]:
        collected = (envs.episodes, envs.state.fills_in, rollout)
        if self.layout is not None:
            collected = self.layout.from_local(collected, (0, 0, rollout_axes(rollout)))
        processed: ProcessedRollout = self.functions.process(*policy, *collected)
        episodes = local_part(processed.open_episodes, 0)
        state = replaced(envs.state, fills_in=local_part(processed.fills_in, 0))
        return replaced(envs, state=state, episodes=episodes), processed
