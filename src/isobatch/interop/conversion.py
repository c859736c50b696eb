"""From settings that were read to a run here: what has to change, and what will be computed otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from isobatch.advice.kl_control import KlControl
from isobatch.errors import UsageError, check_keywords
from isobatch.formatting import counted, rounded
from isobatch.interop.library import LibrarySettings, from_settings
from isobatch.interop.stable_baselines3 import LIBRARY as SB3
from isobatch.settings.config import ENDLESS, Config
from isobatch.settings.geometry import beta_of_rollout
from isobatch.settings.parsing import parse_value


@dataclass(frozen=True)
class Converted:
    """Settings for isobatch, and what is to be said about them, in sentences."""

    config: Config
    remarks: tuple[str, ...]


def for_isobatch(there: LibrarySettings, config: Config | None = None, algo: str | None = None) -> Converted:
    """`there`, or `config` that was made from it, to be trained here; as `algo` ppo-ewma if that is asked for."""
    config = there.config if config is None else config
    title, remarks = there.library.title, []
    if config.total_timesteps >= ENDLESS:
        raise UsageError(f"{title}'s settings do not say how long to train: give total_timesteps.")
    batch = config.geometry.iteration_batch
    if there.library.rounds_up and config.total_timesteps % batch:
        steps = math.ceil(config.total_timesteps / batch) * batch
        remarks.append(
            f"total_timesteps {config.total_timesteps:,} -> {steps:,}: whole iterations, and {title} rounds up"
        )
        config = config.replace(total_timesteps=steps)
    if there.kept:
        remarks.append(f"without a counterpart here, so left out: {', '.join(there.kept)}")
    remarks += [*there.only_there, *there.remarks, *there.library.differences(config)]
    remarks += _controlled(there.control)
    if algo is not None and algo != config.algo:
        made = as_algorithm(config, algo)
        config, remarks = made.config, [*made.remarks, *remarks]
    return Converted(config, tuple(remarks))


def _controlled(control: KlControl | None) -> list[str]:
    """How a controller here differs from the one there."""
    ours = KlControl("", 0.0, "adaptive")
    if control is None or control.kind == "stop":
        return []
    remarks = []
    if control.per != ours.per:
        remarks.append(f"the learning rate follows the KL divergence once an {control.per} there, each minibatch here")
    if (control.low, control.high) != (ours.low, ours.high):
        bounds = f"{control.low:g} and {control.high:g} there, {ours.low:g} and {ours.high:g} here"
        remarks.append(f"the learning rate that follows the KL divergence stays between {bounds}")
    return remarks


def as_algorithm(config: Config, algo: str) -> Converted:
    """PPO's settings as PPO-EWMA's: an average in place of the policy that collected the data, equally old."""
    if algo != "ppo-ewma" or config.objective != "clip":
        raise UsageError(f"algo={algo!r} cannot be made of settings of {config.algo}: use ppo-ewma on those of PPO.")
    steps = config.geometry.gradient_steps
    beta = beta_of_rollout(steps)
    after = config.replace(algo=algo, proximal_policy="ewma", beta_prox=beta)
    age = after.geometry.proximal_age(beta)
    remarks = [
        f"proximal_policy {config.proximal_policy} -> ewma, beta_prox={rounded(beta, 6)}: an average as old as "
        "the policy "
        f"that collects the data is in the mean over {counted(steps, 'gradient step')}, {age:,.0f} environment steps"
    ]
    if config.advantage_norm == "minibatch":
        after = after.replace(advantage_norm="iteration")
        remarks.append("advantage_norm minibatch -> iteration: samples that a rule can hold when the batch changes")
    return Converted(after, tuple(remarks))


@check_keywords
def from_sb3(
    settings: Mapping[str, object],
    *,
    env: str,
    total_timesteps: int,
    n_envs: int = 1,
    algo: str = "ppo",
) -> Config:
    """Keyword arguments of Stable-Baselines3's PPO or A2C as a config of this package.

    Sizes, coefficients and schedules mean the same in both: `vf_coef` is doubled, since the value loss here is half the
    squared error; `batch_size` becomes a number of minibatches; the length of a run is rounded up to whole rollouts, as
    Stable-Baselines3 does; `policy` and `policy_kwargs` say which network. What has no counterpart (`use_sde`,
    `log_std_init`) is left out.

    Args:
        settings: keyword arguments; the learning rate and clip ranges may be functions of the remaining progress.
        env: an id of this package (`isobatch envs`).
        total_timesteps: what `learn` is called with.
        n_envs: environments, unless the settings have `n_envs`, as in the files of rl-zoo3.
        algo: ppo or a2c, or ppo-ewma for PPO's settings with an averaged proximal policy.

    Returns:
        A checked `Config`, for `train` and `rescale`.

    Example:
        >>> import isobatch as ib
        >>> config = ib.from_sb3(dict(n_steps=32, batch_size=256), env="CartPole-v1", n_envs=8, total_timesteps=10**5)
        >>> config.num_minibatches, config.hypers.vf_coef, config.num_iterations
        (1, 1.0, 391)
    """
    known = {name for keys in SB3.algorithms.values() for key in keys for name in key.names}
    given = {name: _plain(name, value) for name, value in settings.items() if name in known}
    there = from_settings(
        SB3,
        {"n_envs": n_envs} | given | {"n_timesteps": total_timesteps},
        env=env,
        algo="a2c" if algo == "a2c" else "ppo",
    )
    return for_isobatch(there, algo=algo).config


def _plain(name: str, value: object) -> object:
    """A schedule that is a function as rl-zoo3 writes it: a number, or `lin_` and one."""
    if not callable(value):
        return value
    start, half, end = (parse_value(name, value(progress), float) for progress in (1.0, 0.5, 0.0))
    if start == half == end:
        return start
    if math.isclose(half, start / 2, rel_tol=1e-6) and abs(end) <= 1e-6 * abs(start):
        return f"lin_{start!r}"
    raise UsageError(
        f"{name} goes from {start:g} over {half:g} to {end:g}: only constant ones and lines to 0 have a "
        "counterpart here."
    )
