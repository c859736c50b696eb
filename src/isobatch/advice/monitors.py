"""What the metrics of a run say about its settings: pure functions over a table of metrics.

A table maps names to rows; with a `seed` column it holds several seeds. The bands are those of Hilton, Cobbe &
Schulman (2021), section 6.2, where it has any. Each monitor looks at the last quarter of the rows, without those in
which a schedule has brought the learning rate below half of its start, and suggests the next value to try, from a model
that its docstring gives: a step to measure again after, not a promise. Of a run that has not had time yet nothing is
judged: at first little is clipped and values explain nothing, whatever the settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, TypeAlias

from isobatch.advice.findings import Conflict, Finding, Suggestion, made
from isobatch.formatting import counted
from isobatch.rescaling.rules import advantage_decay, center_of_mass_times, span_times
from isobatch.settings.config import Config
from isobatch.settings.geometry import beta_of_rollout
from isobatch.settings.schedules import falling_ranges

if TYPE_CHECKING:
    import numpy as np

Metrics: TypeAlias = "Mapping[str, Sequence[float] | np.ndarray]"  # by name

CLIPFRAC, KL, PROXIMAL_KL = "losses/clipfrac", "losses/approx_kl", "proximal/approx_kl"
LAG = "staleness/iterations"
EXPLAINED_VARIANCE, ADVANTAGE_STD = "losses/explained_variance", "advantages/std"
EWMA_STD = "advantages/ewma_std"
LEARNING_RATE, CLIP_EPS, ENV_STEPS = "charts/learning_rate", "charts/clip_eps", "env_steps"

PAPER = "Hilton 2021, section 6.2"
TARGET_CLIP = 0.01
HIGH_CLIP = {False: 0.10, True: 0.20}  # by whether there are several policy epochs
MUCH_LESS, MUCH_MORE = 0.5, 1.5  # our reading of the paper's "much less than 1 %" and "much more than 10 %"
OFTEN_CALLED_HEALTHY = (0.10, 0.30)  # share of clipped ratios; we know of no source
LARGE_SWING = 10.0
HIGH_KL, TARGET_KL = 0.05, 0.02
SWING_ROWS = 16  # rows within which a rise and a fall make a swing
RECENT_SHARE = 0.25  # share of the rows, at the end, that counts
EARLY_SHARE = 0.25  # share of the run, at the beginning, in which nothing is judged
FEWEST_ROWS = 4
NOT_MOVED = "not measured, with one gradient step per iteration the policy has not moved yet when it is compared"


def clip_fraction(metrics: Metrics, config: Config) -> Finding:
    """Share of ratios outside the clip range.

    Model for the suggestion: log-ratios are normal with a spread that follows the learning rate, and the square root
    of the proximal policy's age, so a share f is reached at a spread proportional to 1/z(f), z the upper quantile of
    f/2.
    """
    name = "clip-fraction"
    share = recent(metrics, CLIPFRAC, config)
    why = unclipped(config) or ("not measured" if share is None else "")
    if share is None or why:
        return Finding(name, "note", f"clip fraction: {why}.", PAPER)
    several = config.update_epochs > 1
    high, epochs = HIGH_CLIP[several], "several policy epochs" if several else "one policy epoch"
    usual = f"much less than 1% or much more than {high:.0%} is unusual with {epochs}"
    text = f"{share:.2%} of the ratios are clipped; {usual}"
    if share > MUCH_MORE * high:
        rate = config.hypers.learning_rate
        change = Suggestion("learning_rate", rate, rate * _quantile(share) / _quantile(high))
        return Finding(name, "warn", f"{text}: the learning rate is probably too high.", PAPER, (change,))
    if share < MUCH_LESS * TARGET_CLIP:
        times = 4 if (_quantile(share) / _quantile(TARGET_CLIP)) ** 2 > 2 else 2
        older, larger = _older(config, times), _larger_iteration(config, times)
        return Finding(name, "warn", f"{text}: the proximal policy is too young.", PAPER, older, larger)
    return Finding(name, "pass", f"{text}.", PAPER)


def unclipped(config: Config) -> str:
    """Why the share of clipped ratios says nothing with these settings, in words; nothing where it does."""
    if config.objective != "clip":
        return f"objective is {config.objective}, nothing is clipped"
    if config.hypers.clip_eps == math.inf:
        return "clip_eps is inf, nothing is clipped"
    if has_not_moved(config, config.proximal_policy):
        return NOT_MOVED
    lag = across_the_lag(config)
    return f"not measured, the ratio {lag}" if lag else ""


def has_not_moved(config: Config, since: str) -> bool:
    """Whether the policy that is compared with the one named `since` can only be the same one.

    A minibatch is measured before its own gradient step. Where that is the first and only one on fresh data, the policy
    is the one that collected them, unless epochs of the value function have moved layers that both have. An average
    over iterations is older, and of stale data only the recent policy is not.
    """
    moved_before = bool(config.value_epochs) and config.arrangement == "shared"
    if config.geometry.gradient_steps > 1 or moved_before or since == "ewma":
        return False
    return since == "recent" or not config.is_stale


def across_the_lag(config: Config) -> str:
    """Why what is measured against the proximal policy is not of one iteration, where that is as old as stale data."""
    if not config.is_stale or config.proximal_policy not in ("behavior", "loglinear", "loglinear-age"):
        return ""
    return f"to a policy that may be {counted(config.updates_behind, 'iteration')} old says nothing about one iteration"


def _quantile(share: float) -> float:
    """z with P(|x| > z) = share, x standard normal; shares at the ends stay finite."""
    return NormalDist().inv_cdf(1 - min(max(share, 1e-12), 0.98) / 2)


def _older(config: Config, times: int) -> tuple[Suggestion, ...]:
    """A proximal policy that is so many times older: by its EWMA, or by one as old as the rollout's policy is now."""
    if config.proximal_policy == "ewma":
        beta = config.hypers.beta_prox
        return (Suggestion("beta_prox", beta, center_of_mass_times(beta, times)),)
    steps = max(2, config.geometry.gradient_steps)  # of one step alone the policy has no age that could be multiplied
    return (
        Suggestion("proximal_policy", config.proximal_policy, "ewma"),
        Suggestion("beta_prox", None, center_of_mass_times(beta_of_rollout(steps), times)),
    )


