"""Rollouts of environments that step outside JAX: act, step, reset where an episode ended, watch over time and faults.

Environments that step by themselves, in processes or in threads of C++, are run in two groups: while one steps, the
policy acts for the other. Each group has a random key of its own for each step, and outcomes are received in a fixed
order, so results do not depend on who was faster. Where they can be stepped from inside a compiled program, many steps
are one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Array

from isobatch.envs.host_interface import FaultError, HostEnvironment, VectorStep, XlaStepper
from isobatch.envs.watchdog import START_SECONDS, HangError, Watched, closed_in_time
from isobatch.errors import RunError, first_line
from isobatch.formatting import Say
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.env_groups import EnvGroup, LocalEnvs, group_columns
from isobatch.rollouts.host_rollout import PolicyOutput, replaced
from isobatch.rollouts.packing import Packing
from isobatch.rollouts.replay import new_episodes, remembered, replay
from isobatch.rollouts.scan_steps import ScannedSteps
from isobatch.rollouts.segment import EnvCarry
from isobatch.settings.config import Config

T = TypeVar("T")
Beat = Callable[[], None]
AnyArray = Array | np.ndarray
GroupKeys = Sequence[AnyArray]  # of each group of environments, [S, ...]
Scanned = tuple[list[Array], list[Array], ScannedSteps]  # keys and observations of each group, and the steps
Collecting = Watched[tuple[EnvCarry, CollectedRollout]]


class Actor(NamedTuple):
    """The policies of all seeds at once, compiled."""

    choose: Callable[
        [AnyArray, np.ndarray], tuple[AnyArray, AnyArray]
    ]  # keys, observations -> keys, packed outputs [S, n, W]
    value: Callable[[np.ndarray], AnyArray]  # observations [S, N, ...] -> values [S, N]
    packing: Packing  # of `PolicyOutput`
    scan_steps: Callable[[GroupKeys, list[np.ndarray]], Scanned] | None = None  # keys, observations of each group
    at_once: int = 1  # K


class Collector:
    """The running environments of one run: S seeds of N environments each, or those of them that step `here`."""

    def __init__(
        self,
        env: HostEnvironment,
        config: Config,
        seeds: np.ndarray,
        time_limit: float,
        overlap: bool = True,
        here: LocalEnvs | None = None,
    ) -> None:
        self.env, self.config, self.seeds, self.here = env, config, seeds, here or LocalEnvs(config.num_envs)
        self._replays = env.replays and not config.complete_episodes  # which begin each iteration with a reset
        self._time_limit, self._overlap = time_limit, overlap
        self._groups: list[EnvGroup] = []
        self._step = 0  # of the run, and of each environment
        self._at_once = 1  # steps that are not told apart while they happen
        self._given_up = False
        self._interrupted = False

    def open(self, carry: EnvCarry, iteration: int, say: Say) -> EnvCarry:
        """Start the environments where `carry` says they stood, or in new episodes where that cannot be."""
        self._step = iteration * self.config.num_steps
        if not self.env.replays:
            carry = new_episodes(carry, np.zeros_like(carry.episodes.counts) | (iteration > 0))
            # Its resets draw from the environment's own generator: a resumed run must not draw the same again.
            carry = replaced(carry, state=replaced(carry.state, episode=np.full_like(carry.state.episode, iteration)))
        limit = max(self._time_limit, START_SECONDS)
        carry = self._wait(Watched(lambda beat: self._open(carry, iteration, say, beat), limit), limit)
        return replaced(carry, obs=self._observations())

    def _open(self, carry: EnvCarry, iteration: int, say: Say, beat: Beat) -> EnvCarry:
        for columns in group_columns(self.env, self.here.count, self.here.shards):
            self._groups.append(EnvGroup.open(self.env, columns, self.seeds, carry.state.episode, self.here.first))
            self._groups[-1].reset(carry.state.episode, np.ones_like(carry.episodes.counts))
            beat()
        if not (iteration and self._replays):
            return carry
        lost = ~replay(carry, self._groups, beat)
        if lost.any():
            say(
                f"{int(lost.sum())} of {lost.size} environments of {self.config.env} did not come back to where they "
                "stood and start new episodes; weights, optimizer, normalizers and counters are exact."
            )
            carry = new_episodes(carry, lost)
            for group in self._groups:
                group.reset(carry.state.episode, lost)
        return carry

    def xla_steppers(self) -> list[XlaStepper] | None:
        """How to step each group from inside a compiled program, if that can be."""
        xla_steppers = [stepper for group in self._groups if (stepper := group.vector.xla_stepper())]
        return xla_steppers if len(xla_steppers) == len(self._groups) else None

    def start(self, carry: EnvCarry, actor: Actor, keys: GroupKeys, iteration: int) -> Collecting:
        """Begin T steps of all environments, with one key per group."""
        self._step, self._at_once = iteration * self.config.num_steps, actor.at_once

        def collect(beat: Beat) -> tuple[EnvCarry, CollectedRollout]:
            return self._collect(carry, actor, list(keys), lambda: self._go_on(beat))

        return Watched(collect, self._time_limit)

    def _go_on(self, beat: Beat) -> None:
        beat()
        if self._interrupted:
            raise FaultError("was interrupted")

    def interrupt(self) -> None:
        """Let a rollout that is being collected end after the next step, without a result."""
        self._interrupted = True

    def wait(self, rollout: Collecting) -> tuple[EnvCarry, CollectedRollout]:
        """The rollout, and where it left the environments but for the sums over their episodes."""
        return self._wait(rollout, self._time_limit)

    def close(self) -> None:
        """End the environments; those that hang, in a step or over this, are left to themselves."""
        for group in self._groups:
            if self._given_up or not closed_in_time(group.vector.close):
                group.vector.abandon()

    def _collect(
        self, carry: EnvCarry, actor: Actor, keys: list[AnyArray], beat: Beat
    ) -> tuple[EnvCarry, CollectedRollout]:
        first_step, steps = self._step, self.config.num_steps
        episode = np.array(carry.state.episode)
        if self.config.complete_episodes:
            everyone = np.ones_like(carry.episodes.counts)
            carry, episode = new_episodes(carry, everyone), episode + 1
            for group in self._groups:
                group.reset(episode, everyone)
        buffers = Buffers(self.env, (len(self.seeds), steps, self.here.count), actor.packing)
        try:
            if actor.scan_steps is None:
                self._step_by_step(actor, keys, buffers, episode, beat)
            else:
                self._in_scans(actor, keys, buffers, beat)
        except FaultError:  # perhaps of an action that followed from a number that is none
            self._check_numbers(buffers, first_step, self._step - first_step)
            raise
        self._check_numbers(buffers, first_step, steps)
        obs = self._observations()
        output: PolicyOutput = actor.packing.unpacked(buffers.outputs)
        rollout = CollectedRollout.of_leaves(
            obs=buffers.obs,
            last_obs=obs,
            action=output.action,
            behavior=output.behavior,
            reward=buffers.reward,
            terminated=buffers.terminated,
            truncated=buffers.truncated,
            final_value=buffers.final_values(actor.value),
            value=output.value,
        )
        done = buffers.terminated | buffers.truncated
        actions = remembered(carry, np.asarray(output.sent), done) if self._replays else carry.state.actions
        after = replaced(carry.state, episode=episode, actions=actions)
        return replaced(carry, state=after, obs=obs), rollout

    def _step_by_step(
        self, actor: Actor, keys: list[AnyArray], buffers: Buffers, episode: np.ndarray, beat: Beat
    ) -> None:
        """Fill the buffers, and count up the episodes."""
        first_step, steps = self._step, self.config.num_steps

        def act(i: int, t: int) -> None:
            group = self._groups[i]
            buffers.obs[:, t, group.columns] = group.obs
            keys[i], words = actor.choose(keys[i], group.obs)
            output = buffers.outputs[:, t, group.columns] = np.asarray(words)
            group.send(actor.packing.first(output))

        def receive(i: int, t: int) -> None:
            group = self._groups[i]
            self._step = first_step + t
            outcome = group.receive()
            beat()
            buffers.reward[:, t, group.columns] = outcome.reward
            buffers.terminated[:, t, group.columns] = outcome.terminated
            buffers.truncated[:, t, group.columns] = outcome.truncated
            if self.env.autoreset == "next-step":
                return
            done = outcome.terminated | outcome.truncated
            if done.any():
                buffers.keep_finals(group, outcome, t)
                ended = np.zeros_like(episode, bool)
                ended[:, group.columns] = done
                episode[ended] += 1
                if self.env.autoreset == "disabled":
                    group.reset(episode, ended)

        for t in range(steps):
            for i in range(len(self._groups)):
                if t and self._overlap:
                    receive(i, t - 1)
                act(i, t)
                if not self._overlap:
                    receive(i, t)
        for i in range(len(self._groups) if self._overlap else 0):
            receive(i, steps - 1)

    def _in_scans(self, actor: Actor, keys: GroupKeys, buffers: Buffers, beat: Beat) -> None:
        """Fill the buffers. Environments in scans reset themselves, and show in the rows how their episodes end."""
        assert actor.scan_steps is not None
        first_step = self._step
        for t in range(0, self.config.num_steps, actor.at_once):
            self._step = first_step + t
            try:
                keys, obs, steps = actor.scan_steps(keys, [group.obs for group in self._groups])
            except jax.errors.JaxRuntimeError as error:
                raise FaultError(f"raised {type(error).__name__}: {first_line(error)}") from None
            beat()
            rows = slice(t, t + actor.at_once)
            for name, part in steps._asdict().items():
                getattr(buffers, name)[:, rows] = part
            for group, seen in zip(self._groups, obs, strict=True):
                group.obs = np.asarray(seen)

    def _observations(self) -> np.ndarray:
        obs = np.concatenate([group.obs for group in self._groups], axis=1)
        return obs.astype(self.env.obs_dtype)

    def _check_numbers(self, buffers: Buffers, first_step: int, steps: int) -> None:
        """Raise if an environment showed something that is not a number."""
        seen = np.concatenate([buffers.obs[:, :steps], self._observations()[:, None]], axis=1)
        for what, array, earlier in (("an observation", seen, 1), ("a reward", buffers.reward[:, :steps], 0)):
            if array.dtype == np.uint8 or np.isfinite(array).all():
                continue
            bad = ~np.all(np.isfinite(array).reshape(*array.shape[:3], -1), axis=-1)
            t = int(np.argmax(bad.any(axis=(0, 2))))
            s, n = (int(i) for i in np.argwhere(bad[:, t])[0])
            self._step = first_step + t - earlier
            raise RunError(self._sentence(f"showed {what} that is not a finite number", (s, self.here.first + n)))
        for s, t, n, obs in buffers.finals:
            if not np.isfinite(obs).all():
                self._step = first_step + t
                place = s, self.here.first + n
                raise RunError(self._sentence("showed an observation that is not a finite number", place))

    def _wait(self, watched: Watched[T], limit: float) -> T:
        try:
            return watched.wait()
        except HangError:
            self._given_up = True
            what = f"did not answer within {limit:g} seconds (env_timeout)"
            places = [group.place(i) for group in self._awaited() for i in group.vector.suspects()]
        except KeyboardInterrupt:  # in the middle of a step, which nobody will wait for
            self._given_up = True
            raise
        except FaultError as fault:
            what = fault.what
            places = [group.place(fault.place) for group in self._awaited() if fault.place is not None]
        raise RunError(self._sentence(what, places[0] if places else None, self._at_once))

    def _awaited(self) -> list[EnvGroup]:
        return [group for group in self._groups if group.awaited]

    def _sentence(self, what: str, place: tuple[int, int] | None, at_once: int = 1) -> str:
        """`at_once` steps are not told apart."""
        of_seed = f" of seed {self.seeds[place[0]]}" if place and len(self.seeds) > 1 else ""
        which = f"environment {place[1]}{of_seed}" if place else "an environment"
        step = max(self._step, 0)
        when = f"at its step {step:,}" if at_once == 1 else f"in its steps {step:,} to {step + at_once - 1:,}"
        return f"{which} ({self.config.env}) {what}, {when}."


class Buffers:
    """What is kept of each step, [S, T, N, ...]; anew for each rollout, since a compiled program may share them."""

    def __init__(self, env: HostEnvironment, shape: tuple[int, int, int], packing: Packing) -> None:
        self.obs = np.zeros((*shape, *env.obs_shape), env.obs_dtype)
        self.reward = np.zeros(shape, np.float32)
        self.terminated = np.zeros(shape, bool)
        self.truncated = np.zeros(shape, bool)
        self.outputs = np.zeros((*shape, packing.width), np.uint32)
        self._shape = shape
        self.finals: list[tuple[int, int, int, np.ndarray]] = []  # seed, step, environment, observation

    def keep_finals(self, group: EnvGroup, outcome: VectorStep, t: int) -> None:
        """The observations that episodes ended with, which are in no row."""
        for s, n in np.argwhere(outcome.terminated | outcome.truncated):
            place = int(s) * outcome.truncated.shape[1] + int(n)
            obs = outcome.final[place] if outcome.final else outcome.obs[s, n].copy()
            self.finals.append((int(s), t, group.columns.start + int(n), obs))

    def final_values(self, value: Callable[[np.ndarray], AnyArray]) -> np.ndarray:
        """Their values where time limits cut episodes off, N of each seed at a time; 0 elsewhere."""
        seeds, _, width = self._shape
        values = np.zeros(self._shape, np.float32)
        cut = self.truncated & ~self.terminated
        waiting = [[final for final in self.finals if final[0] == s and cut[final[:3]]] for s in range(seeds)]
        while any(waiting):
            packed = np.zeros((seeds, width, *self.obs.shape[3:]), self.obs.dtype)
            now, waiting = [w[:width] for w in waiting], [w[width:] for w in waiting]
            for s, finals in enumerate(now):
                for place, final in enumerate(finals):
                    packed[s, place] = final[3]
            answers = np.asarray(value(packed))
            for s, finals in enumerate(now):
                for place, (_, t, n, _) in enumerate(finals):
                    values[s, t, n] = answers[s, place]
        return values
