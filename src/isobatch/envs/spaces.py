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
class Box:
    """Real vectors between bounds; sampled actions are clipped to them on their way to the environment."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __str__(self) -> str:
        bounds = sorted(set(zip(self.low, self.high, strict=True)))
        return f"{len(self.low)} number{'s' if len(self.low) > 1 else ''} in " + ", ".join(
            f"[{a:g}, {b:g}]" for a, b in bounds
        )


Space = Discrete | Box
