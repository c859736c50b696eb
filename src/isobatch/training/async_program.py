"""The program of actors: they collect while the learner learns, and no sample is older than `max_lag`.

The learner takes K rollouts that the ledger chooses, learns from them and publishes the next version of the policy.
Everything else happens in the threads of the actors. The state of a run is what is known after the rollouts that were
used: what was collected beyond is collected again after a resume, by policies that the state keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.learning.state import TrainState
from isobatch.rollouts.actors.interface import Backend, Place, PolicyVersion
from isobatch.rollouts.actors.kinds import maker_of
from isobatch.rollouts.actors.ledger import FixedOrder, FreeOrder, Ledger, LedgerEntry, Order, Piece, RecordedOrder
from isobatch.rollouts.actors.loop import ActorLoop, Content, Standing
from isobatch.rollouts.actors.state import PastPolicy
from isobatch.rollouts.collector import AnyArray
from isobatch.rollouts.env_groups import LocalEnvs
from isobatch.rollouts.host_rollout import replaced
from isobatch.settings.config import Config, Hypers
from isobatch.training.actor_functions import RolloutFunctions, actor_functions_for
from isobatch.training.host_functions import split
from isobatch.training.iterated_program import IteratedProgram
from isobatch.training.program import Supervision


class AsyncProgram(IteratedProgram):
    """Many seeds advance many iterations in one call (`program.Program`)."""

    def __init__(
        self, config: Config, env: HostEnvironment, states: TrainState, hypers: Hypers, log_interval: int
    ) -> None:
        self.functions, self.config, self.env = actor_functions_for(config, env, states, hypers), config, env
        self.log_interval = log_interval
        self._supervision = Supervision()
        self._ledger: Ledger[PolicyVersion, Content] | None = None
        self._actors: list[ActorLoop] = []
        self._standings: list[Standing] = []  # after the rollouts that were used
        self._past: list[PastPolicy] = []  # of the last L versions
        self._begun = 0.0  # when the actors were let run

    @property
    def names(self) -> tuple[str, ...]:
        return self.functions.names

    def begin(self, states: TrainState, iteration: int, supervision: Supervision) -> TrainState:
        """Start the environments where the states say they stood."""
        self._supervision, config = supervision, self.config
        self.say_what_resuming_keeps(self.env)
        self._ledger = Ledger(
            config.actors,
            config.lag_iterations,
            order_of(config, supervision.recorded),
            config.num_iterations,
            iteration,
        )
        self._standings = standings_of(states, config.actors)
        assert states.actors is not None
        self._past = list(states.actors.past)
        make = self._maker(states)
        replays = self.env.replays and not config.complete_episodes
        for index, standing in enumerate(self._standings):
            one = ActorLoop(index, self._ledger, make, standing, replays, supervision.say)
            self._actors.append(one)
        for actor in self._actors:
            actor.open()
        self._standings = [actor.standing for actor in self._actors]
        return self.settled(states)

    def _maker(self, states: TrainState) -> Callable[[int], Backend]:
        """Makes the backend of an actor."""
        width = self.config.num_envs // self.config.actors
        seeds = np.asarray(states.envs.state.run_seed)

        def place(index: int) -> Place:
            envs = LocalEnvs(width, index * width)
            return Place(self.env, self.config, seeds, envs, self._supervision.env_timeout)

        clip = jnp.zeros(len(seeds))
        policy = (states.networks, states.obs_moments, clip)
        functions, kind = self.functions, self._supervision.actor_kind
        return maker_of(kind, self.env, self.config.actors, place, functions.acting, policy, functions.rollout)

    def _start(self, states: TrainState, hypers: Hypers, iteration: int) -> None:
        """Publish the policies that may be needed, and let the actors run."""
        assert self._ledger is not None
        policies = [*self._past, (states.networks, states.obs_moments)]
        for version, policy in enumerate(policies, start=iteration - len(self._past)):
            if version >= 0:
                self._ledger.publish(version, PolicyVersion((*policy, hypers.obs_clip)))
        for actor in self._actors:
            actor.start(RolloutFunctions(self.functions, hypers))
        self._begun = time.perf_counter()

    def end(self) -> None:
        if self._ledger is not None:
            self._ledger.end()
        for actor in self._actors:
            actor.interrupt()
        for actor in self._actors:
            actor.close(self._supervision.env_timeout + 1)

    def iterate(
        self, states: TrainState, hypers: Hypers, iteration: int
    ) -> tuple[TrainState, np.ndarray, np.ndarray] | None:
        """Learn from K rollouts."""
        ledger, functions = self._ledger, self.functions
        assert ledger is not None
        if not self._begun:
            self._start(states, hypers, iteration)
        pieces = ledger.draw(self._supervision.is_stopped)
        if pieces is None:
            return None
        contents = [piece.content for piece in pieces]
        lags = np.array([iteration - piece.task.version for piece in pieces], np.float32)
        seen = None if contents[0].obs is None else [content.obs for content in contents]
        segment, moments = functions.join([content.segment for content in contents], lags, states.obs_moments, seen)
        keys = functions.update_keys(states.key)
        learning, metrics, finite = functions.learn(
            *split(states.learning), segment, hypers, jnp.int32(iteration), keys
        )
        before = (states.networks, states.obs_moments)
        states = replaced(states, learning=learning, obs_moments=moments, key=keys.next, iteration=states.iteration + 1)
        table = np.asarray(metrics)  # waits until it is computed: an actor that took it before would wait in its place
        ledger.publish(iteration + 1, PolicyVersion((states.networks, moments, hypers.obs_clip)))
        self._past = [*self._past, before][len(self._past) + 1 - self.config.lag_iterations :]
        for piece in pieces:
            self._standings[piece.task.actor] = piece.content.after
        self._supervision.consumed([entry_of(iteration, piece) for piece in pieces])
        sums = [np.stack([np.asarray(leaf) for leaf in jax.tree.leaves(c.episodes)], axis=1) for c in contents]
        return states, np.concatenate([table, np.sum(sums, axis=0)], axis=1), np.asarray(finite)

    def settled(self, states: TrainState) -> TrainState:
        """With what is known of the actors after the rollouts that were used."""
        return with_standings(states, self._standings, self._past)

    @property
    def waited(self) -> tuple[float, float]:
        """Seconds that the learner waited for rollouts, and that an actor in the mean waited for leave to go on."""
        assert self._ledger is not None
        return self._ledger.learner_waited, self._ledger.actors_waited / self.config.actors

    def interpretation(self) -> str:
        """Who waited for whom."""
        seconds = max(time.perf_counter() - self._begun, 1e-9)
        learner, actor = (f"{min(part / seconds, 1):.0%}" for part in self.waited)
        return f"the learner waited {learner} of the time for rollouts, an actor {actor} for the learner."


def order_of(config: Config, recorded: Sequence[LedgerEntry] | None) -> Order:
    if recorded is not None:
        return RecordedOrder(recorded)
    return FixedOrder() if config.schedule == "fixed" else FreeOrder()


def entry_of(update: int, piece: Piece[PolicyVersion, Content]) -> LedgerEntry:
    return LedgerEntry(update, piece.task.actor, piece.task.number, piece.task.version, piece.restarts)


def standings_of(states: TrainState, actors: int) -> list[Standing]:
    """Where each of K actors stands, from the states of all of them."""
    state, envs = states.actors, jax.tree.map(np.asarray, states.envs)
    assert state is not None
    width, scale = envs.obs.shape[1] // actors, states.learning.reward_scale
    discounted = np.zeros(envs.obs.shape[:2], np.float32) if scale is None else np.asarray(scale.discounted_return)
    standings = []
    for index in range(actors):
        columns = slice(index * width, (index + 1) * width)
        carry = replaced(
            envs,
            state=replaced(
                envs.state,
                episode=envs.state.episode[:, columns],
                fills_in=envs.state.fills_in[:, columns],
                actions=envs.state.actions[:, :, columns],
            ),
            obs=envs.obs[:, columns],
            episodes=jax.tree.map(lambda leaf, columns=columns: leaf[:, columns], envs.episodes),
        )
        number = int(np.asarray(state.rollouts)[0, index])
        standings.append(Standing(carry, state.key[:, index], number, discounted[:, columns]))
    return standings


def with_standings(states: TrainState, standings: list[Standing], past: Sequence[PastPolicy]) -> TrainState:
    """The states of all actors, from where each stands."""
    carries = [standing.envs for standing in standings]
    longest = max(carry.state.actions.shape[1] for carry in carries)

    def padded(actions: np.ndarray) -> np.ndarray:
        """In front, since the last ones belong to the episode in progress."""
        missing = [(0, 0)] * actions.ndim
        missing[1] = (longest - actions.shape[1], 0)
        return np.pad(actions, missing)

    def side_by_side(*leaves: AnyArray) -> np.ndarray:
        return np.concatenate([np.asarray(leaf) for leaf in leaves], axis=1)

    envs = replaced(
        carries[0],
        state=replaced(
            carries[0].state,
            episode=side_by_side(*(carry.state.episode for carry in carries)),
            fills_in=side_by_side(*(carry.state.fills_in for carry in carries)),
            actions=np.concatenate([padded(np.asarray(carry.state.actions)) for carry in carries], axis=2),
        ),
        obs=side_by_side(*(carry.obs for carry in carries)),
        episodes=jax.tree.map(side_by_side, *(carry.episodes for carry in carries)),
    )
    numbers = np.array([standing.number for standing in standings], np.int32)
    actors = replaced(
        states.actors,
        key=jnp.stack([standing.key for standing in standings], axis=1),
        rollouts=np.broadcast_to(numbers, (envs.obs.shape[0], len(numbers))),
        past=tuple(past),
    )
    learning = states.learning
    if learning.reward_scale is not None:
        discounted = side_by_side(*(standing.discounted for standing in standings))
        learning = replaced(learning, reward_scale=replaced(learning.reward_scale, discounted_return=discounted))
    return replaced(states, learning=learning, envs=envs, actors=actors)
