"""The checkpoints of a run: the whole training state, written in the background.

What does not match its digest is not used: a damaged checkpoint is passed over in favor of the one before it. An axis
that is empty in a new state is one that grows: what is restored may have any length there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from isobatch.errors import RunError
from isobatch.files import DRAFT
from isobatch.training.checkpoint_file import CheckpointNote, Leaves, read_checkpoint, read_note, write_checkpoint
from isobatch.training.sharding import is_key

ENDING = ".checkpoint"
T = TypeVar("T")  # a tree of arrays
Shaped = Array | np.ndarray | np.generic | jax.ShapeDtypeStruct


class Checkpoints:
    """A directory of them, by iteration. Of a run in progress one may vanish at any time: FileNotFoundError."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        """`keep` of the newest stay, and the best one."""
        self._directory, self._keep = directory, keep
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def path(self, iteration: int) -> Path:
        return self._directory / f"{iteration:09d}{ENDING}"

    def iterations(self) -> list[int]:
        """Iterations that have a checkpoint, oldest first."""
        there = self._directory.iterdir() if self._directory.is_dir() else ()
        names = [path.name.removesuffix(ENDING) for path in there if path.suffix == ENDING and path.is_file()]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def notes(self) -> dict[int, CheckpointNote | None]:
        """What they say of themselves, oldest first; None where that is damaged."""
        notes: dict[int, CheckpointNote | None] = {}
        for iteration in self.iterations():
            try:
                notes[iteration] = read_note(self.path(iteration))
            except ValueError:
                notes[iteration] = None
            except OSError:  # it vanished, or nobody can say anything about it
                continue
        return notes

    def best(self) -> int | None:
        """The one of the highest score, the newest of several; the newest of all where none has a score."""
        return best_of(self.notes())

    def restore(self, iteration: int, template: T) -> T:
        """The state of this iteration in the shape of `template`; ValueError if it is damaged."""
        return unflatten(template, self._read(iteration)[1])

    def _read(self, iteration: int) -> tuple[CheckpointNote, Leaves]:
        try:
            return read_checkpoint(self.path(iteration))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ValueError(f"cannot be read ({error.strerror})") from None

    def restore_newest(
        self, template: T, say: Callable[[str], None], check: Callable[[CheckpointNote], None] = lambda note: None
    ) -> tuple[int, T] | None:
        """The newest good state, saying which ones were passed over; None if there is no good one.

        `check` raises ValueError where a checkpoint is not to be used.
        """
        passed_over: set[int] = set()
        while there := [iteration for iteration in self.iterations() if iteration not in passed_over]:
            try:
                note, leaves = self._read(there[-1])
                check(note)
                return there[-1], unflatten(template, leaves)
            except FileNotFoundError:  # a newer one has taken its place
                continue
            except ValueError as error:
                say(f"checkpoint {there[-1]} {error}: it is passed over.")
                passed_over.add(there[-1])
        return None

    def save(
        self,
        iteration: int,
        states: PyTree,
        note: CheckpointNote | None = None,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the state and write it in the background, `first` before it; replaces what is there."""
        self.wait()  # at most one copy of the state
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "checkpoints")
        leaves = flatten(states)

        def write() -> None:
            first()
            self._directory.mkdir(exist_ok=True)
            write_checkpoint(self.path(iteration), note or CheckpointNote(), leaves)
            self._prune(iteration)

        self._writing = self._writer.submit(write)

    def _prune(self, newest: int) -> None:
        """What a run without interruptions would have left; later ones stay until they are replaced."""
        notes = {iteration: note for iteration, note in self.notes().items() if iteration <= newest}
        regular = [iteration for iteration, note in notes.items() if note is not None and not note.interim]
        for iteration in notes.keys() - {newest, best_of(notes), *regular[-self._keep :]}:
            self.path(iteration).unlink(missing_ok=True)
        for path in self._directory.iterdir():
            if path.suffix == DRAFT:  # of a process that was killed
                path.unlink(missing_ok=True)

    def wait(self) -> None:
        """For the write in progress; RunError if it failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                writing.result()
            except OSError as error:
                raise RunError(
                    f"{str(self._directory)!r} cannot be written ({error.strerror}): make room, or make it writable, "
                    "and resume the run; the checkpoints before are kept."
                ) from None

    def close(self) -> None:
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()


def best_of(notes: dict[int, CheckpointNote | None]) -> int | None:
    scores = {iteration: note.score for iteration, note in notes.items() if note and note.score is not None}
    return max(scores, key=lambda i: (scores[i], i)) if scores else max(notes, default=None)


def flatten(tree: PyTree) -> Leaves:
    """Path of each leaf -> its array on the host; random keys as their integers."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): _to_host(leaf) for path, leaf in leaves}


def unflatten(template: T, leaves: Leaves) -> T:
    """A tree like `template` with these leaves; ValueError where names, shapes or types differ."""
    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]
    expected = dict(zip(names, (_on_host(leaf) for _, leaf in paths), strict=True))
    odd = sorted(expected.keys() ^ leaves.keys()) + [
        name for name in expected.keys() & leaves.keys() if not _fits(leaves[name], expected[name])
    ]
    if odd:
        raise ValueError(f"holds other arrays than this configuration has (first: {odd[0]})")
    restored = [_from_host(like, leaves[name]) for (_, like), name in zip(paths, names, strict=True)]
    return jax.tree_util.tree_unflatten(structure, restored)


def _fits(leaf: np.ndarray, expected: Shaped) -> bool:
    sizes = zip(leaf.shape, expected.shape, strict=False)
    return (leaf.dtype, leaf.ndim) == (expected.dtype, expected.ndim) and all(n == e or e == 0 for n, e in sizes)


def _on_host(leaf: Shaped) -> Shaped:
    """Shape and type of what `_to_host` makes, without making it."""
    return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf


def _to_host(leaf: ArrayLike) -> np.ndarray:
    # A real copy: the buffer behind a device array is handed to the next chunk and overwritten.
    return np.array(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _from_host(like: Shaped, leaf: np.ndarray) -> Array:
    array = jax.numpy.asarray(leaf)
    return jax.random.wrap_key_data(array) if is_key(like) else array
