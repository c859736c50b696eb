"""What every kind of actor provides, and the one that collects in this process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.formatting import Say
from isobatch.rollouts.acting import Acting, Policy, Stepping
from isobatch.rollouts.actors.wire import packed_tree
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.collector import Collecting, Collector, GroupKeys
from isobatch.rollouts.env_groups import LocalEnvs
from isobatch.rollouts.segment import EnvCarry
from isobatch.settings.config import Config


class PolicyVersion:
    """A version of the policy, as it goes out to actors."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @cached_property
    def packed(self) -> np.ndarray:
        """All of it as one array of bytes, made when the first actor elsewhere asks."""
        return packed_tree(self.policy)


@dataclass(frozen=True)
class Place:
    """Whose environments an actor steps: of these seeds, `envs` of each."""

    env: HostEnvironment
    config: Config
    seeds: np.ndarray
    envs: LocalEnvs
    time_limit: float

    def collector(self, overlap: bool = True) -> Collector:
        return Collector(self.env, self.config, self.seeds, self.time_limit, overlap, self.envs)


class Backend(Protocol):
    """Environments that run somewhere, and a copy of the policy beside them. Faults are RunErrors."""

    def open(self, carry: EnvCarry, number: int, say: Say) -> EnvCarry:
        """Start the environments where `carry` says they stood before rollout `number`."""
        ...

    def collect(
        self, carry: EnvCarry, version: int, policy: PolicyVersion, keys: GroupKeys, number: int
    ) -> tuple[EnvCarry, CollectedRollout]:
        """T steps, and where they left the environments but for the sums over their episodes."""
        ...

    def interrupt(self) -> None:
        """Let a rollout that is being collected come to nothing, soon."""
        ...

    def close(self) -> None:
        """End it, whatever it is doing."""
        ...


class LocalBackend:
    """Environments of this process: those of an actor, or all of a run that collects and learns by turns."""

    def __init__(self, acting: Acting, place: Place, overlap: bool = True) -> None:
        self._acting, self._collector = acting, place.collector(overlap)
        self._stepping = Stepping(acting)

    def open(self, carry: EnvCarry, number: int, say: Say) -> EnvCarry:
        carry = self._collector.open(carry, number, say)
        self._stepping = self._acting.stepping(self._collector)
        return carry

    def collect(
        self, carry: EnvCarry, version: int, policy: PolicyVersion, keys: GroupKeys, number: int
    ) -> tuple[EnvCarry, CollectedRollout]:
        return self.wait(self.start(carry, policy.policy, keys, number))

    def start(self, carry: EnvCarry, policy: Policy, keys: GroupKeys, number: int) -> Collecting:
        """Begin to collect, while the caller does something else."""
        return self._collector.start(carry, self._stepping.actor(policy), keys, number)

    def wait(self, running: Collecting) -> tuple[EnvCarry, CollectedRollout]:
        return self._collector.wait(running)

    @property
    def steps_at_once(self) -> int:
        """Steps of one call, more than one where environments step from inside a compiled program."""
        return self._stepping.at_once

    def interrupt(self) -> None:
        self._collector.interrupt()

    def close(self) -> None:
        self._collector.close()
