"""Where the samples of a run go, in words: printed before training starts."""

from __future__ import annotations

from isobatch.formatting import counted, rounded
from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass


def batch_accounting(config: Config) -> list[tuple[str, str]]:
    """Label and sentence for each quantity, in the order of the way of the data."""
    g, hypers = config.geometry, config.hypers
    updates = config.num_iterations - config.staleness
    lines = [
        (
            "iteration batch",
            f"{counted(g.num_envs, 'environment')} x {counted(g.num_steps, 'step')} = "
            f"{counted(g.iteration_batch, 'step')}",
        ),
        (
            "optimization batch",
            f"{g.iteration_batch:,} / {counted(g.num_minibatches, 'minibatch')} = "
            f"{counted(g.optimization_batch, 'sample')}",
        ),
        *_shards(config),
        (
            "gradient steps",
            f"{counted(g.num_minibatches, 'minibatch')} x {counted(g.update_epochs, 'epoch')} "
            f"= {g.gradient_steps:,} per iteration, {g.gradient_steps * updates:,} in all",
        ),
    ]
    if config.proximal_policy == "ewma":
        lines.append(
            (
                "proximal policy",
                f"EWMA, center of mass {rounded(center_of_mass(hypers.beta_prox))} gradient steps "
                f"= {g.proximal_age(hypers.beta_prox):,.0f} environment steps",
            )
        )
    else:
        lines.append(("proximal policy", config.proximal_policy))
    if config.policy_iterations_per_phase:
        aux = config.aux_minibatches * config.policy_iterations_per_phase
        iterations = counted(config.policy_iterations_per_phase, "iteration")
        lines += [
            ("phase batch", f"{iterations} = {counted(g.phase_batch, 'step')}"),
            (
                "auxiliary phase",
                f"{counted(config.aux_epochs, 'epoch')} x {counted(aux, 'minibatch')} of "
                f"{counted(g.phase_batch // aux, 'sample')}",
            ),
        ]
    if config.staleness:
        steps = config.staleness * g.iteration_batch
        lines.append(("staleness", f"{counted(config.staleness, 'iteration')} = {counted(steps, 'environment step')}"))
    run = f"{counted(config.num_iterations, 'iteration')} = {counted(config.env_steps, 'environment step')} per seed"
    return [*lines, ("run", run)]


def _shards(config: Config) -> list[tuple[str, str]]:
    """What the shards are, where there are several."""
    if config.num_shards == 1:
        return []
    envs = counted(config.num_envs // config.num_shards, "environment")
    samples = counted(config.geometry.optimization_batch // config.num_shards, "sample")
    return [("shards", f"{config.num_shards} of {envs}, {samples} of each in a minibatch")]
