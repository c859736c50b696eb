"""Many steps of environments in one call of a compiled program, where they can be stepped from inside one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from isobatch.envs.host_interface import XlaStepper
from isobatch.rollouts.host import PolicyOutput
from isobatch.rollouts.packing import packed
from isobatch.settings.geometry import divisors

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
    xla_steppers: list[XlaStepper],
    length: int,
    choose: Callable[[list[Array], Array, Array], tuple[Array, PolicyOutput]],
    leaves: list[Array],
    handles: list[Array],
    keys: list[Array],
    obs: list[Array],
) -> tuple[list[Array], list[Array], Stretch]:
    """Keys and observations [S, n, ...] of each half after K steps, and the steps.

    `choose` is the policy: leaves, keys, observations -> keys, choices. Nothing but its own handle orders what happens
    to a half, so one can step while the policy acts for the other.
    """

    def step(halves: list[Any], _: None) -> tuple[list[Any], Stretch]:
        sent, after, rows = [], [], []
        for inside, (handle, key, seen) in zip(xla_steppers, halves, strict=True):
            later, choice = choose(leaves, key, seen)
            told = choice.sent.reshape(-1, *choice.sent.shape[2:])
            sent.append((inside.send(handle, told), later, choice))
        for inside, (_, _, seen), (handle, key, choice) in zip(xla_steppers, halves, sent, strict=True):
            handle, moved = inside.receive(handle)
            parts: list[Any] = [part.reshape(seen.shape[:2] + part.shape[1:]) for part in moved[:4]]
            shown, *outcome = parts
            after.append((handle, key, shown))
            rows.append(Stretch(seen, jax.vmap(packed)(choice), *outcome))
        return after, jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *rows)

    halves, steps = jax.lax.scan(step, list(zip(handles, keys, obs, strict=True)), None, length=length)
    return (
        [key for _, key, _ in halves],
        [seen for *_, seen in halves],
        jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), steps),
    )
