"""What advice has to know besides a config: of the environment, of the machine, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """What a config does not say. None where it is not known."""

    action_dim: int | None = None
    """Numbers in an action, or actions to choose from."""
    continuous: bool | None = None
    time_limit: int | None = None
    """Steps of the longest episode."""
    rollout_bytes: int | None = None
    """Memory of one rollout."""
    waiting_bytes: int | None = None
    """Of those that wait to be used: stale data, and what actors collect ahead."""
    phase_bytes: int | None = None
    """Of the iterations that an auxiliary phase needs."""
    state_bytes: int | None = None
    """Of networks, optimizer and environments, at least."""
    free_bytes: int | None = None
    throughput: tuple[tuple[int, float], ...] = ()
    """Environments, and the steps per second of all of them together that were measured."""
    env_seconds: float | None = None
    """Time of one step of one environment."""
    update_seconds: float | None = None
    """Time of one gradient step."""
    critical_batch: float | None = None
    devices: int | None = None
    """Devices that share the run."""
