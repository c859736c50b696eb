"""Where the samples of a run go, in words: printed before training starts."""

from __future__ import annotations

from typing import NamedTuple

from isobatch.formatting import counted, rounded
from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass

GOOD_ROWS = 4  # time limits that a row should hold, where whole episodes are used: three quarters are surely used then


def batch_accounting(config: Config, time_limit: int | None = None) -> list[tuple[str, str]]:
    """Label and sentence for each quantity, in the order of the way of the data; `time_limit` is the environment's."""
    g, beta = config.geometry, config.hypers.beta_prox
    minibatches, steps = counted(g.num_minibatches, "minibatch"), counted(g.iteration_batch, "step")
    in_all = g.gradient_steps * updates(config)
    lines = {
        "iteration batch": f"{counted(g.num_envs, 'environment')} x {counted(g.num_steps, 'step')} = {steps}",
        "optimization batch": f"{g.iteration_batch:,} / {minibatches} = {_samples_of_a_step(config, time_limit)}",
        **_shards(config),
        "gradient steps": f"{minibatches} x {counted(g.update_epochs, 'epoch')} "
        f"= {g.gradient_steps:,} per iteration, {in_all:,} in all",
        **_aggregation(config),
        "proximal policy": config.proximal_policy,
    }
    if config.proximal_policy == "ewma":
        center = f"center of mass {rounded(center_of_mass(beta))} gradient steps"
        lines["proximal policy"] = f"EWMA, {center} = {g.proximal_age(beta):,.0f} environment steps"
    if g.phase_batch:
        count = config.aux_minibatches * g.policy_iterations_per_phase
        size = counted(g.phase_batch // count, "sample")
        iterations = counted(g.policy_iterations_per_phase, "iteration")
        lines["phase batch"] = f"{iterations} = {counted(g.phase_batch, 'step')}"
        lines["auxiliary phase"] = f"{counted(config.aux_epochs, 'epoch')} x {counted(count, 'minibatch')} of {size}"
    if config.staleness:
        old = counted(config.staleness * g.iteration_batch, "environment step")
        lines["staleness"] = f"{counted(config.staleness, 'iteration')} = {old}"
    lines |= _actors(config)
    run = counted(config.env_steps, "environment step")
    lines["run"] = f"{counted(config.num_iterations, 'iteration')} = {run} per seed"
    return list(lines.items())


def updates(config: Config) -> int:
    """Iterations that are learned in: with stale data the first ones only collect."""
    return config.num_iterations - config.staleness


def _aggregation(config: Config) -> dict[str, str]:
    """What is averaged, where that is not the time steps, and when it is the same or differs by a factor only."""
    horizon = rounded(config.hypers.aggregation_horizon, 6)
    meanings = {
        "trajectory": ("sum", "timestep times that length"),
        "trajectory-mean": ("mean", "the same as timestep"),
        "constant": (f"1/{horizon} of the sum", f"timestep times that length / {horizon}"),
    }
    if config.aggregation not in meanings:
        return {}
    within, alike = meanings[config.aggregation]
    piece = "a whole episode" if config.complete_episodes else "an episode or its piece in the rollout"
    mean = f"{within} over each trajectory ({piece}), then the mean of these"
    return {"aggregation": f"{config.aggregation}: {mean}; where all have one length, {alike}"}


def _samples_of_a_step(config: Config, time_limit: int | None) -> str:
    """Samples of a minibatch; of whole episodes those that are used, in the mean where there are several."""
    collected = counted(config.geometry.optimization_batch, "sample")
    used = samples_used(config, time_limit)
    if not used.bound:
        return collected
    mean = " in the mean" if config.num_minibatches > 1 else ""
    return f"{used.per_minibatch} of {collected}{mean}"


def _actors(config: Config) -> dict[str, str]:
    """Who collects, and how old the data may get, where that is not this process by turns."""
    if not config.actors:
        return {}
    envs = counted(config.num_envs // config.actors, "environment")
    lag = config.lag_iterations
    old = f"{counted(lag, 'iteration')} = {counted(lag * config.geometry.iteration_batch, 'environment step')}"
    return {
        "actors": f"{config.actors} with {envs} each, schedule {config.schedule}",
        "largest lag": old if lag else "none: collecting and learning take turns",
    }


def surely_used(config: Config, time_limit: int) -> int:
    """Samples of an iteration that are learned from, whatever the lengths of its episodes: all, but for whole episodes.

    An episode is used that begins early enough to end within its row at any length, so all steps up to there are.
    """
    if not config.complete_episodes:
        return config.geometry.iteration_batch
    return config.num_envs * max(0, config.num_steps - time_limit + 1)


class Samples(NamedTuple):
    """What is learned from, of what is collected."""

    iteration: int
    optimization: int
    """Of a gradient step, in the mean over the minibatches of an iteration."""
    bound: str
    """Nothing where all samples are used; `at least ` or, where the time limit is not known, `up to `."""

    @property
    def per_iteration(self) -> str:
        return f"{self.bound}{self.iteration:,}"

    @property
    def per_minibatch(self) -> str:
        return f"{self.bound}{self.optimization:,}"

    @property
    def are_known(self) -> bool:
        return self.bound != UP_TO


AT_LEAST, UP_TO = "at least ", "up to "


def samples_used(config: Config, time_limit: int | None) -> Samples:
    """All samples; of whole episodes those that are surely used, or without a time limit no more than are collected."""
    if not config.complete_episodes:
        bound, used = "", config.geometry.iteration_batch
    elif time_limit is None:
        bound, used = UP_TO, config.geometry.iteration_batch
    else:
        bound, used = AT_LEAST, surely_used(config, time_limit)
    return Samples(used, used // config.num_minibatches, bound)


def _shards(config: Config) -> dict[str, str]:
    """What the shards are, where there are several."""
    if config.num_shards == 1:
        return {}
    envs = counted(config.num_envs // config.num_shards, "environment")
    samples = counted(config.geometry.optimization_batch // config.num_shards, "sample")
    return {"shards": f"{config.num_shards} of {envs}, {samples} of each in a minibatch"}
