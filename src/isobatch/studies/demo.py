"""The demonstration: PPO-EWMA tuned at one batch size, run at 1/16 and 1/64 of it, rescaled and unchanged."""

from __future__ import annotations

import dataclasses

import numpy as np

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.training.metrics import Table, final_returns

FACTORS = (16, 64)


@dataclasses.dataclass(frozen=True)
class DemoRun:
    """One run of the demonstration."""

    name: str
    config: Config
    rescaled: bool


def demo_runs(total_timesteps: int = 300_000) -> list[DemoRun]:
    """The base batch, then each smaller one with the rules and without."""
    # Gradients are not clipped, as in the paper: a bound on the norm acts differently on gradients of another noise.
    base = preset(
        "ppo-ewma", "CartPole-v1", num_envs=64, num_steps=32, num_minibatches=8, update_epochs=1, learning_rate=1e-2,
        lr_schedule="constant", max_grad_norm="inf", gamma=0.99, gae_lambda=0.95, ent_coef=0.01, advantage_norm="ewma",
        total_timesteps=total_timesteps,
    )  # fmt: skip
    runs = [DemoRun("base batch", base, True)]
    for c in FACTORS:
        runs.append(DemoRun(f"1/{c}, rescaled", rescale(base, factor=c).after, True))
        runs.append(DemoRun(f"1/{c}, unchanged", base.replace(num_envs=base.num_envs // c), False))
    return runs


def outcome(table: Table, config: Config, diverged: bool) -> str:
    """How a run ended: the mean over seeds of the final return, or where a number stopped being finite."""
    if diverged:
        return f"diverged at {table['env_steps'].max() // 1000}k"
    ends = [value for value in final_returns(table, config.env_steps) if value is not None]
    return f"{np.mean(ends):.1f}" if ends else "no episode ended"


def conclusion(runs: list[DemoRun], outcomes: dict[str, str]) -> str:
    """One sentence that says what is to be seen, from what was measured."""
    base, *others = runs

    def listed(rescaled: bool) -> str:
        return " and ".join(f"1/{c}: {outcomes[o.name]}" for c, o in _smaller(others, rescaled))

    return (
        f"The base batch ends with a return of {outcomes[base.name]}. Smaller batches with rescaled settings end the "
        f"same way ({listed(True)}); with the settings of the base batch they do not ({listed(False)})."
        if _holds(runs, outcomes)
        else f"The base batch: {outcomes[base.name]}. Smaller batches, rescaled: {listed(True)}; "
        f"unchanged: {listed(False)}."
    )


def _smaller(others: list[DemoRun], rescaled: bool) -> list[tuple[int, DemoRun]]:
    return list(zip(FACTORS, [o for o in others if o.rescaled == rescaled], strict=True))


def _holds(runs: list[DemoRun], outcomes: dict[str, str]) -> bool:
    """Whether every rescaled run came within 5 % of the base and every unchanged one did not."""

    def near(each: DemoRun) -> bool:
        try:
            return abs(float(outcomes[each.name]) - float(outcomes[runs[0].name])) < 0.05 * 500
        except ValueError:
            return False

    return all(near(each) == each.rescaled for each in runs)