def _larger_iteration(config: Config, times: int) -> tuple[Suggestion, ...]:
    """An iteration batch so many times larger, the optimization batch as it is: footnote 4 of the paper.

    Longer rollouts bootstrap less, so lambda may have to follow. An average is no older for it.
    """
    if config.proximal_policy == "ewma":
        return ()
    return tuple(
        Suggestion(name, now, now * times)
        for name, now in (("num_steps", config.num_steps), ("num_minibatches", config.num_minibatches))
    )


def advantage_swings(metrics: Metrics, config: Config) -> Finding:
    """Largest factor by which the advantages' standard deviation both rises and falls within a few rows.

    Model for the suggestion: the logarithm of the estimate is noisy as 1/sqrt(span), so a swing s comes down to
    sqrt(10) at a span 4 (log10 s)^2 times as long.
    """
    name = "advantage-swings"
    if config.advantage_norm == "none":
        return Finding(name, "note", "advantage standard deviation: advantages are not normalized.", PAPER)
    column = EWMA_STD if config.advantage_norm == "ewma" and EWMA_STD in metrics else ADVANTAGE_STD
    swings = [
        swing(rows[i : i + SWING_ROWS])
        for rows in _by_seed(metrics, column)
        for i in range(0, len(rows), SWING_ROWS // 2)
    ]
    if not swings:
        return Finding(name, "note", "advantage standard deviation: not measured.", PAPER)
    worst = max(swings)
    text = (
        f"the advantage standard deviation moves up and down by a factor of {worst:.3g}; {LARGE_SWING:g} is too much."
    )
    decay = advantage_decay(config)
    new = span_times(decay, 4 * math.log10(max(worst, LARGE_SWING)) ** 2)
    changes = [Suggestion("adv_norm_decay", decay, new)]
    if config.advantage_norm != "ewma":
        changes.insert(0, Suggestion("advantage_norm", config.advantage_norm, "ewma"))
    return made(name, PAPER, worst < LARGE_SWING, text, *changes)


def swing(values: Sequence[float]) -> float:
    """min(largest rise, largest fall) of a positive series, as factors: a drift in one direction is no swing."""
    low = high = math.nan
    rise = fall = 1.0
    for value in values:
        if value <= 0:
            continue
        low, high = (value, value) if math.isnan(low) else (min(low, value), max(high, value))
        rise, fall = max(rise, value / low), max(fall, high / value)
    return min(rise, fall)


def explained_variance(metrics: Metrics, config: Config) -> Finding:
    """1 - Var(target - value)/Var(target): below 0 the values are worse than a constant.

    The suggestion goes half of the way to lambda = 1, where advantages lean on the values least.
    """
    name, source = "explained-variance", "by definition"
    share = recent(metrics, EXPLAINED_VARIANCE, config)
    if share is None:
        return Finding(name, "note", "explained variance: not measured.", source)
    text = (
        f"the value function explains {share:.2f} of the variance of its targets; below 0 a constant would do better."
    )
    lam, weight = config.hypers.gae_lambda, config.hypers.vf_coef
    change = Suggestion("gae_lambda", lam, (1 + lam) / 2) if lam < 1 else Suggestion("vf_coef", weight, 2 * weight)
    return made(name, source, share >= 0, text, change)


def kl_per_iteration(metrics: Metrics, config: Config) -> Finding:
    """KL from the policy before the iteration. Model for the suggestion: KL goes by the square of the learning rate.

    On fresh data that is the behavior policy. Stale data comes from one that is iterations older, so there the KL to
    the proximal policy is taken, unless it is as old.
    """
    name, source = "kl-per-iteration", "target_kl of Stable-Baselines3 and CleanRL, usually 0.01 to 0.05"
    if lag := across_the_lag(config):
        return Finding(name, "note", f"KL per iteration: not measured, the KL {lag}.", source)
    if has_not_moved(config, config.proximal_policy if config.is_stale else "behavior"):
        return Finding(name, "note", f"KL per iteration: {NOT_MOVED}.", source)
    kl = recent(metrics, PROXIMAL_KL if config.is_stale else KL, config)
    if kl is None:
        return Finding(name, "note", "KL per iteration: not measured.", source)
    text = f"the policy moves by a KL of {kl:.3g} per iteration; above {HIGH_KL:g} is far."
    rate = config.hypers.learning_rate
    change = Suggestion("learning_rate", rate, rate * math.sqrt(TARGET_KL / max(kl, TARGET_KL)))
    return made(name, source, kl <= HIGH_KL, text, change)


def affordable_lag(metrics: Metrics, config: Config) -> Finding:
    """How old data may be. Model: a policy that keeps its direction is at a KL that goes by the square of the distance,
    and data is d + 1/2 iterations away in the mean over an update, if it was d old at its beginning."""
    name = "affordable-lag"
    source = "ours; the bias of old data goes by lag x learning rate (Song 2026, https://arxiv.org/abs/2607.01083)"
    if has_not_moved(config, "behavior"):
        return Finding(name, "note", f"affordable lag: {NOT_MOVED}.", source)
    kl = recent(metrics, KL, config)
    if kl is None or kl <= 0 or config.objective == "policy-gradient":
        return Finding(name, "note", "affordable lag: not measured, or there are no ratios to correct with.", source)
    seen = recent(metrics, LAG, config) if config.is_stale else 0.0
    now = config.updates_behind if seen is None else seen
    most = max(0, math.floor((now + 0.5) * math.sqrt(HIGH_KL / kl) - 0.5))
    batch = config.geometry.iteration_batch
    text = (
        f"data of up to {counted(most, 'iteration')} ({counted(most * batch, 'environment step')}) stays within a KL "
        f"of {HIGH_KL:g} of the policy that learns from it, if the policy keeps its direction"
    )
    if not config.is_stale:
        return Finding(name, "note", f"{text}.", source)
    field, step = ("staleness", 1) if config.staleness else ("max_lag", batch)
    change = Suggestion(field, getattr(config, field), max(most * step, 0))
    bound = counted(config.updates_behind, "iteration")
    return made(name, source, config.updates_behind <= most, f"{text}; it may be {bound} old here.", change)


MONITORS = (clip_fraction, advantage_swings, explained_variance, kl_per_iteration, affordable_lag)


def monitor(metrics: Metrics, config: Config, done: float | None = None) -> tuple[list[Finding], list[Conflict]]:
    """What every monitor finds, and where they differ, or a band without a source does.

    `done` is the share of the run that these metrics are of, by default what their steps say.
    """
    if done is None:
        done = max(metrics[ENV_STEPS], default=0) / config.env_steps if ENV_STEPS in metrics else 1.0
    findings = [check(metrics, config) for check in MONITORS]
    if done < EARLY_SHARE:
        remark = f"Too early to judge after {done:.0%} of the run."
        return [finding.noted(remark) if finding.status == "warn" else finding for finding in findings], []
    return findings, conflicts(findings, recent(metrics, CLIPFRAC, config))


def conflicts(findings: Sequence[Finding], share: float | None) -> list[Conflict]:
    changed = {f.name: {s.field for s in f.suggestions} for f in findings}
    result = []
    clipped = next(f.status for f in findings if f.name == "clip-fraction")
    if share is not None and clipped != "note":
        healthy = OFTEN_CALLED_HEALTHY[0] <= share <= OFTEN_CALLED_HEALTHY[1]
        if healthy != (clipped == "pass"):
            why = (
                f"10% to 30% is often called healthy and would {'keep' if healthy else 'change'} {share:.2%}; that "
                "band is ours, since we know of no source, and the paper distils its own from its experiments"
            )
            result.append(Conflict("clip-fraction", "clip fraction of 10% to 30%", why))
    if "learning_rate" in changed["clip-fraction"] and "learning_rate" in changed["kl-per-iteration"]:
        why = "both ask for a lower learning rate; the clip fraction is the paper's own measure"
        result.append(Conflict("clip-fraction", "kl-per-iteration", why))
    elif changed["clip-fraction"] and "learning_rate" in changed["kl-per-iteration"]:
        why = "one change at a time, and the learning rate first: it matters most by far (section 6.2)"
        result.append(Conflict("kl-per-iteration", "clip-fraction", why))
    return result


def unspoken(findings: Iterable[Finding], spoken: frozenset[str]) -> tuple[list[Finding], frozenset[str]]:
    """The warnings whose cause was not spoken of yet, and all that have been: for a run that goes on."""
    new = [f for f in findings if f.status == "warn" and f.name not in spoken]
    return new, spoken | {f.name for f in new}


def recent(metrics: Metrics, name: str, config: Config) -> float | None:
    """Mean of a metric over the last quarter of the rows of every seed, None if it was hardly measured."""
    seeds = _by_seed(_before_annealed(metrics, config), name)
    means = [fmean(rows[-max(1, round(RECENT_SHARE * len(rows))) :]) for rows in seeds]
    return fmean(means) if means else None


def _before_annealed(metrics: Metrics, config: Config) -> Metrics:
    """The rows in which a falling learning rate, or clip range, is still at least half of what it was."""
    first: dict[str, float] = {} if config.lr_schedule == "constant" else {LEARNING_RATE: config.hypers.learning_rate}
    first |= {CLIP_EPS: config.hypers.clip_eps} if "clip_eps" in falling_ranges(config) else {}
    for column in first.keys() & metrics.keys():
        kept = [i for i, value in enumerate(metrics[column]) if value >= first[column] / 2]
        metrics = {name: [rows[i] for i in kept] for name, rows in metrics.items()}
    return metrics


def _by_seed(metrics: Metrics, name: str) -> list[list[float]]:
    """The finite values of a metric, seed by seed; seeds with too few are left out."""
    if name not in metrics:
        return []
    seeds = metrics["seed"] if "seed" in metrics else [0] * len(metrics[name])
    rows: dict[float, list[float]] = {}
    for seed, value in zip(seeds, metrics[name], strict=True):
        if math.isfinite(value):
            rows.setdefault(seed, []).append(float(value))
    return [values for values in rows.values() if len(values) >= FEWEST_ROWS]
