"""Settings that work, in one place: per algorithm, then per environment, then the user's own.

An algorithm is a preset over the choices of `Config`; an environment's preset says how it is best
learned by the family. `preset(algo, env, ...)` merges them in that order, the later one wins.
"""

from __future__ import annotations

from typing import Any

from isobatch.config import Config
from isobatch.errors import UsageError, near_matches

ALGORITHMS: dict[str, dict[str, Any]] = {
    # Schulman 2017, with the advantages normalised over the iteration, not per minibatch:
    # the population of a minibatch changes with the batch size.
    "ppo": dict(objective="clip", proximal_policy="behavior"),
    # Hilton 2021, section 4: the clip range is centred on an EWMA of the policy's weights.
    "ppo-ewma": dict(objective="clip", proximal_policy="ewma"),
}

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartPole-v1": dict(total_timesteps=500_000),
}

FOR_BOTH: dict[tuple[str, str], dict[str, Any]] = {}


def preset(algo: str = "ppo", env: str = "CartPole-v1", **overrides: Any) -> Config:
    """The settings for `algo` on `env`, with `overrides` by flat field name on top."""
    if algo not in ALGORITHMS:
        raise UsageError(
            f"algo={algo!r} is unknown{near_matches(algo, ALGORITHMS) or '; use ' + ', '.join(ALGORITHMS) + '.'}"
        )
    settings = ALGORITHMS[algo] | ENVIRONMENTS.get(env, {}) | FOR_BOTH.get((algo, env), {})
    return Config.from_dict(settings | overrides | dict(algo=algo, env=env))
