"""All inner products g_i . g_j of n per-sample gradients, without ever holding n x P numbers.

Layer by layer, each by the cheaper of two ways. With rows x_p and deltas d_p of a sample at the layer's positions p, a
column of ones appended to x for the bias:

    factored   g_i . g_j = sum_pq (x_ip . x_jq) (d_ip . d_jq)      n^2 p^2 (In + Out) products; a dense layer has p = 1
    explicit   g_i = sum_p x_ip d_ip', then g_i . g_j              n^2 In Out products; a convolution has many positions

Parameters outside the known layers, and layers that are applied more than once, go by their own vmapped gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from isobatch.errors import UsageError
from isobatch.gradients.layers import Losses, Tap, is_layer, num_samples, rows_and_deltas, tap_shapes
from isobatch.memory import SHARE, available_bytes, in_words

MICROBATCH_BYTES = 128e6  # rows and deltas that are held at once
STORED_BYTES = 1e9  # of what is kept of all samples while one group of layers is worked on
FLOAT = 4
OTHERS = -1  # the number of the parameters outside the known layers


@dataclass(frozen=True)
class Way:
    """How the inner products of one layer are computed."""

    factored: bool
    positions: int
    inputs: int  # with the one for the bias
    outputs: int

    @classmethod
    def of(cls, tap: Tap) -> Way:
        """The cheaper way for a layer with rows and deltas of this shape."""
        positions, inputs, outputs = math.prod(tap.x.shape[1:-1]), tap.x.shape[-1] + 1, tap.delta.shape[-1]
        return cls(positions**2 * (inputs + outputs) < inputs * outputs, positions, inputs, outputs)

    @property
    def stored(self) -> int:
        """Numbers that are kept of each sample."""
        return self.positions * (self.inputs + self.outputs) if self.factored else self.inputs * self.outputs


@dataclass(frozen=True)
class Plan:
    """What is done in which order, for a network and samples of given shapes."""

    ways: dict[int, Way]
    groups: tuple[tuple[int, ...], ...]  # layers whose numbers are kept at the same time; one backward pass each
    microbatch: int
    others: int  # parameters outside the known layers

    def bytes(self, samples: int) -> int:
        """Memory at its highest: the result, two matrices of its size at work, what is stored, one microbatch."""
        stored = max(sum(self._stored(layer) for layer in group) for group in self.groups)
        return int(FLOAT * samples * (3 * samples + stored) + 4 * MICROBATCH_BYTES)

    def _stored(self, layer: int) -> int:
        return self.others if layer == OTHERS else self.ways[layer].stored


def plan(losses: Losses, network: Any, samples: Any) -> Plan:
    """Choose the ways, and cut the layers into groups that fit into STORED_BYTES."""
    count = num_samples(samples)
    shapes = tap_shapes(losses, network, samples)
    ways = {i: Way.of(tap) for i, tap in shapes.items()}
    others = sum(leaf.size for leaf in jax.tree.leaves(_other_parameters(network, ways)))
    active = sum(way.positions * (way.inputs + way.outputs) for way in ways.values())
    microbatch = int(np.clip(MICROBATCH_BYTES / FLOAT / max(active, 1), 1, count))
    sizes = {i: way.stored for i, way in ways.items()} | ({OTHERS: others} if others else {})
    groups: list[list[int]] = []
    room = 0.0
    for layer, size in sizes.items():
        if not groups or size > room:
            groups.append([])
            room = STORED_BYTES / FLOAT / count
        groups[-1].append(layer)
        room -= size
    return Plan(ways, tuple(map(tuple, groups)), microbatch, others)


def gram(losses: Losses, network: Any, samples: Any) -> Float[Array, "n n"]:
    """G_ij = g_i . g_j of the per-sample gradients of `losses`, exactly."""
    made, count = plan(losses, network, samples), num_samples(samples)
    check_memory(made.bytes(count), f"{count} samples")
    total = jnp.zeros((count, count))
    for group in made.groups:
        # Compiled one by one, so that what one group keeps is dropped before the next begins.
        total = jax.jit(partial(_add_group, losses, made, group), donate_argnums=0)(total, network, samples)
    return total


def check_memory(need: int, what: str) -> None:
    there = available_bytes()
    if there is not None and need > SHARE * there:
        raise UsageError(
            f"inner products of the gradients of {what} need {in_words(need)}, and {in_words(int(SHARE * there))} are "
            "available: lower the budget (or the longest geometry), or use a random projection."
        )


def _add_group(losses: Losses, made: Plan, group: tuple[int, ...], total: Array, network: Any, samples: Any) -> Array:
    """One backward pass over all samples, microbatch by microbatch, then the products of this group's layers."""
    count = num_samples(samples)
    pieces = -(-count // made.microbatch)
    padding = pieces * made.microbatch - count

    def cut(leaf: Array) -> Array:
        filled = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], padding, axis=0)])
        return filled.reshape(pieces, made.microbatch, *leaf.shape[1:])

    kept = jax.lax.map(partial(_keep, losses, made, group, network), jax.tree.map(cut, samples))
    kept = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], kept)
    for numbers in kept.values():
        total = total + (_factored(*numbers) if isinstance(numbers, tuple) else numbers @ numbers.T)
    return total


