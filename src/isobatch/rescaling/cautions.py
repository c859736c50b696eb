"""Where the theory behind the rescaling rules stops: one small function per limit, a sentence or nothing.

Sources as in `rules`; "section" is one of Hilton, Cobbe & Schulman (2021).
"""

from __future__ import annotations

from collections.abc import Sequence

from isobatch.formatting import rounded
from isobatch.rescaling.rules import advantage_decay, center_of_mass_times, decoupled_decay, noise_threshold
from isobatch.settings.accounting import GOOD_ROWS, samples_used, surely_used, updates
from isobatch.settings.config import Config
from isobatch.settings.geometry import beta_of_rollout, span

FEW_ITERATIONS = 50
COLLAPSED = 0.5  # of the share of samples that whole episodes use: less of it left is a collapse
SAME_SHARE = 1.1  # factor by which that share may change while the rules go by what is collected
NEAR_CRITICAL = 0.5  # share of the critical batch from which a batch counts as near it


def several_epochs(before: Config, after: Config) -> str:
    """Section 4: one policy epoch is required; on a small iteration batch several are training on the same data."""
    if before.update_epochs == 1 or before.geometry.iteration_batch == after.geometry.iteration_batch:
        return ""
    return (
        f"update_epochs={before.update_epochs}: the rules are derived for one policy epoch; with more, the smaller the "
        "iteration batch the more the later epochs repeat the same few samples. Set update_epochs=1 and tune again."
    )


def critical_batch_size(
    before: Config, after: Config, critical_batch: float | None, time_limit: int | None = None
) -> str:
    """Section 3.1 and McCandlish et al. (2018): samples needed grow as 1 + B/B_crit.

    B is what is learned from: of whole episodes the samples that are surely used, up to all where no limit is known.
    """
    was, is_now = samples_used(before, time_limit), samples_used(after, time_limit)
    old, new = was.optimization, is_now.optimization
    if old == new:
        return ""
    sizes = f"optimization batch {was.per_minibatch} -> {is_now.per_minibatch}"
    if critical_batch is None:
        if new < old:
            return (
                f"{sizes}: the base must itself be well under the critical batch "
                "size, which was not given; from one above it, smaller ones learn faster per step instead of alike. "
                "Pass critical_batch (its gradient noise scale) to have this checked."
            )
        return (
            f"{sizes}: the rules hold only well under the critical batch size, which "
            "was not given; pass critical_batch (its gradient noise scale) to have this checked."
        )
    worst, largest = max((old, was.per_minibatch), (new, is_now.per_minibatch))
    if worst < NEAR_CRITICAL * critical_batch:
        return ""
    critical = f"the critical batch size of {rounded(critical_batch, 6)}"
    cost = f"{(1 + new / critical_batch) / (1 + old / critical_batch):.2f} times the environment steps"
    formula = "(1 + B'/B_crit) / (1 + B/B_crit)"
    if new < old and old > critical_batch:
        return (
            f"the base's own optimization batch of {was.per_minibatch} is above {critical}: shrinking costs nothing "
            "down to there, since what is beyond it is wasted, and the rules are not to be expected to keep the curve. "
            f"With {is_now.per_minibatch} count on learning sooner, with {cost} for the same result ({formula}); the "
            "learning rate may be too low, since above the critical batch size a smaller batch needs no smaller step: "
            "tune it again, upwards."
        )
    place = "above" if worst > critical_batch else "near"
    base = ", and so is the base" if old > critical_batch else ""
    return (
        f"an optimization batch of {largest} is {place} {critical}{base}: expect to need {cost} for the same result "
        f"({formula})."
    )


