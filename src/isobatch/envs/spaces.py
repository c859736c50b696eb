"""What actions look like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Discrete:
    """One of n actions, 0 .. n-1."""

    n: int

    def __str__(self) -> str:
        return f"{self.n} actions"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the i-th among sizes[i]."""

    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{len(self.sizes)} choices among {', '.join(map(str, self.sizes))}"


@dataclass(frozen=True)
class MultiBinary:
    """n switches, each on or off."""

    n: int

    def __str__(self) -> str:
        return f"{self.n} switches"


@dataclass(frozen=True)
class Box:
    """Real vectors between bounds; sampled actions are clipped to them on their way to the environment.

    Rescaled, what is sampled is clipped to [-1, 1] and stretched to the bounds.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    rescaled: bool = False

    def __str__(self) -> str:
        bounds = sorted(set(zip(self.low, self.high, strict=True)))
        return f"{len(self.low)} number{'s' if len(self.low) > 1 else ''} in " + ", ".join(
            f"[{a:g}, {b:g}]" for a, b in bounds
        )


Space = Discrete | MultiDiscrete | MultiBinary | Box


def distribution_size(space: Space) -> int:
    """Numbers that describe a distribution over actions."""
    match space:
        case Discrete(n) | MultiBinary(n):
            return n
        case MultiDiscrete(sizes):
            return sum(sizes)
        case Box():
            return 2 * len(space.low)
