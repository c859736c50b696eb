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
from dataclasses import dataclass, field
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from isobatch.errors import UsageError
from isobatch.formatting import byte_text
from isobatch.laboratory.layers import Losses, Tap, in_pieces, is_layer, num_samples, rows_and_deltas, tap_shapes
from isobatch.training.memory import SHARE, available_bytes

MICROBATCH_BYTES = 32e6  # rows and deltas that are held at once: few, so that they stay in the cache
STORED_BYTES = 2e9  # of what is kept of all samples while one group of layers is worked on
BLOCK = 1024  # rows and columns of the result that are computed at once
OTHERS = -1  # the number of the parameters outside the known layers


@dataclass(frozen=True)
class ProductMethod:
    """How the inner products of one layer are computed."""

    factored: bool
    positions: int
    inputs: int  # with the one for the bias
    outputs: int

    @classmethod
    def of(cls, tap: Tap) -> ProductMethod:
        """The cheaper way for a layer with rows and deltas of this shape."""
        positions, inputs, outputs = math.prod(tap.x.shape[1:-1]), tap.x.shape[-1] + 1, tap.delta.shape[-1]
        return cls(positions**2 * (inputs + outputs) < inputs * outputs, positions, inputs, outputs)

    @property
    def stored(self) -> int:
        """Numbers that are kept of each sample."""
        return self.positions * (self.inputs + self.outputs) if self.factored else self.inputs * self.outputs


@dataclass(frozen=True)
class GramPlan:
    """What is done in which order, for a network and samples of given shapes."""

    methods: dict[int, ProductMethod] = field(hash=False)
    groups: tuple[tuple[int, ...], ...]  # layers whose numbers are kept at the same time; one backward pass each
    microbatch: int
    others: int  # parameters outside the known layers

    def bytes(self, samples: int) -> int:
        """Memory at its highest: the result, two matrices of its size at work, what is stored, one microbatch."""
        stored = max(sum(self._stored(layer) for layer in group) for group in self.groups)
        return int(number_bytes() * samples * (3 * samples + stored) + 4 * MICROBATCH_BYTES)

    def _stored(self, layer: int) -> int:
        return self.others if layer == OTHERS else self.methods[layer].stored


