"""Step sizes that follow the KL divergence: what such a controller will do, and how its target goes with the batch.

The KL divergence between the policy that collected the data and the current one grows over the gradient steps of an
iteration, so a target for it is one per *iteration*. With a step size a and G gradient steps, noise moves the policy by
about a sqrt(G) and signal by a G, and the divergence is quadratic in that: KL ~ a^2 G where noise dominates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from isobatch.formatting import counted, rounded
from isobatch.settings.config import Config


@dataclass(frozen=True)
class KlControl:
    """A target for the KL divergence, under the name that a library has for it, and what happens off the target."""

    setting: str
    target: float
    kind: Literal["adaptive", "stop"]
    """adaptive: the learning rate follows; stop: the epochs of an iteration end early."""
    per: str = "minibatch"
    """What the divergence is a mean over when it is looked at."""
    factor: float = 1.5
    """adaptive: of the learning rate; stop: the target times this ends the epochs."""
    low: float = 1e-5
    high: float = 1e-2
    """Bounds of the learning rate."""

    def target_at(self, c: float) -> float:
        """The target that holds how far the policy moves per environment step, iteration batches divided by c.

        c iterations take the place of one. Where noise dominates, c divergences of 1/c add up to the old one (with the
        square-root rule a' = a/sqrt(c) and equally many gradient steps KL ~ a^2 G comes out as 1/c of the old one, so
        rate and target agree). Where signal dominates it would be 1/c^2.
        """
        return self.target / c


def kl_sentences(control: KlControl, before: Config, after: Config) -> list[str]:
    """What the controller will do with the settings after, and what the change of the batch means for its target."""
    return [_what_it_does(control, before, after), *_batch_sentence(control, before, after)]


def _what_it_does(control: KlControl, before: Config, after: Config) -> str:
    name, target = control.setting, control.target
    if control.kind == "stop":
        return (
            f"{name}={target:g}: the epochs of an iteration end once a {control.per}'s KL divergence is above "
            f"{control.factor * target:g}, so a learning rate that is too high shows as fewer gradient steps than the "
            f"{after.geometry.gradient_steps:,} above, not as divergence."
        )
    old, new = before.hypers.learning_rate, after.hypers.learning_rate
    steps = after.geometry.gradient_steps if control.per == "minibatch" else after.update_epochs
    sentence = (
        f"{name}={target:g}: the learning rate {rounded(new, 6)} is only a start. After each {control.per} "
        f"({counted(steps, 'time')} an iteration) it is divided by {control.factor:g} if the KL divergence to the "
        f"policy that collected the data is above {2 * target:g}, and multiplied by {control.factor:g} if it is below "
        f"{target / 2:g}, between {control.low:g} and {control.high:g}."
    )
    if old == new:
        return sentence
    needed = math.ceil(abs(math.log(old / new)) / math.log(control.factor))
    return f"{sentence} {counted(needed, 'such change')} can undo what the rule for the learning rate did."


def _batch_sentence(control: KlControl, before: Config, after: Config) -> list[str]:
    old, new = before.geometry.iteration_batch, after.geometry.iteration_batch
    if old == new:
        return []
    c = old / new
    held = control.target_at(c)
    often = f"{rounded(c)} times as often" if c > 1 else f"1/{rounded(1 / c)} as often"
    sentences = [
        f"{control.setting} is a target per iteration, and iterations go from {old:,} to {new:,} steps: left as it is, "
        f"the policy moves as far in each of them and {often} per environment step. "
        f"{control.setting}={rounded(held, 4)} ({rounded(control.target, 4)} / c) holds the movement per environment "
        "step where noise dominates, as the square-root rule of the learning rate assumes; "
        f"{rounded(control.target_at(c * c), 4)} (/ c^2) where it does not."
    ]
    limit = before.hypers.clip_eps**2 / 2
    if before.objective == "clip" and held > limit > control.target:
        sentences.append(
            f"{control.setting}={rounded(held, 4)} is beyond what clip_eps={before.hypers.clip_eps:g} lets "
            f"through, about clip_eps^2 / 2 = {rounded(limit, 3)}: from there on the clipping holds the policy, not "
            "the controller."
        )
    return sentences
