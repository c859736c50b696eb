"""What actions look like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Discrete:
    """One of n actions, 0 .. n-1.

    Example:
        >>> import isobatch as ib
        >>> print(ib.Discrete(3))
        3 actions
    """

    n: int

    def __str__(self) -> str:
        return f"{self.n} actions"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the i-th among sizes[i].

    Example:
        >>> import isobatch as ib
        >>> print(ib.MultiDiscrete((2, 3)))
        2 choices among 2, 3
    """

    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{len(self.sizes)} choices among {', '.join(map(str, self.sizes))}"


@dataclass(frozen=True)
class MultiBinary:
    """n switches, each on or off.

    Example:
        >>> import isobatch as ib
        >>> print(ib.MultiBinary(4))
        4 switches
    """

    n: int

    def __str__(self) -> str:
        return f"{self.n} switches"


@dataclass(frozen=True)
class Box:
    """Real vectors between bounds; sampled actions are clipped to them on their way to the environment.

    Rescaled, what is sampled is clipped to [-1, 1] and stretched to the bounds.

    Example:
        >>> import isobatch as ib
        >>> print(ib.Box((2,), low=(-1.0, -1.0), high=(1.0, 1.0)))
        2 numbers in [-1, 1]
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
