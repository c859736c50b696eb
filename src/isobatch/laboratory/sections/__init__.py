"""The sections of a diagnosis, in order: one file each, named like the section.

A section is a class like `section.Section`. To add one, add its file, and its name and class here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobatch.laboratory.sections.section import Section

_CLASSES = {
    "geometries": "Geometries",
    "lambdas": "Lambdas",
    "lags": "Lags",
    "cosines": "Cosines",
    "minibatches": "Minibatches",
    "trust-region": "TrustRegion",
    "aggregations": "Aggregations",
    "branches": "Branches",
}
SECTIONS = tuple(_CLASSES)
ON_REQUEST = ("branches",)  # they train, so `all` does not have them
ALL = tuple(name for name in SECTIONS if name not in ON_REQUEST)


def section_class(name: str) -> type[Section]:
    """Loaded when it is needed: flags know the names of sections without JAX."""
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    section: type[Section] = getattr(module, _CLASSES[name])
    return section
