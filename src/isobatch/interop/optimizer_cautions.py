"""What settings of other libraries say about optimizers that there is no counterpart of here: weight decay and Muon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from isobatch.interop.keys import leaves
from isobatch.rescaling.cautions import muon_step_size, weight_decay_stays
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName

NUMBER = r"[\"']?\s*[=:]\s*([-+.\deE]+)"
DECAY_IN_TEXT = re.compile(r"weight_decay" + NUMBER)  # of text such as dict(optimizer_kwargs=dict(weight_decay=1e-4))


def optimizer_cautions(settings: SettingsByName, before: Config, after: Config) -> list[str]:
    """A sentence for each weight decay that is not 0, and one for Muon; nothing if no size of a step changes."""
    if before.geometry.optimization_batch == after.geometry.optimization_batch:
        return []
    decays = [weight_decay_stays(name, decay, before, after) for name, decay in _decays(settings) if decay]
    return [*decays, *(muon_step_size(name) for name in _named_muon(settings))]


def _decays(settings: SettingsByName) -> Iterator[tuple[str, float]]:
    for leaf, value in leaves(settings):
        if leaf.split(".")[-1] == "weight_decay":
            if isinstance(value, int | float | str):
                with suppress(ValueError):
                    yield leaf, float(value)
        elif isinstance(value, str):
            yield from ((f"weight_decay of {leaf}", float(number)) for number in DECAY_IN_TEXT.findall(value))


def _named_muon(settings: SettingsByName) -> Iterator[str]:
    for leaf, value in leaves(settings):
        if "optimizer" in leaf.split(".")[-1] and isinstance(value, str) and "muon" in value.lower():
            yield f"{leaf}={value}"
