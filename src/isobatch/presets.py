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
    # Cobbe 2020 with the KL penalty of Hilton 2021's invariance runs; one policy epoch.
    "ppg": dict(
        objective="kl", kl_coef=1.0, update_epochs=1, num_minibatches=8, policy_iterations_per_phase=8, aux_epochs=6
    ),
    "ppg-ewma": dict(
        objective="kl",
        kl_coef=1.0,
        update_epochs=1,
        num_minibatches=8,
        policy_iterations_per_phase=8,
        aux_epochs=6,
        proximal_policy="ewma",
    ),
    # Mnih 2016 as in SB3: five steps, one gradient step on all of them, RMSProp.
    "a2c": dict(
        objective="policy-gradient",
        num_steps=5,
        num_minibatches=1,
        update_epochs=1,
        optimizer="rmsprop",
        beta2=0.99,
        learning_rate=7e-4,
        gae_lambda=1.0,
        ent_coef=0.0,
        advantage_norm="none",
    ),
    # Williams 1992: whole episodes, reward-to-go, a learned baseline.
    "reinforce": dict(
        objective="policy-gradient",
        complete_episodes=True,
        bootstrap=False,
        num_minibatches=1,
        update_epochs=1,
        gae_lambda=1.0,
        ent_coef=0.0,
        aggregation="timestep",
    ),
}

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartPole-v1": dict(total_timesteps=500_000, learning_rate=2.5e-3, lr_schedule="linear"),
}

FOR_BOTH: dict[tuple[str, str], dict[str, Any]] = {}


STALE_OBJECTIVES = ("recent", "decoupled", "behavior")


def preset(algo: str = "ppo", env: str = "CartPole-v1", stale_objective: str | None = None, **overrides: Any) -> Config:
    """The settings for `algo` on `env`, with `overrides` by flat field name on top.

    `stale_objective` is one of the paper's three ways to treat stale data (figure 1): it sets the importance
    policy and the proximal policy.
    """
    if algo not in ALGORITHMS:
        raise UsageError(
            f"algo={algo!r} is unknown{near_matches(algo, ALGORITHMS) or '; use ' + ', '.join(ALGORITHMS) + '.'}"
        )
    settings = ALGORITHMS[algo] | ENVIRONMENTS.get(env, {}) | FOR_BOTH.get((algo, env), {})
    config = Config.from_dict(settings | overrides | dict(algo=algo, env=env))
    return config if stale_objective is None else with_stale_objective(config, stale_objective)


def with_stale_objective(config: Config, name: str) -> Config:
    """recent: both are the recent policy (biased); decoupled: importance behavior, proximal recent; behavior: both.

    An averaged proximal policy stays what it is under `recent` and `decoupled`: it is a recent policy.
    """
    if name not in STALE_OBJECTIVES:
        raise UsageError(f"stale_objective={name!r} is unknown: use one of {', '.join(STALE_OBJECTIVES)}.")
    if config.objective == "policy-gradient":
        raise UsageError(
            f"stale_objective={name!r} needs an objective with a ratio, and {config.algo} has none: use ppo, ppo-ewma, "
            "ppg or ppg-ewma."
        )
    recent = "ewma" if config.proximal_policy == "ewma" else "recent"
    return config.replace(
        importance_policy="recent" if name == "recent" else "behavior",
        proximal_policy="behavior" if name == "behavior" else recent,
    )


def changed_settings(config: Config) -> dict[str, Any]:
    """Algorithm, environment, and the settings in which `config` differs from their preset: `preset(**these)`."""
    usual = preset(config.algo, config.env).to_dict()
    named = {"algo": config.algo, "env": config.env}
    return named | {name: value for name, value in config.to_dict().items() if value != usual[name]}
