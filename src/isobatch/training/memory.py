"""How much memory stored rollouts take, and whether the machine has it."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from isobatch.envs.spaces import distribution_size
from isobatch.errors import UsageError
from isobatch.rollouts.staleness import AnyEnvironment
from isobatch.settings.config import Config

SHARE = 0.9  # of the available memory that may be used


def phase_bytes(config: Config, env: AnyEnvironment, num_seeds: int) -> int:
    """Bytes of the iterations that an auxiliary phase needs: observations twice, value targets, old distributions.

    Twice, because the phase is rearranged into rows of all its environments while it is used.
    """
    size = 4 if config.normalize_observations else np.dtype(env.obs_dtype).itemsize
    per_step = 2 * size * int(np.prod(env.obs_shape)) + 4 + 4 * distribution_size(env.action_space)
    return num_seeds * config.geometry.phase_batch * per_step


def check_phase_memory(config: Config, env: AnyEnvironment, num_seeds: int) -> None:
    """Raise if the phase does not fit into what is available now."""
    need, there = phase_bytes(config, env, num_seeds), available_bytes()
    if there is not None and need > SHARE * there:
        raise UsageError(
            f"policy_iterations_per_phase={config.policy_iterations_per_phase} needs {in_words(need)} for the phases "
            f"of {num_seeds} seed(s), and {in_words(int(SHARE * there))} are available: lower it, num_envs, num_steps "
            "or num_seeds."
        )


def available_bytes() -> int | None:
    """Memory that new arrays can take on the default device, or None if that is not known."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def in_words(count: int) -> str:
    power = min(len(str(count)) - 1, 11) // 3
    return f"{count / 1000**power:.3g} {('bytes', 'KB', 'MB', 'GB')[power]}"