def plan(losses: Losses, network: PyTree, samples: PyTree) -> GramPlan:
    """Choose the methods, and cut the layers into groups that fit into STORED_BYTES."""
    count = num_samples(samples)
    shapes = tap_shapes(losses, network, samples)
    methods = {i: ProductMethod.of(tap) for i, tap in shapes.items()}
    others = sum(leaf.size for leaf in jax.tree.leaves(_other_parameters(network, methods)))
    active = others + sum(method.positions * (method.inputs + method.outputs) for method in methods.values())
    most = int(np.clip(MICROBATCH_BYTES / number_bytes() / max(active, 1), 1, count))
    microbatch = -(-count // -(-count // most))  # as few microbatches as possible, of nearly equal size
    sizes = {i: method.stored for i, method in methods.items()} | ({OTHERS: others} if others else {})
    groups: list[list[int]] = []
    room = 0.0
    for layer, size in sizes.items():
        if not groups or size > room:
            groups.append([])
            room = STORED_BYTES / number_bytes() / count
        groups[-1].append(layer)
        room -= size
    return GramPlan(methods, tuple(map(tuple, groups)), microbatch, others)


def number_bytes() -> int:
    return int(jnp.result_type(float).itemsize)


def gram(losses: Losses, network: PyTree, samples: PyTree) -> Float[Array, "n n"]:
    """g_i . g_j of the per-sample gradients of a loss, exactly, without holding n x P numbers.

    Dense layers by their inputs and deltas, (x_i . x_j)(d_i . d_j): Goodfellow 2015, https://arxiv.org/abs/1510.01799.

    Args:
        losses: (network, samples) -> losses [n].
        network: a pytree of parameters; its layers of this package are the fast ones.
        samples: a pytree of arrays [n, ...].

    Returns:
        The Gram matrix [n, n], for `isobatch.gradients`.

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> def losses(weights, samples):  # [P], [n, P] -> [n]
        ...     return samples @ weights
        >>> weights, samples = jnp.zeros(2), jnp.array([[1.0, 0.0], [1.0, 2.0]])
        >>> ib.laboratory.gram(losses, weights, samples).tolist()
        [[1.0, 1.0], [1.0, 5.0]]
    """
    return _gram(losses, plan(losses, network, samples), network, samples)


@cache
def compiled_gram(losses: Losses) -> Callable[[PyTree, PyTree], Array]:
    """`gram` of one kind of loss, for many sets of samples: what is planned and compiled for their shapes is kept.

    Args:
        losses: (network, samples) -> losses [n].

    Returns:
        A function (network, samples) -> the Gram matrix [n, n].

    Example:
        >>> import isobatch as ib, jax.numpy as jnp
        >>> def losses(weights, samples):  # [P], [n, P] -> [n]
        ...     return samples @ weights
        >>> weights, samples = jnp.zeros(2), jnp.array([[1.0, 0.0], [1.0, 2.0]])
        >>> ib.laboratory.compiled_gram(losses)(weights, samples).tolist()
        [[1.0, 1.0], [1.0, 5.0]]
    """
    plans: dict[tuple[object, ...], GramPlan] = {}

    def run(network: PyTree, samples: PyTree) -> Array:
        leaves, structure = jax.tree.flatten((network, samples))
        shapes = (structure, *((leaf.shape, leaf.dtype) for leaf in leaves), number_bytes())
        if shapes not in plans:
            plans[shapes] = plan(losses, network, samples)
        return _gram(losses, plans[shapes], network, samples)

    return run


def _gram(losses: Losses, made: GramPlan, network: PyTree, samples: PyTree) -> Float[Array, "n n"]:
    count = num_samples(samples)
    check_memory(made.bytes(count), f"{count} samples")
    blocks, block = _blocks(count)
    total = jnp.zeros((blocks * block, blocks * block))
    for group in made.groups:
        # Compiled one by one, so that what one group keeps is dropped before the next begins.
        total = _add_group(losses, made, group, total, network, samples)
    return _mirrored(total, block)[:count, :count]


def _blocks(count: int) -> tuple[int, int]:
    """How many blocks the rows are cut into, and their size; the last one may reach beyond the samples."""
    blocks = -(-count // BLOCK)
    return blocks, -(-count // blocks)


def check_memory(
    need: int, what: str, lower: str = "the budget (or the longest geometry), or use a random projection"
) -> None:
    there = available_bytes()
    if there is not None and need > SHARE * there:
        raise UsageError(
            f"inner products of the gradients of {what} need {byte_text(need)}, and {byte_text(int(SHARE * there))} "
            f"are available: lower {lower}."
        )


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _add_group(
    losses: Losses, made: GramPlan, group: tuple[int, ...], total: Array, network: PyTree, samples: PyTree
) -> Array:
    """One backward pass over all samples, microbatch by microbatch, then the products of this group's layers."""
    pieces = in_pieces(samples, -(-len(total) // made.microbatch), made.microbatch)
    kept = jax.lax.map(partial(_keep, losses, made, group, network), pieces)
    for numbers in kept.values():
        whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), numbers)
        total = _add_products(total, whole, num_samples(samples))
    return total


def _add_products(total: Float[Array, "m m"], numbers: PyTree, count: int) -> Float[Array, "m m"]:
    """Add g_i . g_j of a layer, block by block, on the diagonal and below it: the result is symmetric.

    A loop, since XLA may begin all blocks of an unrolled one at the same time, and hold a copy of the numbers for each.
    """
    blocks, block = _blocks(count)
    below = jnp.asarray([(i, j) for i in range(blocks) for j in range(i + 1)]) * block

    def cut(start: Array, leaf: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(leaf, start, block)

    def add(total: Array, corner: Array) -> tuple[Array, None]:
        rows, columns = (jax.tree.map(partial(cut, start), numbers) for start in corner)
        there = jax.lax.dynamic_slice(total, corner, (block, block))
        return jax.lax.dynamic_update_slice(total, there + _products(rows, columns), corner), None

    return jax.lax.scan(add, total, below)[0]


@partial(jax.jit, static_argnums=1, donate_argnums=0)
def _mirrored(total: Float[Array, "m m"], block: int) -> Float[Array, "m m"]:
    """With the blocks below the diagonal above it too."""
    # By blocks: a select between all of it and its transpose crashes XLA's CPU backend (jaxlib 0.10.2, n = 1024).
    for start in range(block, len(total), block):
        total = total.at[:start, start : start + block].set(total[start : start + block, :start].T)
    return total


def _keep(
    losses: Losses, made: GramPlan, group: tuple[int, ...], network: PyTree, samples: PyTree
) -> dict[int, PyTree]:
    """What is kept of a microbatch: rows and deltas (factored), or explicit gradients, for each layer of the group."""
    shapes = {i: tap for i, tap in tap_shapes(losses, network, samples).items() if i in group}
    taps = rows_and_deltas(losses, network, samples, shapes)
    kept: dict[int, PyTree] = {}
    for i, tap in taps.items():
        rows = jnp.concatenate([tap.x, jnp.ones_like(tap.x[..., :1])], axis=-1)
        if made.methods[i].factored:
            kept[i] = (rows, tap.delta)
        else:
            kept[i] = jnp.einsum("npi,npo->nio", rows, tap.delta).reshape(rows.shape[0], -1)
    if OTHERS in group:
        kept[OTHERS] = _other_gradients(losses, made.methods, network, samples)
    return kept


def _products(left: PyTree, right: PyTree) -> Float[Array, "m n"]:
    """g_i . g_j for samples i on the left and j on the right, of what is kept of a layer."""
    if not isinstance(left, tuple):
        return left @ right.T
    (rows_i, deltas_i), (rows_j, deltas_j) = left, right
    positions = rows_i.shape[1]
    if positions == 1:
        return (rows_i[:, 0] @ rows_j[:, 0].T) * (deltas_i[:, 0] @ deltas_j[:, 0].T)

    def add(pair: Array, total: Array) -> Array:
        p, q = pair // positions, pair % positions
        return total + (rows_i[:, p] @ rows_j[:, q].T) * (deltas_i[:, p] @ deltas_j[:, q].T)

    return jax.lax.fori_loop(0, positions**2, add, jnp.zeros((len(rows_i), len(rows_j)), rows_i.dtype))


def _other_parameters(network: PyTree, methods: dict[int, ProductMethod]) -> dict[int, PyTree]:
    """The parts of the network that no way is known for, by number."""
    nodes = jax.tree.leaves(network, is_leaf=is_layer)
    return {i: node for i, node in enumerate(nodes) if i not in methods}


def _other_gradients(
    losses: Losses, methods: dict[int, ProductMethod], network: PyTree, samples: PyTree
) -> Float[Array, "n R"]:
    """Per-sample gradients of those parts."""
    nodes, structure = jax.tree.flatten(network, is_leaf=is_layer)

    def loss(others: dict[int, PyTree], sample: PyTree) -> Array:
        whole = jax.tree.unflatten(structure, [others.get(i, node) for i, node in enumerate(nodes)])
        return losses(whole, jax.tree.map(lambda leaf: leaf[None], sample))[0]

    def gradient(sample: PyTree) -> Array:
        return ravel_pytree(jax.grad(loss)(_other_parameters(network, methods), sample))[0]

    return jax.vmap(gradient)(samples)
