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

    @property
    def size(self) -> str:
        """The number of environments, as it reads before "their environments"."""
        return f"1/{1 / self.times:g} of" if self.times < 1 else f"{self.times:g} times"

    def __str__(self) -> str:
        return percent(self)


@cache
def measurements() -> tuple[Kept, ...]:
    text = (resources.files("isobatch.rescaling") / FILE).read_text(encoding="utf-8")
    return tuple(Kept(**entry) for entry in json.loads(text))


def kept_by(way: str, before: Config, num_envs: float) -> Kept | None:
    """What was measured of a way, at the size nearest to the one asked for in the same direction; PPO's alone.

    An averaged proximal policy has figures of its own where the batch changes; where it stays those of PPO stand.
    """
    other_kind = before.objective != "clip" or before.policy_iterations_per_phase or before.lr_schedule == "adaptive"
    if other_kind or num_envs == before.num_envs:
        return None
    asked = math.log(num_envs / before.num_envs)
    algo = "ppo-ewma" if before.proximal_policy == "ewma" else "ppo"
    known = [one for one in measurements() if one.way == way and (one.times > 1) == (asked > 0)]
    known = [one for one in known if one.algo == algo] or [one for one in known if one.algo == "ppo"]
    return min(known, key=lambda one: abs(math.log(one.times) - asked), default=None)


def better_than(way: str, other: str, before: Config, num_envs: float) -> tuple[Kept, Kept] | None:
    """What was measured of `way` and of `other`, if the interval of `other` is wholly above; else nothing.

    Nothing either where they were measured of different algorithms, or more than twice as far from the settings as
    anything that was measured.
    """
    one, two = kept_by(way, before, num_envs), kept_by(other, before, num_envs)
    if one is None or two is None or one.algo != two.algo or two.low <= one.high:
        return None
    beyond = abs(math.log(num_envs / before.num_envs)) - abs(math.log(one.times))
    return (one, two) if beyond <= math.log(2) + 1e-9 else None


def sentence(measured: Sequence[Kept]) -> str:
    """The ways and what they kept, in words."""
    each = [f"{one.way} kept {one} ({counted(one.tasks, 'task')})" for one in measured]
    what = f"final return with {measured[0].size} their environments"
    return f"measured on settings of PPO that others tuned, {what}: {', '.join(each)}"
