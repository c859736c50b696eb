"""Many steps of environments in one call of a compiled program, where they can be stepped from inside one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from isobatch.envs.host_interface import XlaStepper
from isobatch.rollouts.host_rollout import PolicyOutput
from isobatch.rollouts.packing import packed
from isobatch.settings.geometry import divisors

LONGEST = 64  # steps of one call, during which nobody sees a sign of life


Group = tuple[Array, Array, Array]  # handle, keys, observations


class ScannedSteps(NamedTuple):
    """What K steps of S seeds showed."""

    obs: Array  # [S, K, N, ...], to act on
    outputs: UInt32[Array, "S K N W"]  # packed
    reward: Float[Array, "S K N"]
    terminated: Bool[Array, "S K N"]
    truncated: Bool[Array, "S K N"]


def scan_length(num_steps: int) -> int:
    """K: scans of equal length make a rollout."""
    return max(n for n in divisors(num_steps) if n <= LONGEST)


def scan_steps(
    xla_steppers: list[XlaStepper],
    length: int,
    choose: Callable[[list[Array], Array, Array], tuple[Array, PolicyOutput]],
    leaves: list[Array],
    handles: list[Array],
    keys: list[Array],
    obs: list[Array],
) -> tuple[list[Array], list[Array], ScannedSteps]:
    """Keys and observations [S, n, ...] of each group after K steps, and the steps.

    `choose` is the policy: leaves, keys, observations -> keys, outputs. Nothing but its own handle orders what happens
    to a group, so one can step while the policy acts for the other.
    """

    def step(groups: list[Group], index: None) -> tuple[list[Group], ScannedSteps]:
        sent, after, rows = [], [], []
        for stepper, (handle, key, seen) in zip(xla_steppers, groups, strict=True):
            later, output = choose(leaves, key, seen)
            actions = output.sent.reshape(-1, *output.sent.shape[2:])
            sent.append((stepper.send(handle, actions), later, output))
        for stepper, (_, _, seen), (handle, key, output) in zip(xla_steppers, groups, sent, strict=True):
            handle, moved = stepper.receive(handle)
            arrays = [array.reshape(seen.shape[:2] + array.shape[1:]) for array in moved[:4]]
            shown, *outcome = arrays
            after.append((handle, key, shown))
            rows.append(ScannedSteps(seen, jax.vmap(packed)(output), *outcome))
        return after, jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *rows)

    groups, steps = jax.lax.scan(step, list(zip(handles, keys, obs, strict=True)), None, length=length)
    return (
        [key for _, key, _ in groups],
        [seen for *_, seen in groups],
        jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), steps),
    )