def proximal_age_changes(before: Config, after: Config) -> str:
    """Section 4: without the EWMA the proximal policy is as old as the iteration batch makes it."""
    if before.proximal_policy == "ewma" or before.objective == "policy-gradient":
        return ""
    old, new = before.geometry, after.geometry
    if old.iteration_batch == new.iteration_batch:
        return ""
    ratio = old.optimization_batch / new.optimization_batch
    beta = center_of_mass_times(beta_of_rollout(old.gradient_steps), ratio)
    return (
        f"proximal_policy={before.proximal_policy}: its age follows the iteration batch ({old.iteration_batch:,} -> "
        f"{new.iteration_batch:,} steps), so clipping or KL penalty will act otherwise and no rule can undo it. Use "
        f"proximal_policy=ewma, here with beta_prox={beta:.6g} (as old as it was)."
    )


def minibatch_normalization(before: Config, after: Config) -> str:
    """Section 4 holds the samples behind the advantages' moments; a minibatch's own cannot be held."""
    old, new = before.geometry.optimization_batch, after.geometry.optimization_batch
    if before.advantage_norm != "minibatch" or old == new:
        return ""
    return (
        f"advantage_norm=minibatch: advantages will be normalized over {new:,} samples instead of {old:,}, which "
        "changes their noise. Use advantage_norm=iteration, which the rule advantage-span can hold."
    )


def phase_rounding(before: Config, after: Config) -> str:
    """Section 4 holds the phase batch; N_pi is a whole number of iterations."""
    was, is_now = before.geometry.phase_batch, after.geometry.phase_batch
    if not was or was == is_now or before.policy_iterations_per_phase == after.policy_iterations_per_phase:
        return ""
    exact = was / after.geometry.iteration_batch
    return (
        f"policy_iterations_per_phase={after.policy_iterations_per_phase} is {exact:.6g} rounded to whole iterations: "
        f"the phase batch is {is_now:,} instead of {was:,} steps, off by {100 * (is_now / was - 1):+.2g} %."
    )


def steps_change(before: Config, after: Config) -> str:
    """Section 6.2, footnote 4: T also sets how much is bootstrapped."""
    t, new = before.num_steps, after.num_steps
    if t == new or before.complete_episodes:
        return ""
    decay = before.hypers.gamma * before.hypers.gae_lambda
    horizon = f"{rounded(1 / (1 - decay))} steps" if decay < 1 else "without end"
    instead = " Changing num_envs avoids this." if before.num_envs == after.num_envs else ""
    return (
        f"num_steps {t} -> {new}: the last steps of each rollout bootstrap from the value function, so the bias "
        f"changes with T, most where T is not well above the horizon of the advantages, 1/(1 - gamma lambda) = "
        f"{horizon}; gae_lambda may need attention.{instead}"
    )


def few_iterations(before: Config, after: Config) -> str:
    """A larger iteration batch in a run of the same length: fewer policies collect its data."""
    was, now = updates(before), updates(after)
    if now >= was or now >= FEW_ITERATIONS:
        return ""
    keep = "" if after.complete_episodes else ", or keep the iteration batch (keep=iteration-batch)"
    learned = f" with an update (staleness={after.staleness})" if after.staleness else ""
    return (
        f"iterations{learned} {was:,} -> {now:,}: a run of {after.total_timesteps:,} steps has no more, so its data "
        f"comes from that many policies only. Train longer{keep}."
    )


def stale_data(before: Config, after: Config) -> str:
    """Section 5.1: staleness counts iterations; data of the same age in environment steps would need another count."""
    old, new = before.geometry.iteration_batch, after.geometry.iteration_batch
    if not before.staleness or old == new:
        return ""
    return (
        f"staleness={before.staleness} stays: data will be {before.staleness * new:,} environment steps old "
        f"instead of {before.staleness * old:,}; for the same age use staleness={before.staleness * old / new:.4g}."
    )


