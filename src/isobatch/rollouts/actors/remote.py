"""Actors elsewhere, as the learner's process sees them: messages through a channel to a server."""

from __future__ import annotations

from typing import Protocol

import jax
import numpy as np

from isobatch.errors import RunError
from isobatch.formatting import Say
from isobatch.rollouts.actors.interface import PolicyVersion
from isobatch.rollouts.actors.wire import Header, from_bytes, to_bytes
from isobatch.rollouts.collected import CollectedRollout
from isobatch.rollouts.collector import GroupKeys
from isobatch.rollouts.segment import EnvCarry


class Channel(Protocol):
    """A way to an `ActorServer`."""

    def call(self, method: str, message: bytes) -> bytes:
        """Its answer; a RunError if there will be none."""
        ...

    def close(self) -> None: ...


class RemoteBackend:
    """Environments of another process (`interface.Backend`)."""

    def __init__(self, channel: Channel, rollout: CollectedRollout) -> None:
        """`rollout` has the structure of what will come."""
        self._channel, self._structure = channel, jax.tree.structure(rollout)
        self._version = -1  # that the server has

    def open(self, carry: EnvCarry, number: int, say: Say) -> EnvCarry:
        leaves, structure = jax.tree.flatten(carry)
        arrays, header = self._answer("open", to_bytes(leaves, number=number))
        for sentence in header["sentences"]:
            say(sentence)
        return jax.tree.unflatten(structure, arrays)

    def collect(
        self, carry: EnvCarry, version: int, policy: PolicyVersion, keys: GroupKeys, number: int
    ) -> tuple[EnvCarry, CollectedRollout]:
        leaves, structure = jax.tree.flatten(carry)
        weights = [] if version == self._version else [policy.packed]
        message = to_bytes([*keys, *leaves, *weights], version=version, number=number, groups=len(keys))
        arrays, _ = self._answer("collect", message)
        self._version = version
        after, rollout = arrays[: len(leaves)], arrays[len(leaves) :]
        return jax.tree.unflatten(structure, after), jax.tree.unflatten(self._structure, rollout)

    def interrupt(self) -> None:
        self._channel.close()

    def close(self) -> None:
        self._channel.close()

    def _answer(self, method: str, message: bytes) -> tuple[list[np.ndarray], Header]:
        arrays, header = from_bytes(self._channel.call(method, message))
        if "fault" in header:
            raise RunError(header["fault"])
        return arrays, header
