"""Many steps of environments in one call of a compiled program, where they can be stepped from inside one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from isobatch.geometry import divisors
from isobatch.hosts.interface import Inside
from isobatch.hosts.packing import packed
from isobatch.hosts.rollout import Choice

LONGEST = 64  # steps of one call, during which nobody sees a sign of life


class Stretch(NamedTuple):
    """What K steps of S seeds showed."""

    obs: Array  # [S, K, N, ...], to act on
    choices: UInt32[Array, "S K N W"]  # packed
    reward: Float[Array, "S K N"]
    terminated: Bool[Array, "S K N"]
    truncated: Bool[Array, "S K N"]


def stretch_length(num_steps: int) -> int:
    """K: stretches of equal length make a rollout."""
    return max(n for n in divisors(num_steps) if n <= LONGEST)


def stretch(
    insides: list[Inside],
    length: int,
    choose: Callable[[list[Array], Array, Array], tuple[Array, Choice]],
    leaves: list[Array],
    handles: list[Array],
    keys: list[Array],
    obs: list[Array],
) -> tuple[list[Array], list[Array], Stretch]:
    """Keys and observations [S, n, ...] of each half after K steps, and the steps.

    `choose` is the policy: leaves, keys, observations -> keys, choices. While it acts for the second half, the first
    one steps.
    """

    def step(carry: Any, _: None) -> tuple[Any, Stretch]:
        handles, keys, obs = carry
        keys, choices = zip(*(choose(leaves, key, seen) for key, seen in zip(keys, obs, strict=True)), strict=True)
        sent = [choice.sent.reshape(-1, *choice.sent.shape[2:]) for choice in choices]
        handles = [inside.send(*told) for inside, *told in zip(insides, handles, sent, strict=True)]
        handles, moved = zip(*(i.receive(h) for i, h in zip(insides, handles, strict=True)), strict=True)
        seen, *outcomes = (
            [part.reshape(old.shape[:2] + part.shape[1:]) for part, old in zip(parts, obs, strict=True)]
            for parts in zip(*(m[:4] for m in moved), strict=True)
        )
        rows = [obs, [jax.vmap(packed)(choice) for choice in choices], *outcomes]
        return (list(handles), list(keys), seen), Stretch(*(jnp.concatenate(row, axis=1) for row in rows))

    (_, keys, obs), steps = jax.lax.scan(step, (handles, keys, obs), None, length=length)
    return keys, obs, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), steps)
