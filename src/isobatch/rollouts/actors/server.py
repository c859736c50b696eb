"""An actor in another process or on another machine: environments, and the policy that acts for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import cloudpickle
import jax
import numpy as np

from isobatch.errors import RunError
from isobatch.rollouts.acting import Acting, Policy
from isobatch.rollouts.actors.interface import LocalBackend, Place, PolicyVersion
from isobatch.rollouts.actors.wire import from_bytes, to_bytes, unpacked_tree
from isobatch.rollouts.host_rollout import host_carry
from isobatch.rollouts.segment import EnvCarry


def recipe(place: Place, policy: Policy) -> bytes:
    """What a server is made from. Environments may be a user's own, so this, and nothing that comes back, is code."""
    shapes = jax.eval_shape(lambda: policy)
    return cloudpickle.dumps({"path": sys.path, "place": place, "shapes": shapes})


class ActorServer:
    """Answers messages with messages (`wire`); a fault is an answer with its sentence."""

    def __init__(self, made_from: bytes) -> None:
        parts = cloudpickle.loads(made_from)
        sys.path.extend(path for path in parts["path"] if path not in sys.path)
        place: Place = parts["place"]
        self._shapes = parts["shapes"]
        # Arrays, since acting is compiled for what they look like, and numbers look like others than arrays.
        blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._shapes)
        self._backend = LocalBackend(Acting(place.env, place.envs, blank), place)
        self._structure = jax.tree.structure(host_carry(place.env, place.envs.count, 0))
        self._version, self._policy = -1, PolicyVersion(blank)

    def open(self, message: bytes) -> bytes:
        arrays, header = from_bytes(message)
        sentences: list[str] = []
        try:
            carry = self._backend.open(self._carry(arrays), header["number"], sentences.append)
        except RunError as fault:
            return to_bytes([], fault=str(fault))
        return to_bytes(jax.tree.leaves(carry), sentences=sentences)

    def collect(self, message: bytes) -> bytes:
        """Keys of the groups, the carry, and the weights if they are others than before."""
        arrays, header = from_bytes(message)
        groups = header["groups"]
        keys, rest = arrays[:groups], arrays[groups:]
        if header["version"] != self._version:
            self._version = header["version"]
            self._policy = PolicyVersion(unpacked_tree(rest.pop(), self._shapes))
        try:
            before, number = self._carry(rest), header["number"]
            carry, rollout = self._backend.collect(before, self._version, self._policy, keys, number)
        except RunError as fault:
            return to_bytes([], fault=str(fault))
        return to_bytes([*jax.tree.leaves(carry), *jax.tree.leaves(rollout)])

    def close(self) -> None:
        self._backend.close()

    def _carry(self, leaves: Sequence[np.ndarray]) -> EnvCarry:
        return jax.tree.unflatten(self._structure, leaves)
