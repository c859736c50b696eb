"""Settings of Stable-Baselines3's PPO and of `PPOEWMA`: those of a model, and for another number of environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from isobatch.errors import UsageError
from isobatch.interop.keys import Key, number
from isobatch.interop.library import LibrarySettings, from_settings
from isobatch.interop.stable_baselines3 import LIBRARY, PPO
from isobatch.rescaling import MEASURED, rescale
from isobatch.settings.config import ENDLESS, Config
from isobatch.settings.geometry import beta_of_rollout, divisors
from isobatch.settings.parsing import SettingsByName

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

Arguments = dict[str, Any]  # of PPO or PPOEWMA, each with a type of its own there
Schedule = Callable[[float], float]
EWMA_ARGUMENTS = ("beta_prox", "proximal_policy", "objective", "kl_coef", "kl_form", "advantage_norm", "adv_norm_decay")
"""Arguments of `PPOEWMA` that PPO does not have, under the names that they have here."""


def same_name(name: str, default: str) -> Key:
    """A choice that is called as it is here."""
    return Key(
        (name,), (name,), default, lambda value, known: {name: value}, lambda config, old, known: config.to_dict()[name]
    )


EWMA = dataclasses.replace(
    LIBRARY,
    name="sb3-ewma",
    title="isobatch.torch.PPOEWMA",
    algorithms={
        "ppo": PPO,
        "ppo-ewma": (
            *(key for key in PPO if "advantage_norm" not in key.fields),
            number("beta_prox", "beta_prox", 0.0),
            number("kl_coef", "kl_coef", 1.0),
            number("adv_norm_decay", "adv_norm_decay", 0.0),
            same_name("proximal_policy", "ewma"),
            same_name("objective", "clip"),
            same_name("kl_form", "analytic"),
            same_name("advantage_norm", "iteration"),
        ),
    },
    fixed={"ppo": LIBRARY.fixed["ppo"], "ppo-ewma": dict(optimizer="adam", optimizer_eps=1e-5)},
)


def beta_of_ppo(n_steps: int, n_envs: int, batch_size: int, n_epochs: int) -> float:
    """beta_prox of an average as old as PPO's proximal policy, which is the one that collected the rollout."""
    return beta_of_rollout(-(-n_steps * n_envs // batch_size) * n_epochs)


def from_ppo(settings: Mapping[str, object], n_envs: int | None = None) -> Arguments:
    """Arguments of `PPOEWMA` from those of PPO: see `PPOEWMA.from_ppo`."""
    envs = environments(settings, n_envs)
    geometry = _read(settings, envs, ewma=False).config.geometry
    on = settings.get("normalize_advantage", True)
    beta = beta_of_ppo(geometry.num_steps, envs, geometry.optimization_batch, geometry.update_epochs)
    return dict(settings) | {"beta_prox": beta, "advantage_norm": "iteration" if on else "none"}


def rescaled(
    settings: Mapping[str, object],
    n_envs: int,
    *,
    n_envs_before: int | None = None,
    n_steps: int | None = None,
    keep: str = MEASURED,
) -> Arguments:
    """Constructor arguments of PPO or PPOEWMA for another number of environments, as `isobatch rescale` gives them.

    Where that was measured to be better, which is where environments are added to PPO, `n_steps` follows so that a
    rollout is as large as it was and nothing else changes. Otherwise it goes by the rules: `batch_size` follows so that
    the number of gradient steps per rollout stays, the learning rate goes by the root of the batch (also one that is a
    function of the progress), and `beta_prox` and `adv_norm_decay` keep the age of the average and the samples behind
    the advantages' moments (Hilton, Cobbe & Schulman 2021, sections 3 and 4, https://arxiv.org/abs/2110.00641). PPO
    has neither of these two, so its behavior changes with the batch: `PPOEWMA.from_ppo` makes settings that do not.
    What no rule is about stays as it is.

    Args:
        settings: keyword arguments of `PPO` or `PPOEWMA`; one of the latter's own makes them its settings. As in the
            files of rl-zoo3 they may hold `n_envs`, which is then changed with the others.
        n_envs: the number of environments to come.
        n_envs_before: that of today; by default `n_envs` of the settings, or of the environments in `env`.
        n_steps: another rollout length, by the rules.
        keep: what stays, as in `isobatch.rescale`; "minibatch-count" is by the rules in any case.

    Returns:
        A new dictionary.

    Example:
        >>> from isobatch.torch import rescaled
        >>> rescaled(dict(n_steps=128, batch_size=256, learning_rate=3e-4), n_envs=32, n_envs_before=8)
        {'n_steps': 32, 'batch_size': 256, 'learning_rate': 0.0003}
        >>> rescaled(dict(n_steps=128, batch_size=256, learning_rate=3e-4), 32, n_envs_before=8, keep="minibatch-count")
        {'n_steps': 128, 'batch_size': 1024, 'learning_rate': 0.0006}
    """
    given = dict(settings)
    before_envs = environments(given, n_envs_before)
    ewma = any(name in given for name in EWMA_ARGUMENTS)
    if ewma and given.get("beta_prox") is None and given.get("proximal_policy", "ewma") == "ewma":
        given["beta_prox"] = from_ppo(given, before_envs)["beta_prox"]
    if ewma and given.get("normalize_advantage") is False:
        given["advantage_norm"] = "none"
    rate = given.get("learning_rate")
    there = _read(given | ({"learning_rate": float(rate(1.0))} if callable(rate) else {}), before_envs, ewma)
    after = rescale(there.config, num_envs=n_envs, num_steps=n_steps, keep=keep).after
    new = given | there.write(after)
    if callable(rate):
        new["learning_rate"] = _times(rate, after.hypers.learning_rate / there.config.hypers.learning_rate)
    return {name: value for name, value in new.items() if name in given or name not in ("n_envs", "n_timesteps")}


def environments(settings: Mapping[str, object], n_envs: int | None) -> int:
    """How many environments settings are for."""
    env = settings.get("env")
    known = n_envs or settings.get("n_envs") or getattr(env, "num_envs", None if env is None else 1)
    if not isinstance(known, int) or known < 1:
        raise UsageError(
            f"n_envs={known!r} does not say how many environments the settings are for: give n_envs_before."
        )
    return known


def config_of(model: OnPolicyAlgorithm) -> Config:
    """The settings of a PPO, PPOEWMA or A2C model in isobatch's words, as far as monitors and diagnoses need them.

    Sizes that the model does not divide evenly are those of the nearest minibatches that do.
    """
    rollout = model.n_envs * model.n_steps
    size = min(getattr(model, "batch_size", rollout), rollout)
    count = min(divisors(rollout), key=lambda parts: abs(rollout / parts - size))
    epochs = getattr(model, "n_epochs", 1)
    ewma = {name: value for name in EWMA_ARGUMENTS if (value := getattr(model, name, None)) is not None}
    if not getattr(model, "normalize_advantage", True):
        ewma["advantage_norm"] = "none"
    clip = getattr(model, "clip_range", None)
    rates = [float(model.lr_schedule(progress)) for progress in (1.0, 0.5)]
    choices: SettingsByName = {
        "algo": "ppo-ewma" if hasattr(model, "beta_prox") else "ppo" if clip else "a2c",
        "objective": "clip" if clip else "policy-gradient",
        "advantage_norm": "minibatch",
        "clip_eps": float(clip(1.0)) if clip else 0.2,
        "clip_schedule": "linear" if clip and clip(1.0) != clip(0.5) else "constant",
        "lr_schedule": "constant" if rates[0] == rates[1] else "linear",
        "learning_rate": rates[0],
        "max_grad_norm": model.max_grad_norm,
        "num_envs": model.n_envs,
        "num_steps": model.n_steps,
        "num_minibatches": count,
        "update_epochs": epochs,
        "total_timesteps": max(model._total_timesteps, rollout * 10**6),
        "vf_coef": 2 * model.vf_coef,
    }
    same = {name: getattr(model, name) for name in ("gamma", "gae_lambda", "ent_coef")}
    return Config.from_dict(choices | same | ewma)


def _read(settings: Mapping[str, object], n_envs: int, ewma: bool) -> LibrarySettings:
    """The settings that have a counterpart here and are neither functions nor networks, which are as they are."""
    algo = "ppo-ewma" if ewma else "ppo"
    known = {name for key in EWMA.algorithms[algo] for name in key.names} - {"policy", "policy_kwargs"}
    numbers = {name: value for name, value in settings.items() if name in known and not callable(value)}
    endless = {} if "n_timesteps" in numbers else {"total_timesteps": ENDLESS}
    return from_settings(EWMA, numbers | {"n_envs": n_envs}, algo=algo, overrides=endless)


def _times(schedule: Schedule, factor: float) -> Schedule:
    return lambda progress: factor * schedule(progress)
