"""What was measured, kept section by section: one JSON file each, written when the section is complete."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from isobatch.errors import UsageError
from isobatch.files import replace_file
from isobatch.laboratory.results import from_json, to_json
from isobatch.laboratory.subject import Subject
from isobatch.settings.parsing import plain_json

FORMAT = 9  # of the files; what another version measured is measured again
Key = dict[str, Any]
R = TypeVar("R")


def key_of(subject: Subject, iteration: int, section: str) -> Key:
    """All that the numbers of a section depend on."""
    options = dataclasses.asdict(subject.options)
    options.pop("sections")
    settings = subject.config.to_dict() | {"iteration": iteration, "weights": fingerprint(subject)}
    return {"format": FORMAT, "section": section, "settings": settings, "options": plain_json(options)}


def fingerprint(subject: Subject) -> str:
    """Of the networks' weights: two runs that differ in their seed alone may be measured into one directory."""
    leaves = jax.tree.leaves(subject.state.networks)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()[:16]


def load(path: Path, key: Key, kind: type[R]) -> R | None:
    """What a file holds, if it was measured with the same settings."""
    try:
        content = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return from_json(kind, content["result"]) if content.get("key") == key else None


def store(path: Path, key: Key, result: R) -> R:
    """Write a result, and return it as it will be read."""
    content = to_json(result)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"key": key, "result": content}, indent=1) + "\n")
    except OSError as error:
        raise UsageError(
            f"out={str(path.parent)!r} cannot be written ({error.strerror}): name another place."
        ) from None
    return from_json(type(result), content)