def _keep(losses: Losses, made: Plan, group: tuple[int, ...], network: Any, samples: Any) -> dict[int, Any]:
    """What is kept of a microbatch: rows and deltas (factored), or explicit gradients, for each layer of the group."""
    shapes = {i: tap for i, tap in tap_shapes(losses, network, samples).items() if i in group}
    taps = rows_and_deltas(losses, network, samples, shapes)
    kept: dict[int, Any] = {}
    for i, tap in taps.items():
        rows = jnp.concatenate([tap.x, jnp.ones_like(tap.x[..., :1])], axis=-1)
        if made.ways[i].factored:
            kept[i] = (rows, tap.delta)
        else:
            kept[i] = jnp.einsum("npi,npo->nio", rows, tap.delta).reshape(rows.shape[0], -1)
    if OTHERS in group:
        kept[OTHERS] = _other_gradients(losses, made.ways, network, samples)
    return kept


def _factored(rows: Float[Array, "n p i"], deltas: Float[Array, "n p o"]) -> Float[Array, "n n"]:
    """sum_pq (x_ip . x_jq) (d_ip . d_jq), for few positions."""
    count, positions, _ = rows.shape
    total = jnp.zeros((count, count))
    for p in range(positions):
        for q in range(positions):
            total += (rows[:, p] @ rows[:, q].T) * (deltas[:, p] @ deltas[:, q].T)
    return total


def _other_parameters(network: Any, ways: dict[int, Way]) -> dict[int, Any]:
    """The parts of the network that no way is known for, by number."""
    nodes = jax.tree.leaves(network, is_leaf=is_layer)
    return {i: node for i, node in enumerate(nodes) if i not in ways}


def _other_gradients(losses: Losses, ways: dict[int, Way], network: Any, samples: Any) -> Float[Array, "n R"]:
    """Per-sample gradients of those parts."""
    nodes, structure = jax.tree.flatten(network, is_leaf=is_layer)

    def loss(others: dict[int, Any], sample: Any) -> Array:
        whole = structure.unflatten([others.get(i, node) for i, node in enumerate(nodes)])
        return losses(whole, jax.tree.map(lambda leaf: leaf[None], sample))[0]

    def gradient(sample: Any) -> Array:
        return ravel_pytree(jax.grad(loss)(_other_parameters(network, ways), sample))[0]

    return jax.vmap(gradient)(samples)


def compiled_gram(losses: Losses) -> Callable[[Any, Any], Array]:
    """`gram` of one kind of loss, compiled: for many sets of samples of one shape."""
    return jax.jit(partial(gram, losses))
