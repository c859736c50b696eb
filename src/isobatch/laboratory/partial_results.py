"""What is finished of a section that takes long: one that was interrupted goes on inside, with the same bits.

A long computation is a sequence of pieces: batches, chains, passes over all samples, or the sums so far. `pieces` hands
out those that are kept, then those that are made, and writes the new ones now and then. When it writes depends on the
time; what the pieces hold does not.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PyTree

from isobatch.files import unwritable
from isobatch.laboratory.results import load, store
from isobatch.settings.parsing import SettingsByName
from isobatch.training.checkpoint_file import CheckpointNote, read_checkpoint, write_checkpoint
from isobatch.training.checkpoints import flatten

R = TypeVar("R")
T = TypeVar("T")  # a tree of arrays
Piece = Mapping[str, ArrayLike]  # arrays by name
MadePiece = dict[str, np.ndarray]
Make = Callable[[int, MadePiece | None], Iterator[Piece]]  # from the number of pieces there are, and the last one
ANEW: Piece = MappingProxyType({})
ENDING = ".parts"
SAVE_SECONDS = 15.0  # between two files of pieces
WORTH_KEEPING = 1.0  # seconds that the last pieces of a computation took, from which on they are written too
SPAN_SECONDS = 2.0  # of what is computed in one call
ROOM = 4  # times as much must be free on the disk as is written: else nothing is kept


@dataclasses.dataclass(frozen=True)
class Begun:
    """What lies beside it belongs to the section of this key."""

    section: str


class PartialResults:
    """Results in a folder beside that of the section, as long as it is not complete; nothing is kept without one."""

    def __init__(self, section: Path | None, key: SettingsByName) -> None:
        self._section, self._key = section, key
        self._begun = False
        self._open: dict[str, _Kept] = {}

    @property
    def folder(self) -> Path | None:
        """Where they are, without those of other settings."""
        if self._section is None:
            return None
        folder = self._section.with_suffix(ENDING)
        if not self._begun:
            if load(folder / "begun.json", self._key, Begun) is None:
                remove_partial_results(self._section)
                store(folder / "begun.json", self._key, Begun(str(self._key["section"])))
            self._begun = True
        return folder

    def load(self, name: str, kind: type[R]) -> R | None:
        return None if self.folder is None else load(self.folder / f"{name}.json", self._key, kind)

    def store(self, name: str, result: R) -> R:
        """The result as it will be read."""
        return result if self.folder is None else store(self.folder / f"{name}.json", self._key, result)

    def pieces(self, name: str, make: Make, only_last: bool = False) -> Iterator[MadePiece]:
        """The pieces of a computation, in order: those that are kept, then those that are made.

        Args:
            name: of the computation, within the section.
            make: gets how many pieces there are and the last one, and yields the others; none, if there are all. Where
                it cannot go on it yields ANEW, which is handed out too, and then all pieces.
            only_last: whether a piece has all that the ones before it have. Then it takes their place, and of those
                that are kept only the last one is handed out.
        """
        kept = _Kept(None if self.folder is None else self.folder / name, only_last)
        if self.folder is not None:
            self._open[name] = kept
        last: MadePiece | None = None
        for last in kept.read():
            yield last
        for made in make(kept.count, last):
            if made is ANEW:
                kept.remove()
                yield {}
                continue
            piece = {leaf: np.asarray(array) for leaf, array in made.items()}  # which waits until it is computed
            kept.add(piece)
            yield piece
        kept.write_if(WORTH_KEEPING)

    def drop(self, name: str) -> None:
        """The pieces of a computation that others have taken up; those are written first."""
        if self.folder is None:
            return
        used = self._open.pop(name)
        if used.is_written:
            for kept in self._open.values():
                kept.write()
        used.remove()


class _Kept:
    """The pieces of one computation in files: each holds some of them, and its name says from which one to which."""

    def __init__(self, folder: Path | None, only_last: bool) -> None:
        self._folder, self._only_last = folder, only_last
        self.count = 0
        self._waiting: list[MadePiece] = []
        self._clock, self._pause = time.monotonic(), SAVE_SECONDS

    @property
    def is_written(self) -> bool:
        return self._folder is not None and self._folder.exists()

    def read(self) -> Iterator[MadePiece]:
        """Those that follow each other without a gap and are not damaged; others are removed."""
        for path in reversed(self._files()) if self._only_last else self._files():
            try:
                begin, end = map(int, path.stem.split("-"))
                if begin != self.count:
                    raise ValueError
                leaves = read_checkpoint(path)[1]
            except (ValueError, OSError):
                path.unlink(missing_ok=True)
                continue
            self.count = end
            for place in range(1 if self._only_last else end - begin):
                prefix = f"{place}/"
                yield {name.removeprefix(prefix): leaf for name, leaf in leaves.items() if name.startswith(prefix)}
        self._clock = time.monotonic()

    def add(self, piece: MadePiece) -> None:
        if self._folder is None:
            return
        self._waiting = [piece] if self._only_last else [*self._waiting, piece]
        self.count += 1
        self.write_if(self._pause)

    def write_if(self, seconds: float) -> None:
        if time.monotonic() - self._clock > seconds:
            self.write()

    def write(self) -> None:
        if self._folder is None or not self._waiting:
            return
        numbered = enumerate(self._waiting)
        leaves = {f"{place}/{name}": leaf for place, piece in numbered for name, leaf in piece.items()}
        begin, clock = 0 if self._only_last else self.count - len(self._waiting), time.monotonic()
        before = self._files() if self._only_last else []
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(self._folder).free > ROOM * sum(leaf.nbytes for leaf in leaves.values()):
                write_checkpoint(self._folder / f"{begin:09d}-{self.count:09d}.pieces", CheckpointNote(), leaves)
                for path in before:
                    path.unlink()
        except OSError as error:
            raise unwritable(f"out={str(self._folder)!r}", error) from None
        self._waiting, self._clock = [], time.monotonic()
        self._pause = max(SAVE_SECONDS, min(10 * (self._clock - clock), 3 * SAVE_SECONDS))

    def remove(self) -> None:
        self.count, self._waiting = 0, []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _files(self) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob("*.pieces"))


NOTHING_KEPT = PartialResults(None, {})


def kept_tree(parts: PartialResults, name: str, make: Callable[[], T], like: Callable[[], T]) -> T:
    """A tree of arrays as a computation of one piece; `like` has its structure."""
    made: list[T] = []

    def once(first: int, last: MadePiece | None) -> Iterator[Piece]:
        if not first:
            made.append(make())
            yield named(made[0], "tree")

    (piece,) = parts.pieces(name, once)
    return made[0] if made else jax.tree.map(jnp.asarray, taken(like(), piece, "tree"))


def named(tree: PyTree, name: str) -> MadePiece:
    """The leaves of a tree, for a piece."""
    return {f"{name}/{path}": leaf for path, leaf in flatten(tree).items()}


def taken(like: T, piece: MadePiece, name: str) -> T:
    """A tree like another one, with its leaves from a piece."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]
    return jax.tree.unflatten(structure, [piece[f"{name}/{path}"] for path in names])


def spans(first: int, count: int) -> Iterator[tuple[int, int]]:
    """`first` to `count` in spans (begin, end) of about SPAN_SECONDS, by the time that the caller takes for each."""
    size = 1
    while first < count:
        clock, end = time.monotonic(), min(first + size, count)
        yield first, end
        seconds = max(time.monotonic() - clock, 1e-6)
        first, size = end, max(1, min(2 * size, int(size * SPAN_SECONDS / seconds)))


def remove_partial_results(section: Path | None) -> None:
    """Of a section that is complete, or of another one at its place."""
    if section is not None:
        shutil.rmtree(section.with_suffix(ENDING), ignore_errors=True)