def lag_times_rate(before: Config, after: Config) -> str:
    """Song et al. (2026), https://arxiv.org/abs/2607.01083: the bias of stale data goes by lag x step size."""
    if not before.is_stale or not after.is_stale:
        return ""
    growth = after.updates_behind * after.hypers.learning_rate / (before.updates_behind * before.hypers.learning_rate)
    if growth <= 1 + 1e-6:
        return ""
    behind = f"{before.updates_behind} -> {after.updates_behind} updates"
    field, unit = ("staleness", 1) if after.staleness else ("max_lag", after.geometry.iteration_batch)
    least = max(1, round(after.updates_behind / growth)) * unit
    return (
        f"{field}: data may be {behind} behind, and lag x learning rate, by which its bias goes (Song 2026), is "
        f"{growth:.3g} times as large. Use {field}={least} to hold it as well as whole iterations allow."
    )


def lag_raised(before: Config, after: Config) -> str:
    """Actors: whole iterations are the least that data can be old."""
    if before.max_lag == after.max_lag:
        return ""
    return (
        f"max_lag={before.max_lag} -> {after.max_lag}: less than one iteration of the new size cannot be, so data gets "
        "older than it was allowed to. Use max_lag=0 to collect and learn by turns."
    )


def malladi_range(before: Config, after: Config, rules: Sequence[str]) -> str:
    """Malladi et al. (2022): 1 - kappa (1 - beta) leaves [0, 1) when kappa > 1/(1 - beta)."""
    growth = after.geometry.optimization_batch / before.geometry.optimization_batch
    broken = [n for n in ("beta1", "beta2") if growth * (1 - getattr(before.hypers, n)) > 1 + 1e-12]
    if "malladi" not in rules or not broken:
        return ""
    limits = " and ".join(f"{n} breaks above {1 / (1 - getattr(before.hypers, n)):.4g}" for n in broken)
    return (
        f"malladi is out of range: the optimization batch grows {growth:.4g}-fold and {limits}; the value was set to 0."
    )


def advantage_clamp(before: Config, after: Config, rules: Sequence[str]) -> str:
    """Section 4: fewer samples than one iteration cannot be asked for."""
    decay = advantage_decay(before)
    factor = before.geometry.iteration_batch / after.geometry.iteration_batch
    if "advantage-span" not in rules or before.advantage_norm not in ("iteration", "ewma"):
        return ""
    if span(decay) * factor > 1 - 1e-12:
        return ""
    span_size = span(decay) * before.geometry.iteration_batch
    return (
        f"advantage decay {decay:.6g} at the base: its {span_size:,.0f} samples are fewer than the new iteration batch "
        f"of {after.geometry.iteration_batch:,}, so the decay stops at 0 and rescaling back will not restore it."
    )


def beyond_the_peak(before: Config, after: Config, rules: Sequence[str], critical_batch: float | None) -> str:
    """Li et al. (2024), theorems 3 and 4: beyond B_noise the best step size falls, later it levels off above zero."""
    batch = after.geometry.optimization_batch
    if "surge" not in rules or critical_batch is None or batch <= critical_batch:
        return ""
    was, now = before.hypers.learning_rate, after.hypers.learning_rate
    return (
        f"surge: a minibatch of {batch:,} is beyond the critical batch size of {rounded(critical_batch, 6)}, where the "
        f"best step size falls again ({rounded(was, 4)} -> {rounded(now, 4)}). A larger batch gains hardly anything "
        "per step there and costs samples; far beyond, the best step size levels off above what this rule says."
    )


def rate_at_its_edge(before: Config, after: Config, rules: Sequence[str]) -> str:
    """Measured here by the study `invariance`: docs/results/invariance.md."""
    larger = after.geometry.optimization_batch > before.geometry.optimization_batch
    was, now = before.hypers.learning_rate, after.hypers.learning_rate
    if "adam-sqrt" not in rules or not larger or now <= was:
        return ""
    keep = "" if after.complete_episodes else ", or keep N x T where environments are added"
    return (
        f"adam-sqrt: a learning rate that was tuned is at the edge of what its batch bears, and {rounded(now, 4)} in "
        f"place of {rounded(was, 4)} may be beyond it, also far below the critical batch size "
        f"(docs/results/invariance.md). Tune it again for the larger minibatch{keep}."
    )


