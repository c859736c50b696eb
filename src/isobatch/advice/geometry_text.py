"""The geometry of a run as a drawing in characters: environments x steps, permuted, cut, passed over."""

from __future__ import annotations

import random

from isobatch.formatting import counted, rounded
from isobatch.rescaling.rules import advantage_decay
from isobatch.settings.accounting import Samples, samples_used, updates
from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass, span

SHADES = "█▓▒░"
ROW_CHARACTERS = 44  # characters of a rollout row
SHOWN_MINIBATCHES = 6  # minibatches that are drawn


def diagram(config: Config, time_limit: int | None = None) -> str:
    """From environments to gradient steps, the numbers on the right; of whole episodes, with the samples in use."""
    g, used = config.geometry, samples_used(config, time_limit)
    cut = "whole environment rows" if config.minibatch_scheme == "envs" else "random permutation"
    if g.num_shards > 1:
        cut += f" of each of {g.num_shards} shards"
    time = f" T = {counted(g.num_steps, 'step')} "
    batch = f"iteration batch = {g.num_envs:,} x {g.num_steps:,} = {g.iteration_batch:,}"
    minibatches = f"{counted(g.num_minibatches, 'minibatch')} of {used.per_minibatch}"
    epochs = f"x {counted(g.update_epochs, 'epoch')}" + (", each cut anew" if g.update_epochs > 1 else "")
    each = f"{used.bound}{rounded(used.iteration / g.gradient_steps, 4)} new samples each"
    steps = counted(g.gradient_steps * updates(config), "gradient step")
    waits = f", the first {config.staleness:,} of which only collect" if config.staleness else ""
    lines = [
        *_rows(config),
        _side(f"└{time:─^{ROW_CHARACTERS - 4}}┘", batch),
        *_in_use(g.iteration_batch, used),
        _arrow(cut),
        _side(_boxes(config), minibatches),
        _arrow(epochs),
        _side(f"{counted(g.gradient_steps, 'gradient step')} per iteration", each),
        *_phase(config),
        _arrow(f"x {counted(config.num_iterations, 'iteration')}{waits}"),
        _side(f"{steps} in all", f"{config.env_steps:,} environment steps"),
        "",
        f"  proximal policy  {_proximal(config)}",
        f"  advantages       {_advantages(config, used)}",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _rows(config: Config) -> list[str]:
    n = config.num_envs
    shown = list(range(1, n + 1)) if n <= len(SHADES) else [1, 2, 3, n]
    label = max(len(f"{n:,}"), 1)
    rows = [f"  env {k:>{label},}  {SHADES[i] * (ROW_CHARACTERS - label - 8)}" for i, k in enumerate(shown)]
    if n > len(SHADES):
        rows.insert(3, f"  {'⋮':>{label + 4}}")
    return rows


def _in_use(collected: int, used: Samples) -> list[str]:
    """How many samples whole episodes use, where that is not all of them."""
    if not used.bound:
        return []
    share = f" ({used.iteration / collected:.0%})" if used.are_known else ""
    return [_side("", f"whole episodes use {used.per_iteration}{share}")]


def _boxes(config: Config) -> str:
    """Minibatches with the shades of the environments their samples come from."""
    count = min(config.num_minibatches, SHOWN_MINIBATCHES)
    shades = SHADES[: min(config.num_envs, len(SHADES))]
    cells = sorted((shades * 4 * count)[: 4 * count], key=shades.index)
    if config.minibatch_scheme != "envs":
        random.Random(0).shuffle(cells)
    boxes = ["".join(cells[4 * i : 4 * i + 4]) for i in range(count)]
    return "  ".join(boxes) + (" …" if config.num_minibatches > SHOWN_MINIBATCHES else "")


def _phase(config: Config) -> list[str]:
    g, phase = config.geometry, config.policy_iterations_per_phase
    if not phase:
        return []
    count = phase * config.aux_minibatches
    size = g.iteration_batch // config.aux_minibatches
    epochs, minibatches = counted(config.aux_epochs, "epoch"), counted(count, "minibatch")
    above = _arrow(f"every {counted(phase, 'iteration')}: phase batch = {g.phase_batch:,}")
    return [above, _side(f"auxiliary phase: {epochs}", f"of {minibatches} of {size:,}")]


def _proximal(config: Config) -> str:
    g = config.geometry
    if config.objective == "policy-gradient":
        return "none"
    if config.proximal_policy == "ewma":
        mass, age = center_of_mass(config.hypers.beta_prox), g.proximal_age(config.hypers.beta_prox)
        return f"EWMA of the weights, {rounded(mass, 4)} gradient steps = {age:,.0f} environment steps old"
    return f"{config.proximal_policy}, up to {g.iteration_batch:,} environment steps old"


def _advantages(config: Config, used: Samples) -> str:
    decay = advantage_decay(config)
    if config.advantage_norm == "none":
        return "not normalized"
    if config.advantage_norm == "minibatch":
        return f"normalized over each minibatch of {used.per_minibatch}"
    length = span(decay)
    word = "iteration" if length == 1 else "iterations"
    return f"normalized over {rounded(length, 4)} {word} = {used.bound}{length * used.iteration:,.0f} samples"


def _arrow(text: str) -> str:
    return f"{' ' * (ROW_CHARACTERS // 2)}▼ {text}"


def _side(left: str, right: str) -> str:
    return f"  {left:<{ROW_CHARACTERS}}{right}"
