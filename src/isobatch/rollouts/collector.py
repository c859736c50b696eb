"""Rollouts of environments that step outside JAX: act, step, reset where an episode ended, watch over time and faults.

Environments that step by themselves, in processes or in threads of C++, are run in two halves: while one steps, the
policy acts for the other. Each half has a random key of its own for each step, and outcomes are received in a fixed
order, so results do not depend on who was faster. Where they can be stepped from inside a compiled program, many steps
are one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from isobatch.envs.host_interface import FaultError, HostEnvironment, VectorStep, XlaStepper
from isobatch.errors import RunError, first_line
from isobatch.rollouts.compiled import EnvCarry
from isobatch.rollouts.env_groups import EnvGroup, columns_of
from isobatch.rollouts.host import PolicyOutput, Rollout, replaced
from isobatch.rollouts.packing import Packing
from isobatch.rollouts.replay import new_episodes, remembered, replay
from isobatch.rollouts.watch import HangError, Watched
from isobatch.settings.config import Config

START_SECONDS = 300.0  # that making the environments may take at least: processes import what they need
Say = Callable[[str], None]
Beat = Callable[[], None]


class Actor(NamedTuple):
    """The policies of all seeds at once, compiled."""

    act: Callable[..., Any]  # keys, observations [S, n, ...] -> keys, packed choices [S, n, W]
    value: Callable[..., Any]  # observations [S, N, ...] -> values [S, N]
    packing: Packing  # of `PolicyOutput`
    stretch: Callable[..., Any] | None = None  # keys, observations of each half -> both after K steps, `Stretch`
    at_once: int = 1  # K


class Collector:
    """The running environments of one run: S seeds of N environments each."""

    def __init__(
        self, env: HostEnvironment, config: Config, seeds: np.ndarray, time_limit: float, overlap: bool = True
    ) -> None:
        self.env, self.config, self.seeds = env, config, seeds
        self._replays = env.replays and not config.complete_episodes  # which begin each iteration with a reset
        self._time_limit, self._overlap = time_limit, overlap
        self._halves: list[EnvGroup] = []
        self._step = 0  # of the run, and of each environment
        self._at_once = 1  # steps that are not told apart while they happen
        self._given_up = False

    def open(self, carry: EnvCarry, iteration: int, say: Say) -> EnvCarry:
        """Start the environments where `carry` says they stood, or in new episodes where that cannot be."""
        self._step = iteration * self.config.num_steps
        if not self.env.replays:
            carry = new_episodes(carry, np.zeros_like(carry.counts) | (iteration > 0))
            # Its resets draw from the environment's own generator: a resumed run must not draw the same again.
            carry = replaced(carry, state=replaced(carry.state, episode=np.full_like(carry.state.episode, iteration)))
        limit = max(self._time_limit, START_SECONDS)
        carry = self._wait(Watched(lambda beat: self._open(carry, iteration, say, beat), limit), limit)
        return replaced(carry, obs=self._observations())

    def _open(self, carry: EnvCarry, iteration: int, say: Say, beat: Beat) -> EnvCarry:
        for columns in columns_of(self.env, self.config.num_envs):
            self._halves.append(EnvGroup.open(self.env, columns, self.seeds, carry.state.episode))
            self._halves[-1].reset(carry.state.episode, np.ones_like(carry.counts))
            beat()
        if not (iteration and self._replays):
            return carry
        lost = ~replay(carry, self._halves, beat)
        if lost.any():
            say(
                f"{int(lost.sum())} of {lost.size} environments of {self.config.env} did not come back to where they "
                "stood and start new episodes; weights, optimizer, normalizers and counters are exact."
            )
            carry = new_episodes(carry, lost)
            for half in self._halves:
                half.reset(carry.state.episode, lost)
        return carry

    def xla_steppers(self) -> list[XlaStepper] | None:
        """How to step each half from inside a compiled program, if that can be."""
        xla_steppers = [inside for half in self._halves if (inside := half.vector.xla_stepper())]
        return xla_steppers if len(xla_steppers) == len(self._halves) else None

    def start(self, carry: EnvCarry, actor: Actor, keys: list[Any], iteration: int) -> Watched:
        """Begin T steps of all environments, with one key per half."""
        self._step, self._at_once = iteration * self.config.num_steps, actor.at_once
        return Watched(lambda beat: self._collect(carry, actor, list(keys), beat), self._time_limit)

    def wait(self, rollout: Watched) -> tuple[EnvCarry, Rollout]:
        """The rollout, and where it left the environments but for the sums over their episodes."""
        return self._wait(rollout, self._time_limit)

    def close(self) -> None:
        for half in self._halves:
            if self._given_up:
                half.vector.abandon()
            else:
                half.vector.close()

    def _collect(self, carry: EnvCarry, actor: Actor, keys: list[Any], beat: Beat) -> tuple[EnvCarry, Rollout]:
        first_step, steps = self._step, self.config.num_steps
        episode = np.array(carry.state.episode)
        if self.config.complete_episodes:
            everyone = np.ones_like(carry.counts)
            carry, episode = new_episodes(carry, everyone), episode + 1
            for half in self._halves:
                half.reset(episode, everyone)
        buffers = Buffers(self.env, (len(self.seeds), steps, self.config.num_envs), actor.packing)
        try:
            if actor.stretch is None:
                self._step_by_step(actor, keys, buffers, episode, beat)
            else:
                self._in_stretches(actor, keys, buffers, beat)
        except FaultError:  # perhaps of an action that followed from a number that is none
            self._check_numbers(buffers, first_step, self._step - first_step)
            raise
        self._check_numbers(buffers, first_step, steps)
        obs: Any = self._observations()
        choice: PolicyOutput = actor.packing.unpacked(buffers.choices)
        rollout = Rollout(
            obs=buffers.obs,
            last_obs=obs,
            action=choice.action,
            behavior=choice.behavior,
            reward=buffers.reward,
            terminated=buffers.terminated,
            truncated=buffers.truncated,
            final_value=buffers.final_values(actor.value),
            value=choice.value,
        )
        done = buffers.terminated | buffers.truncated
        actions = remembered(carry, np.asarray(choice.sent), done) if self._replays else carry.state.actions
        after = replaced(carry.state, episode=episode, actions=actions)
        return replaced(carry, state=after, obs=obs), rollout

    def _step_by_step(self, actor: Actor, keys: list[Any], buffers: Buffers, episode: np.ndarray, beat: Beat) -> None:
        """Fill the buffers, and count up the episodes."""
        first_step, steps = self._step, self.config.num_steps

        def act(i: int, t: int) -> None:
            half = self._halves[i]
            buffers.obs[:, t, half.columns] = half.obs
            keys[i], words = actor.act(keys[i], half.obs)
            choice = buffers.choices[:, t, half.columns] = np.asarray(words)
            half.send(actor.packing.first(choice))

        def receive(i: int, t: int) -> None:
            half = self._halves[i]
            self._step = first_step + t
            moved = half.receive()
            beat()
            buffers.reward[:, t, half.columns] = moved.reward
            buffers.terminated[:, t, half.columns] = moved.terminated
            buffers.truncated[:, t, half.columns] = moved.truncated
            if self.env.autoreset == "next-step":
                return
            done = moved.terminated | moved.truncated
            if done.any():
                buffers.keep_finals(half, moved, t)
                ended = np.zeros_like(episode, bool)
                ended[:, half.columns] = done
                episode[ended] += 1
                if self.env.autoreset == "disabled":
                    half.reset(episode, ended)

        for t in range(steps):
            for i in range(len(self._halves)):
                if t and self._overlap:
                    receive(i, t - 1)
                act(i, t)
                if not self._overlap:
                    receive(i, t)
        for i in range(len(self._halves) if self._overlap else 0):
            receive(i, steps - 1)

    def _in_stretches(self, actor: Actor, keys: list[Any], buffers: Buffers, beat: Beat) -> None:
        """Fill the buffers. Environments in stretches reset themselves, and show in the rows how their episodes end."""
        assert actor.stretch is not None
        first_step = self._step
        for t in range(0, self.config.num_steps, actor.at_once):
            self._step = first_step + t
            try:
                keys, obs, steps = actor.stretch(keys, [half.obs for half in self._halves])
            except jax.errors.JaxRuntimeError as error:
                raise FaultError(f"raised {type(error).__name__}: {first_line(error)}") from None
            beat()
            rows = slice(t, t + actor.at_once)
            for name, part in steps._asdict().items():
                getattr(buffers, name)[:, rows] = part
            for half, seen in zip(self._halves, obs, strict=True):
                half.obs = np.asarray(seen)

    def _observations(self) -> np.ndarray:
        obs = np.concatenate([half.obs for half in self._halves], axis=1)
        return obs.astype(self.env.obs_dtype)

    def _check_numbers(self, buffers: Buffers, first_step: int, steps: int) -> None:
        """Raise if an environment showed something that is not a number."""
        seen = np.concatenate([buffers.obs[:, :steps], self._observations()[:, None]], axis=1)
        for what, array, earlier in (("an observation", seen, 1), ("a reward", buffers.reward[:, :steps], 0)):
            if array.dtype == np.uint8 or np.isfinite(array).all():
                continue
            bad: Any = ~np.isfinite(array).reshape(*array.shape[:3], -1).all(axis=-1)
            t = int(np.argmax(bad.any(axis=(0, 2))))
            s, n = (int(i) for i in np.argwhere(bad[:, t])[0])
            self._step = first_step + t - earlier
            raise RunError(self._sentence(f"showed {what} that is not a finite number", (s, n)))
        for s, t, n, obs in buffers.finals:
            if not np.isfinite(obs).all():
                self._step = first_step + t
                raise RunError(self._sentence("showed an observation that is not a finite number", (s, n)))

    def _wait(self, watched: Watched, limit: float) -> Any:
        try:
            return watched.wait()
        except HangError:
            self._given_up = True
            what = f"did not answer within {limit:g} seconds (env_timeout)"
            places = [half.place(i) for half in self._awaited() for i in half.vector.suspects()]
        except KeyboardInterrupt:  # in the middle of a step, which nobody will wait for
            self._given_up = True
            raise
        except FaultError as fault:
            what = fault.what
            places = [half.place(fault.place) for half in self._awaited() if fault.place is not None]
        raise RunError(self._sentence(what, places[0] if places else None, self._at_once))

    def _awaited(self) -> list[EnvGroup]:
        return [half for half in self._halves if half.awaited]

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
        self.obs: Any = np.zeros((*shape, *env.obs_shape), env.obs_dtype)
        self.reward: Any = np.zeros(shape, np.float32)
        self.terminated: Any = np.zeros(shape, bool)
        self.truncated: Any = np.zeros(shape, bool)
        self.choices: Any = np.zeros((*shape, packing.width), np.uint32)
        self._shape = shape
        self.finals: list[tuple[int, int, int, np.ndarray]] = []  # seed, step, environment, observation

    def keep_finals(self, half: EnvGroup, moved: VectorStep, t: int) -> None:
        """The observations that episodes ended with, which are in no row."""
        for s, n in np.argwhere(moved.terminated | moved.truncated):
            place = int(s) * moved.truncated.shape[1] + int(n)
            obs = moved.final[place] if moved.final else moved.obs[s, n].copy()
            self.finals.append((int(s), t, half.columns.start + int(n), obs))

    def final_values(self, value: Callable[[np.ndarray], Any]) -> Any:
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
            found = np.asarray(value(packed))
            for s, finals in enumerate(now):
                for place, (_, t, n, _) in enumerate(finals):
                    values[s, t, n] = found[s, place]
        return values