def one_step_for_many(before: Config, after: Config, rules: Sequence[str]) -> str:
    """Wang & Aitchison (2024): the invariance is that of many small steps; a step for kappa of them must be small."""
    growth = after.geometry.optimization_batch / before.geometry.optimization_batch
    if "micro-linear" not in rules or growth <= 1:
        return ""
    return (
        f"micro-linear: one step does what {rounded(growth)} steps did ({rounded(before.hypers.learning_rate, 4)} -> "
        f"{rounded(after.hypers.learning_rate, 4)}), which is the same as long as these together move the policy "
        "little. Noise sets no limit here, but the curvature does: watch losses/approx_kl."
    )


def short_half_life(before: Config, after: Config, rules: Sequence[str]) -> str:
    """Zhang et al. (2022), https://arxiv.org/abs/2208.09632: Adam needs beta1 < sqrt(beta2)."""
    h = after.hypers
    if "beta2-half-life" not in rules or after.optimizer == "rmsprop" or h.beta1 < h.beta2**0.5:
        return ""
    return (
        f"beta2-half-life: beta2={h.beta2:.4g} forgets faster than beta1={h.beta1:g} allows (Adam needs beta1 < "
        "sqrt(beta2)), since its half-life is few gradient steps of this size. Leave the rule out, or use betas, which "
        "moves both."
    )


def gradient_clip(before: Config, after: Config, rules: Sequence[str], critical_batch: float | None) -> str:
    """McCandlish et al. (2018): E|G_B|^2 = |G|^2 + S/B, so a smaller batch has a longer gradient."""
    old, new = before.geometry.optimization_batch, after.geometry.optimization_batch
    ratio, limit = old / new, before.hypers.max_grad_norm
    if limit == float("inf") or ratio == 1:
        return ""
    if "clip-noise" in rules:
        if critical_batch is not None:
            return ""
        return (
            f"clip-noise: max_grad_norm={rounded(limit, 6)} -> {rounded(after.hypers.max_grad_norm, 6)} counts all "
            "gradients as noise; their signal does not change with the batch, so near the critical batch size this is "
            "too much. Pass critical_batch to have the signal counted too."
        )
    by = f"up to {max(ratio, 1 / ratio) ** 0.5:.3g}-fold"
    how = f"grow {by} and be clipped more often" if ratio > 1 else f"shrink {by} and be clipped less often"
    return (
        f"max_grad_norm={limit:g} stays: gradient noise goes by 1/sqrt(batch), so norms will {how}. The rule "
        f"clip-noise makes it {rounded(noise_threshold(limit, old, new, critical_batch), 4)}; the paper's reference "
        "code clips none. Watch losses/grad_norm."
    )


def weight_decay_stays(name: str, decay: float, before: Config, after: Config) -> str:
    """Of another library's settings: there is no weight decay here, and no rule changes it."""
    c = before.geometry.optimization_batch / after.geometry.optimization_batch
    held = decoupled_decay(decay, before.hypers.learning_rate, after.hypers.learning_rate, c)
    return (
        f"{name}={decay:g} stays, and no rule here knows it: decoupled (AdamW), weights forget over batch / (rate x "
        f"decay) samples, and {rounded(held, 4)} would hold that (Wang 2024, arXiv 2405.13698); as a part of the loss "
        "(L2, Adam's own weight_decay) it is a gradient like others and may stay"
    )


def muon_step_size(name: str) -> str:
    """Of another library's settings: Muon's steps have a fixed size, and how that follows the batch is not settled."""
    return (
        f"{name} is taken for Adam here: the rule of the square root is derived for Adam. For Muon it was used up to "
        "batches of some thousand (arXiv 2507.01598), while a larger run doubled its batch and did not raise the rate "
        "(Liu 2025, arXiv 2502.16982): try both"
    )


def share_used(config: Config, time_limit: int) -> float:
    """Of what an iteration collects, the share that is surely used."""
    return surely_used(config, time_limit) / config.geometry.iteration_batch


