"""How many environments are of use: steps per second at more and more of them, measured on this machine."""

from __future__ import annotations

from isobatch.envs.registry import environment_of
from isobatch.laboratory.host_source import OutsideSource
from isobatch.laboratory.sources import source_of
from isobatch.learning.state import initial_state
from isobatch.settings.config import Config

COUNTS = tuple(4**power for power in range(7))  # environments that are timed: 1 to 4,096
STEPS = 32  # of each
GROWTH = 1.1  # of the speed, below which more environments are not tried


def throughput(config: Config) -> tuple[tuple[int, float], ...]:
    """(environments, steps per second) of an untrained policy, until more of them add hardly any speed."""
    env = environment_of(config)
    source = source_of(config, env, initial_state(config, env, 0))
    most = source.width if isinstance(source, OutsideSource) else COUNTS[-1]
    measured: list[tuple[int, float]] = []
    for count in (count for count in COUNTS if count <= most):
        measured.append((count, count * STEPS / source.seconds(count, STEPS)))
        if len(measured) > 2 and measured[-1][1] < GROWTH * measured[-3][1]:
            break
    return tuple(measured)
