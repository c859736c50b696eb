"""The rule of thumb about memory: what a run keeps, part by part, against what is free."""

from __future__ import annotations

from isobatch.advice.facts import Facts
from isobatch.advice.findings import Said, Suggestion
from isobatch.formatting import byte_text
from isobatch.settings.config import Config

MUCH_MEMORY = 0.5  # share of the free memory from which a run is large


def rollout_memory(config: Config, facts: Facts) -> Said:
    """Rollouts are observations, distributions and a few numbers of each step: N and T cost the same."""
    if facts.rollout_bytes is None:
        return None, "memory of a rollout: the observations of this environment are not known."
    parts = memory_parts(config, facts)
    need, free = sum(size for _, size in parts.values()), facts.free_bytes
    text = ", ".join(f"{what} {byte_text(size)}" for what, size in parts.values())
    text += f": {byte_text(need)} of memory in all" if len(parts) > 1 else " of memory"
    if free is None or need <= MUCH_MEMORY * free:
        return True, f"{text}."
    largest = max(parts, key=lambda field: parts[field][1])
    size = parts[largest][1]
    share = max(0.0, 1 - (need - MUCH_MEMORY * free) / size)  # of the largest part, with which all would fit
    change = Suggestion(largest, getattr(config, largest), lowered(config, largest, share))
    return False, f"{text}, and {byte_text(free)} are free.", change


def memory_parts(config: Config, facts: Facts) -> dict[str, tuple[str, int]]:
    """What a run keeps, by the setting that it goes by: in words, and in bytes."""
    parts = {
        "num_envs": ("a rollout takes", facts.rollout_bytes),
        "staleness" if config.staleness else "max_lag": ("those that wait", facts.waiting_bytes),
        "policy_iterations_per_phase": ("the iterations of a phase", facts.phase_bytes),
        "hidden_sizes": ("networks and environments at least", facts.state_bytes),
    }
    return {field: (what, size) for field, (what, size) in parts.items() if size}


def lowered(config: Config, field: str, share: float) -> object:
    """The setting with which its part takes `share` of the memory, or somewhat less."""
    match field:
        case "hidden_sizes":  # weights go by the product of two widths
            return tuple(max(1, int(width * share)) for width in config.hidden_sizes)
        case "staleness":
            return int(config.staleness * share)
        case "max_lag":  # one rollout more waits than may be behind
            return max(0, int((config.lag_iterations + 1) * share) - 1) * config.geometry.iteration_batch
    return max(1, int(getattr(config, field) * share))
