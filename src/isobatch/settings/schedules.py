"""Schedules: of the learning rate by name, each the factor of `learning_rate` as a function of the progress of a run,
and of the clip ranges, which may go in a line from one value to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from isobatch.errors import UsageError, near_matches

if TYPE_CHECKING:
    from isobatch.settings.config import Config, Hypers


class Factor(Protocol):
    """A float, or a number that JAX traces."""

    def __rmul__(self, rate: float, /) -> Factor: ...

    def __float__(self) -> float: ...


Schedule = Callable[..., Factor]
"""Progress, from 0 at the first iteration to almost 1 at the last, which JAX may trace -> what the learning rate is
multiplied by."""

LINEAR = "linear"
ADAPTIVE = "adaptive"  # the rate follows the KL of each minibatch (`learning.step_size`): where it begins is constant
STANDARD: dict[str, Schedule] = {
    "constant": lambda progress: 1.0,
    LINEAR: lambda progress: 1 - progress,
    ADAPTIVE: lambda progress: 1.0,
}
_REGISTERED: dict[str, Schedule] = {}


def register_schedule(name: str, schedule: Schedule) -> str:
    """Let `lr_schedule=name` mean a schedule of one's own, in this process; returns the name.

    alpha_i = learning_rate * schedule(i / K) in iteration i of K. The argument may be traced by JAX, so it is written
    with `jax.numpy`, or comes from [optax](https://optax.readthedocs.io/en/latest/api/optimizer_schedules.html), whose
    schedules take a number of steps: with an initial value of 1 and `decay_steps=1` the run is one step.

    Args:
        name: what `config.yaml` keeps; whoever resumes or loads a run registers the same schedule first.
        schedule: progress, a float in [0, 1) -> a factor, a float.

    Returns:
        The name, for `Config.replace(lr_schedule=...)`.

    Example:
        >>> import isobatch as ib, optax
        >>> name = ib.register_schedule("cosine", optax.cosine_decay_schedule(1.0, decay_steps=1))
        >>> ib.preset("ppo", "CartPole-v1", lr_schedule=name).lr_schedule
        'cosine'
    """
    if name in STANDARD:
        raise UsageError(f"name={name!r} is the schedule of this package: use another name.")
    if not callable(schedule):
        raise UsageError(f"schedule={schedule!r} is no function: use one of the progress, a number from 0 to 1.")
    _REGISTERED[name] = schedule
    return name


def registered_schedule(name: str) -> Schedule | None:
    return _REGISTERED.get(name)


def schedule_of(name: str) -> Schedule:
    return STANDARD.get(name) or _REGISTERED[name]


def check_schedule(name: str) -> None:
    """Raise unless there is a schedule of this name."""
    if name not in STANDARD and name not in _REGISTERED:
        raise UsageError(
            f"lr_schedule={name!r} is not valid: use {', '.join(STANDARD)}, or register one of your own first with "
            f"isobatch.register_schedule{near_matches(name, [*STANDARD, *_REGISTERED]) or '.'}"
        )


def falling_ranges(config: Config) -> list[str]:
    """The clip ranges in use that a run changes."""
    schedules = {
        "clip_eps": config.clip_schedule if config.objective == "clip" else "",
        "value_clip_eps": config.value_clip_schedule if config.clip_value_loss else "",
    }
    return [name for name, schedule in schedules.items() if schedule == LINEAR]


def ranges_at(config: Config, hypers: Hypers, progress: float) -> dict[str, float]:
    """Where these have come to, eps + progress (end - eps); hypers and progress may be numbers that JAX traces."""
    end = hypers.clip_eps_end
    return {name: end + (1 - progress) * (getattr(hypers, name) - end) for name in falling_ranges(config)}
