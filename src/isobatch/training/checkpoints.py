"""Checkpoints: the whole training state, written by orbax in the background, atomically and without pickle.

A state is stored as a flat mapping from the path of a leaf to its array, with a digest of all bits. What does
not match its digest is not used: a damaged checkpoint is skipped in favor of the one before it. An axis that is empty
in a new state is one that grows: what is restored may have any length there.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

logging.getLogger("absl").setLevel(logging.ERROR)  # orbax reports every step of a save at WARNING


class Checkpoints:
    """The checkpoints of one run, by iteration."""

    def __init__(self, directory: Path, keep: int = 3, read_only: bool = False) -> None:
        kept = preservation_policy.AnyPreservationPolicy(
            [
                preservation_policy.LatestN(keep),
                preservation_policy.BestN(get_metric_fn=lambda metrics: metrics["score"], n=1),
            ]
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=None if read_only else kept,
            step_format_fixed_length=9,
            read_only=read_only,
            create=not read_only,
        )
        self._manager = ocp.CheckpointManager(directory.absolute(), options=options, item_names=("state", "about"))

    def iterations(self) -> list[int]:
        """Iterations that have a complete checkpoint, oldest first."""
        return sorted(self._manager.all_steps())

    def best(self) -> int | None:
        return self._manager.best_step()

    def save(self, iteration: int, states: Any, score: float) -> None:
        """Copy the state and write it in the background. `score` decides which one is the best."""
        leaves = {name: leaf for name, leaf in flatten(states).items() if leaf.size}  # orbax stores no empty arrays
        self._manager.save(
            iteration,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(leaves), about=ocp.args.JsonSave({"digest": digest(leaves)})
            ),
            metrics={"score": score if math.isfinite(score) else -1e30},
            force=True,
        )

    def restore(self, iteration: int, template: Any) -> Any:
        """The state of this iteration in the shape of `template`; ValueError if it is damaged."""
        try:
            stored = self._manager.restore(
                iteration,
                args=ocp.args.Composite(state=ocp.args.StandardRestore(), about=ocp.args.JsonRestore()),
            )
            leaves, expected = stored["state"], stored["about"]["digest"]
        except Exception as error:  # orbax and tensorstore raise many kinds, all of which mean: unreadable
            raise ValueError(f"cannot be read ({type(error).__name__})") from error
        if digest(leaves) != expected:
            raise ValueError("does not match its digest")
        return unflatten(template, leaves)

    def restore_newest(self, template: Any, say: Callable[[str], None]) -> tuple[int, Any] | None:
        """The newest good state, saying which ones were skipped; None if there is no good one."""
        for iteration in reversed(self.iterations()):
            try:
                return iteration, self.restore(iteration, template)
            except ValueError as error:
                say(f"checkpoint {iteration} {error}: falling back to the one before it.")
        return None

    def close(self) -> None:
        """Wait for the write in progress."""
        self._manager.wait_until_finished()
        self._manager.close()


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Path of each leaf -> its array on the host; random keys as their integers."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): _to_host(leaf) for path, leaf in leaves}


def unflatten(template: Any, leaves: dict[str, np.ndarray]) -> Any:
    """A tree like `template` with these leaves; ValueError where names, shapes or types differ."""
    expected = flatten(template)
    leaves = {name: leaf for name, leaf in expected.items() if not leaf.size} | leaves
    odd = sorted(expected.keys() ^ leaves.keys()) + [
        name for name in expected.keys() & leaves.keys() if not _fits(leaves[name], expected[name])
    ]
    if odd:
        raise ValueError(f"holds other arrays than this configuration has (first: {odd[0]})")
    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    ordered = [leaves[jax.tree_util.keystr(path, simple=True, separator="/")] for path, _ in paths]
    restored = [_from_host(like, leaf) for (_, like), leaf in zip(paths, ordered, strict=True)]
    return jax.tree_util.tree_unflatten(structure, restored)


def _fits(leaf: np.ndarray, expected: np.ndarray) -> bool:
    sizes = zip(leaf.shape, expected.shape, strict=False)
    return (leaf.dtype, leaf.ndim) == (expected.dtype, expected.ndim) and all(n == e or e == 0 for n, e in sizes)


def digest(leaves: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and bits."""
    total = hashlib.sha256()
    for name in sorted(leaves):
        array = np.ascontiguousarray(leaves[name])
        total.update(f"{name}:{array.dtype}:{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _to_host(leaf: Any) -> np.ndarray:
    # A real copy: the buffer behind a device array is handed to the next chunk and overwritten.
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.array(jax.random.key_data(leaf) if is_key else leaf)


def _from_host(like: Any, leaf: np.ndarray) -> Any:
    is_key = jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key)
    array = jax.numpy.asarray(leaf)
    return jax.random.wrap_key_data(array) if is_key else array
