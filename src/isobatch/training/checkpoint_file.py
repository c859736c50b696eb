"""One checkpoint as one file, which holds nothing that could be executed.

    one line of JSON     what the checkpoint says of itself, and name, type and shape of each array
    the arrays           their bits, in this order, little-endian
    32 bytes             SHA-256 of everything before

An array is hashed as it is written or read, so that a state of many gigabytes is in memory once. All arrays are whole,
however many processes trained them: each of them can read the parts that it needs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from isobatch.files import draft_of
from isobatch.training.metrics_file import Mark

FORMAT = "isobatch checkpoint 1"
LONGEST_HEADER = 1 << 26  # bytes
DIGEST_BYTES = 32

Leaves = dict[str, np.ndarray]  # path of a leaf -> its array


@dataclasses.dataclass(frozen=True)
class CheckpointNote:
    """What a checkpoint says of itself."""

    score: float | None = None  # mean return of the episodes since the one before
    interim: bool = False  # left by a run that was stopped between two checkpoints: stays until the next one
    metrics: Mark | None = None  # `metrics.csv` at that time


def write_checkpoint(path: Path, note: CheckpointNote, leaves: Leaves) -> None:
    """All at once, and on disk when this returns."""
    arrays = [(name, array.dtype.name, array.shape) for name, array in leaves.items()]
    header = json.dumps({"format": FORMAT, **dataclasses.asdict(note), "arrays": arrays}) + "\n"
    with draft_of(path) as draft, draft.open("xb") as file:
        digest = hashlib.sha256()
        for piece in (np.frombuffer(header.encode(), np.uint8), *map(as_bytes, leaves.values())):
            file.write(piece.data)
            digest.update(piece.data)
        file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the name too
    finally:
        os.close(directory)


def read_note(path: Path) -> CheckpointNote:
    """What it says of itself, unchecked; ValueError if it is no checkpoint."""
    with path.open("rb") as file:
        return parse_header(file.readline(LONGEST_HEADER))[0]


def read_checkpoint(path: Path) -> tuple[CheckpointNote, Leaves]:
    """ValueError if anything in it is not as it was written."""
    with path.open("rb") as file:
        header = file.readline(LONGEST_HEADER)
        note, arrays = parse_header(header)
        sizes = [dtype.itemsize * math.prod(shape) for _, dtype, shape in arrays]
        if os.fstat(file.fileno()).st_size != len(header) + sum(sizes) + DIGEST_BYTES:
            raise ValueError("is not as long as it says")
        digest, leaves = hashlib.sha256(header), {}
        for (name, dtype, shape), size in zip(arrays, sizes, strict=True):
            piece = read_bytes(file, size)
            digest.update(piece.data)
            leaves[name] = piece.view(dtype).reshape(shape)
        if file.read() != digest.digest():
            raise ValueError("does not match its digest")
        return note, leaves


def parse_header(line: bytes) -> tuple[CheckpointNote, list[tuple[str, np.dtype, tuple[int, ...]]]]:
    try:
        header = json.loads(line)
        if header.pop("format") != FORMAT:
            raise ValueError
        arrays = [(str(name), np.dtype(kind), tuple(map(int, shape))) for name, kind, shape in header.pop("arrays")]
        note = CheckpointNote(**header)
        metrics = None if note.metrics is None else Mark(*note.metrics)
        if any(dtype.hasobject or min(shape, default=0) < 0 for _, dtype, shape in arrays):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("is no checkpoint, or a damaged one") from None
    return dataclasses.replace(note, metrics=metrics), arrays


def as_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def read_bytes(file: BinaryIO, size: int) -> np.ndarray:
    piece = np.empty(size, np.uint8)
    done = 0
    while done < size:
        count = file.readinto(piece.data[done:])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("ends early")
        done += count
    return piece
