"""What the numbers of a section depend on: a result that is kept is read only where all of it is the same."""

from __future__ import annotations

import dataclasses
import hashlib

import jax
import numpy as np

from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.results import FORMAT
from isobatch.laboratory.sections import ON_REQUEST
from isobatch.laboratory.subject import Subject
from isobatch.settings.parsing import SettingsByName, plain_json


def key_of(subject: Subject, iteration: int, section: str) -> SettingsByName:
    """All that the numbers of a section depend on."""
    options = dataclasses.asdict(subject.options)
    options.pop("sections")
    if section not in (*ON_REQUEST, "plan"):
        options = {name: value for name, value in options.items() if not name.startswith("branch_")}
    settings = subject.config.to_dict() | {"iteration": iteration, "weights": fingerprint(subject)}
    return {"format": FORMAT, "section": section, "settings": settings, "options": plain_json(options)}


def fingerprint(subject: Subject) -> str:
    """Of the networks' weights: two runs that differ in their seed alone may be measured into one directory."""
    if isinstance(subject.trained, ExternalPolicy):
        return subject.trained.fingerprint
    leaves = jax.tree.leaves(subject.trained.networks)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()[:16]
