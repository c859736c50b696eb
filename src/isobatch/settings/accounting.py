"""Where the samples of a run go, in words: printed before training starts."""

from __future__ import annotations

from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass


def batch_accounting(config: Config) -> list[tuple[str, str]]:
    """Label and sentence for each quantity, in the order of the way of the data."""
    g, hypers = config.geometry, config.hypers
    updates = config.num_iterations - config.staleness
    lines = [
        ("iteration batch", f"{g.num_envs:,} environments x {g.num_steps:,} steps = {g.iteration_batch:,} steps"),
        (
            "optimization batch",
            f"{g.iteration_batch:,} / {g.num_minibatches:,} minibatches = {g.optimization_batch:,} samples",
        ),
        (
            "gradient steps",
            f"{g.num_minibatches:,} minibatches x {g.update_epochs} epoch{'s' if g.update_epochs > 1 else ''} "
            f"= {g.gradient_steps:,} per iteration, {g.gradient_steps * updates:,} in all",
        ),
    ]
    if config.proximal_policy == "ewma":
        lines.append(
            (
                "proximal policy",
                f"EWMA, center of mass {center_of_mass(hypers.beta_prox):,.3g} gradient steps "
                f"= {g.proximal_age(hypers.beta_prox):,.0f} environment steps",
            )
        )
    else:
        lines.append(("proximal policy", config.proximal_policy))
    if config.policy_iterations_per_phase:
        aux = config.aux_minibatches * config.policy_iterations_per_phase
        lines += [
            ("phase batch", f"{config.policy_iterations_per_phase:,} iterations = {g.phase_batch:,} steps"),
            (
                "auxiliary phase",
                f"{config.aux_epochs} epochs x {aux:,} minibatches of {g.phase_batch // aux:,} samples",
            ),
        ]
    if config.staleness:
        steps = config.staleness * g.iteration_batch
        lines.append(("staleness", f"{config.staleness} iterations = {steps:,} environment steps"))
    lines.append(("run", f"{config.num_iterations:,} iterations = {config.env_steps:,} environment steps per seed"))
    return lines
