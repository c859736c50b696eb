"""How much of their return tuned settings kept at another number of environments, by the way they were moved.

kept.json has what the study `transfer` measured; docs/results/studies.py writes it from the rows of that study.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from isobatch.formatting import counted, percent
from isobatch.settings.config import Config

FILE = "kept.json"


@dataclass(frozen=True)
class Kept:
    """The share of the base's final return that a way kept, with its 95 % interval."""

    way: str
    """What was held, as `rescale` names it (`keep`)."""
    algo: str
    """ppo, or ppo-ewma: PPO's settings converted."""
    times: float
    """Environments, of the base's own number."""
    value: float
    low: float
    high: float
    tasks: int

    def __str__(self) -> str:
        return percent(self)


@cache
def measurements() -> tuple[Kept, ...]:
    text = (resources.files("isobatch.rescaling") / FILE).read_text(encoding="utf-8")
    return tuple(Kept(**entry) for entry in json.loads(text))


def kept_by(way: str, before: Config, num_envs: int) -> Kept | None:
    """What was measured of a way, at the size nearest to the one asked for in the same direction; PPO's alone.

    An averaged proximal policy has figures of its own where the batch changes; where it stays those of PPO stand.
    """
    if before.objective != "clip" or num_envs == before.num_envs:
        return None
    asked = math.log(num_envs / before.num_envs)
    algo = "ppo-ewma" if before.proximal_policy == "ewma" else "ppo"
    known = [one for one in measurements() if one.way == way and (one.times > 1) == (asked > 0)]
    known = [one for one in known if one.algo == algo] or [one for one in known if one.algo == "ppo"]
    return min(known, key=lambda one: abs(math.log(one.times) - asked), default=None)


def sentence(found: Sequence[Kept]) -> str:
    """The ways and what they kept, in words."""
    times = found[0].times
    size = f"1/{1 / times:g} of" if times < 1 else f"{times:g} times"
    each = [f"{one.way} kept {one} ({counted(one.tasks, 'task')})" for one in found]
    return (
        f"measured on settings of PPO that others tuned, final return with {size} their environments: {', '.join(each)}"
    )
