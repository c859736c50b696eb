"""Inputs and backpropagated deltas of every layer, from one backward pass over all samples.

The gradient of sample n with respect to the weights of a layer is sum_p x_np delta_np', over the positions p where the
layer was applied: one for a dense layer, many for a convolution. So the rows x and the deltas say everything about all
per-sample gradients, and are far smaller. They are obtained as the cotangents of *taps*: arguments of the layer that
change nothing forwards, and to which the backward pass hands x and delta.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array, Float, PyTree

from isobatch.networks.layers import Affine

Losses = Callable[[PyTree, PyTree], Float[Array, " n"]]
"""From a network and a pytree of samples [n, ...] to one loss for each, which no other sample has a part in."""
MADE_UP = 7919  # samples while shapes are found out: a prime, so that no other axis has this size


class Tap(eqx.Module):
    x: Array  # [n, ..., In]
    delta: Array  # [n, ..., Out]


@jax.custom_vjp
def _tapped(x: Array, matrix: Array, tap: Tap) -> Array:
    return x @ matrix


def _forwards(x: Array, matrix: Array, tap: Tap) -> tuple[Array, tuple[Array, Array]]:
    return x @ matrix, (x, matrix)


def _backwards(saved: tuple[Array, Array], delta: Array) -> tuple[Array, Array, Tap]:
    x, matrix = saved
    return delta @ matrix.T, jnp.zeros_like(matrix), Tap(x, delta)


_tapped.defvjp(_forwards, _backwards)


class Tapped(eqx.Module):
    layer: Affine
    tap: Tap

    def __call__(self, x: Array) -> Array:
        return _tapped(self.layer.rows(x), self.layer.matrix, self.tap) + self.layer.bias


class Plain(eqx.Module):
    """The layer without the custom gradient of `networks.matmul`, which has no forward mode."""

    layer: Affine

    def __call__(self, x: Array) -> Array:
        return self.layer.rows(x) @ self.layer.matrix + self.layer.bias


class _Recording(eqx.Module):
    layer: Affine
    write: Callable[[Tap], None] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        rows = self.layer.rows(x)
        out = rows @ self.layer.matrix + self.layer.bias
        self.write(Tap(rows, out))
        return out


def is_layer(node: object) -> bool:
    return isinstance(node, Affine)


def swap_layers(network: PyTree, make: Callable[[int, Affine], eqx.Module]) -> PyTree:
    """The network with each layer replaced by make(number, layer)."""
    nodes, structure = jax.tree.flatten(network, is_leaf=is_layer)
    return jax.tree.unflatten(structure, [make(i, node) if is_layer(node) else node for i, node in enumerate(nodes)])


def tap_shapes(losses: Losses, network: PyTree, samples: PyTree) -> dict[int, Tap]:
    """Layer number -> shapes of its rows and deltas for these samples.

    Only of layers that are applied once, to an array with the samples as its first axis: the others are unknown here.
    A layer inside a loop, a vmap or a jit of the losses' own counts as unknown too, since it may be applied again and
    again without being called again.
    """
    recorded: dict[int, list[Tap | None]] = {}

    def shapes(network: PyTree, samples: PyTree) -> Array:
        outside = get_opaque_trace_state()

        def record(i: int, tap: Tap) -> None:
            known = get_opaque_trace_state() == outside and _leads(tap)
            recorded.setdefault(i, []).append(jax.tree.map(jax.typeof, tap) if known else None)

        return losses(swap_layers(network, lambda i, layer: _Recording(layer, partial(record, i))), samples)

    count = num_samples(samples)
    jax.eval_shape(shapes, network, jax.tree.map(partial(_of_count, MADE_UP), samples))
    once = {i: taps[0] for i, taps in recorded.items() if len(taps) == 1}
    return {i: jax.tree.map(partial(_of_count, count), tap) for i, tap in once.items() if tap is not None}


def _leads(tap: Tap) -> bool:
    return all(leaf.ndim >= 2 and leaf.shape[0] == MADE_UP for leaf in (tap.x, tap.delta))


def _of_count(count: int, leaf: Array | jax.core.ShapedArray | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype)


def rows_and_deltas(losses: Losses, network: PyTree, samples: PyTree, shapes: dict[int, Tap]) -> dict[int, Tap]:
    """Rows [n, p, In] and deltas [n, p, Out] of the layers in `shapes`."""

    def total(taps: dict[int, Tap]) -> Array:
        tapped = swap_layers(network, lambda i, layer: Tapped(layer, taps[i]) if i in taps else Plain(layer))
        return jnp.sum(losses(tapped, samples))

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    taps = jax.grad(total)(zeros)
    return jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[0], -1, leaf.shape[-1]), taps)


def num_samples(samples: PyTree) -> int:
    return int(jax.tree.leaves(samples)[0].shape[0])


def in_pieces(samples: PyTree, pieces: int, size: int) -> PyTree:
    """Samples [n, ...] as [pieces, size, ...]; where there are fewer, the last one fills the room."""

    def cut(leaf: Array) -> Array:
        filled = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], pieces * size - len(leaf), axis=0)])
        return filled.reshape(pieces, size, *leaf.shape[1:])

    return jax.tree.map(cut, samples)