def whole_episodes(before: Config, after: Config, time_limit: int | None) -> str:
    """Collected is not used, where whole episodes are: the share goes by the rollout length."""
    if not after.complete_episodes:
        return ""
    if time_limit is None:
        return (
            f"the {after.geometry.iteration_batch:,} steps of an iteration are those that are collected. Learned from "
            f"are whole episodes that begin early enough to end within num_steps={after.num_steps:,} at any length: "
            "num_steps minus the time limit, of each row, or more (the metric charts/samples_used says how many)."
        )
    refused = " Training refuses rows that are shorter than the time limit." if after.num_steps < time_limit else ""
    if share_stays(before, after, time_limit) and not refused:
        return ""
    counts = [f"{surely_used(c, time_limit):,} of {c.geometry.iteration_batch:,}" for c in (before, after)]
    shares = [f"{share_used(c, time_limit):.0%}" for c in (before, after)]
    return (
        f"samples used, at least {' -> '.join(counts)}: of rows of {after.num_steps:,} steps whole episodes of up to "
        f"{time_limit:,} use {shares[1]} at the least, {shares[0]} before, so the batch that is learned from is not "
        f"the one that the rules go by{_both_ratios(before, after, time_limit)}.{refused} "
        f"{_better_rows(before, after, time_limit)}."
    )


def _both_ratios(before: Config, after: Config, time_limit: int) -> str:
    """By what the collected and the used samples are divided, where some of them are used both times."""
    used = [surely_used(config, time_limit) for config in (before, after)]
    if not all(used):
        return ""
    collected = before.geometry.iteration_batch / after.geometry.iteration_batch
    return f": what is collected is divided by c = {rounded(collected)}, what is used by {rounded(used[0] / used[1])}"


def _better_rows(before: Config, after: Config, time_limit: int) -> str:
    """What to do about a share that changes: good rows that stay, or another learning rate where they become good."""
    good = GOOD_ROWS * time_limit
    if before.num_steps < good <= after.num_steps:
        return f"Rows of {GOOD_ROWS} time limits or more are better ones: tune the learning rate again for them"
    if before.num_steps < good:
        return f"Instead use num_steps of {good:,}, {GOOD_ROWS} time limits"
    return f"Instead keep num_steps{' and change num_envs' if before.num_envs == after.num_envs else ''}"


def share_stays(before: Config, after: Config, time_limit: int) -> bool:
    """Whether the samples in use are divided by about as much as those that are collected, c."""
    low, high = sorted(share_used(config, time_limit) for config in (before, after))
    return high <= SAME_SHARE * low


def share_collapses(before: Config, after: Config, time_limit: int | None) -> bool:
    """Whether whole episodes use much less of what is collected than before, or nothing at all."""
    if not after.complete_episodes or time_limit is None:
        return False
    lost = share_used(after, time_limit) < COLLAPSED * share_used(before, time_limit)
    return lost or after.num_steps < time_limit


def cautions(
    before: Config,
    after: Config,
    rules: Sequence[str],
    critical_batch: float | None,
    time_limit: int | None = None,
) -> tuple[str, ...]:
    """Every sentence that applies, the weightiest first."""
    if before == after:
        return ()
    sentences = (
        whole_episodes(before, after, time_limit),
        several_epochs(before, after),
        proximal_age_changes(before, after),
        critical_batch_size(before, after, critical_batch, time_limit),
        advantage_clamp(before, after, rules),
        phase_rounding(before, after),
        minibatch_normalization(before, after),
        few_iterations(before, after),
        steps_change(before, after),
        stale_data(before, after),
        lag_raised(before, after),
        lag_times_rate(before, after),
        malladi_range(before, after, rules),
        beyond_the_peak(before, after, rules, critical_batch),
        rate_at_its_edge(before, after, rules),
        short_half_life(before, after, rules),
        one_step_for_many(before, after, rules),
        gradient_clip(before, after, rules, critical_batch),
    )
    return tuple(s for s in sentences if s)
