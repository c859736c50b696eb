"""What more devices bring: each does its share, and every gradient step ends with a sum over all of them.

    seconds of a sum over D devices   2 ceil(log2 D) latency + 2 (D - 1)/D bytes / bandwidth

the tree's latency and the ring's bandwidth, as in NCCL's and Gloo's all-reduce; the gradient has 4 bytes a parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Between devices."""

    name: str
    latency: float
    """Seconds of a message."""
    bandwidth: float
    """Bytes a second."""

    def sum_seconds(self, devices: int, parameters: int) -> float:
        """Of adding up a gradient over so many devices; nothing where there is one."""
        if devices == 1:
            return 0.0
        moved = 2 * (devices - 1) / devices * 4 * parameters / self.bandwidth
        return 2 * math.ceil(math.log2(devices)) * self.latency + moved


MACHINES = Link("machines, 10 GB/s", 5e-5, 1e10)
ACCELERATORS = Link("GPUs of one machine, 300 GB/s", 1e-5, 3e11)


def measured_link(name: str, small: float, large: float, parameters: int) -> Link:
    """From sums over two devices: of one number, and of a whole gradient, each in seconds."""
    latency = small / 2
    moved = 4 * parameters  # 2 (D - 1)/D = 1 for two devices
    return Link(name, latency, moved / max(large - small, 1e-9))
