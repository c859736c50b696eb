"""How hyperparameters follow the batch size: one formula per rule, and the register of rules by name.

Both the iteration batch and the optimization batch are divided by c (c > 1 is smaller, c < 1 larger). Every formula
takes the value before and c, and returns the value after; each is the identity at c = 1 and f_b(f_a(x)) = f_ab(x),
but for the clamps that `span_times` and `malladi_beta` name. Those that know the critical batch size take the batch
before and after in place of c, and compose as long as it is the same one.

Unless another source is given, the rules are those of Hilton, Cobbe & Schulman, "Batch size-invariance for policy
optimization" (2021), sections 3 and 4, called "the paper" below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from isobatch.formatting import rounded
from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass, span


def square_root(learning_rate: float, c: float) -> float:
    """Step size of Adam or RMSProp: alpha' = alpha / sqrt(c).

    The paper, section 3.2 and appendix C; Malladi et al. (2022) derive the same for RMSProp.
    """
    return learning_rate / math.sqrt(c)


def linear(learning_rate: float, c: float) -> float:
    """Learning rate of SGD: alpha' = alpha / c (the paper, section 3.1; Goyal et al. 2017).

    For Adam this is the paper's ablation, not a rule that holds; for `adam-micro` it is.
    """
    return learning_rate / c


def surge(learning_rate: float, batch: float, new_batch: float, critical_batch: float) -> float:
    """Step size of Adam near the critical batch size: alpha(B) ~ 1 / (sqrt(B_noise/B) + sqrt(B/B_noise)).

    Li et al. (2024), equation 2, https://arxiv.org/abs/2405.14578: the best step size for the sign of the gradient,
    which Adam nearly follows. Well below B_noise this is the square root rule, at B_noise it is highest, and beyond
    that it falls. B_noise is where speed and data are in balance (their equation 21), so the critical batch size.
    """

    def best(b: float) -> float:
        return 1 / (math.sqrt(critical_batch / b) + math.sqrt(b / critical_batch))

    return learning_rate * best(new_batch) / best(batch)


def noise_threshold(max_grad_norm: float, batch: float, new_batch: float, critical_batch: float | None) -> float:
    """Gradient clipping at the same share of the gradient's norm, sqrt(|G|^2 + S/B) = |G| sqrt(1 + B_crit/B).

    McCandlish et al. (2018), equation A.1 with B_crit = S/|G|^2, https://arxiv.org/abs/1812.06162. Without a critical
    batch size the gradient counts as noise alone, which is the limit B_crit -> infinity: a factor of sqrt(c).
    """
    if critical_batch is None:
        return max_grad_norm * math.sqrt(batch / new_batch)
    return max_grad_norm * math.sqrt((1 + critical_batch / new_batch) / (1 + critical_batch / batch))


def decoupled_decay(weight_decay: float, rate: float, new_rate: float, c: float) -> float:
    """Decoupled weight decay (AdamW) with the same memory in samples, B / (alpha lambda).

    lambda' = lambda alpha / (alpha' c).
    Weights under AdamW are an average of updates over 1 / (alpha lambda) steps, and the best length of that, in
    epochs, hardly changes: Wang & Aitchison (2024), https://arxiv.org/abs/2405.13698. By the square root rule this is
    lambda / sqrt(c); with the step size held, lambda / c, the linear law that Bergsma et al. (2025),
    https://arxiv.org/abs/2505.13738, find for language models.
    """
    return weight_decay * rate / (new_rate * c)


def half_life(beta: float) -> float:
    """Updates after which an exponentially weighted average holds half of what it held: beta^n = 1/2."""
    return math.log(0.5) / math.log(beta) if beta else 0.0


def power(beta: float, c: float) -> float:
    """Decay rate that forgets equally much per sample: beta' = beta^(1/c).

    Adam's beta1 and beta2: the paper, section 3.2 (after Hardin 2017). beta2 alone: Marek et al. (2025), equation 2,
    https://arxiv.org/abs/2507.07101, who hold its half-life in tokens and leave beta1. An average of the weights:
    Busbridge et al. (2023), rho' = rho^kappa with kappa = 1/c.
    """
    return beta ** (1 / c)


def center_of_mass_times(beta: float, c: float) -> float:
    """beta_prox' with 1/(1 - beta') - 1 = c (1/(1 - beta) - 1), that is c / (c + 1/beta - 1).

    The paper, section 4: holds the age of the proximal policy, in environment steps.
    """
    return c / (c + 1 / beta - 1) if beta else 0.0


def span_times(beta: float, c: float) -> float:
    """Advantage decay' with 2/(1 - beta') - 1 = c (2/(1 - beta) - 1): the span s' = c s, beta' = (s' - 1)/(s' + 1).

    The paper, section 4 and its footnote 1: holds the number of samples behind the advantages' mean and standard
    deviation. An iteration cannot be used in part, so s' is at least 1, which is decay 0.
    """
    longer = c * span(beta)
    return 0.0 if longer < 1 + 1e-12 else (longer - 1) / (longer + 1)


def malladi_beta(beta: float, c: float) -> float:
    """beta' = 1 - kappa (1 - beta) with kappa = 1/c (Malladi et al. 2022, square root scaling rule), at least 0.

    Out of range once kappa > 1/(1 - beta): for beta1 = 0.9 where the batch grows more than tenfold.
    """
    return max(0.0, 1 - (1 - beta) / c)


def malladi_eps(eps: float, c: float) -> float:
    """eps' = eps / sqrt(kappa) = eps sqrt(c) (Malladi et al. 2022): eps keeps its size beside the gradient noise."""
    return eps * math.sqrt(c)


@dataclass(frozen=True)
class Move:
    """From one batch to another."""

    c: float
    """The batch before / after: of the iteration, or of the optimization."""
    critical_batch: float | None = None
    """The optimization batch at which noise and signal are equal, where it is known."""


@dataclass(frozen=True)
class Rule:
    """A named rule: which fields it sets, from which of the two factors, and why."""

    name: str
    fields: tuple[str, ...]
    follows: Literal["iteration", "optimization"]
    """Batch whose factor c the rule goes by. The two differ under `iteration-batch-only` alone."""
    default: bool
    equation: str
    """What becomes of each field."""
    source: str
    apply: Callable[[Config, Move], Mapping[str, object]]
    reason: Callable[[Config, Config], str]
    """One line for a person, from the config before and after."""
    optimizers: tuple[str, ...] = ("adam", "adam-micro", "rmsprop", "sgd")
    needs_critical_batch: bool = False


def _rates(rule: Callable[[float, float], float], config: Config, c: float) -> Mapping[str, object]:
    """The learning rate, and with an auxiliary phase that one's too: its minibatches shrink by the same factor."""
    h = config.hypers
    auxiliary = {"aux_learning_rate": rule(h.aux_learning_rate, c)} if config.policy_iterations_per_phase else {}
    return {"learning_rate": rule(h.learning_rate, c)} | auxiliary


def _surge(config: Config, move: Move) -> Mapping[str, object]:
    """Auxiliary minibatches are of another size, but critical batches of their own are not measured."""
    assert move.critical_batch is not None
    batch, critical = config.geometry.optimization_batch, move.critical_batch
    return _rates(lambda rate, c: surge(rate, batch, batch / c, critical), config, move.c)


def _clip(config: Config, move: Move) -> Mapping[str, object]:
    """Only a threshold that is there can follow."""
    limit, batch = config.hypers.max_grad_norm, config.geometry.optimization_batch
    if math.isinf(limit):
        return {}
    return {"max_grad_norm": noise_threshold(limit, batch, batch / move.c, move.critical_batch)}


def _clip_reason(before: Config, after: Config) -> str:
    growth = after.hypers.max_grad_norm / before.hypers.max_grad_norm
    return f"gradients get {rounded(growth)} times as long, so as many are clipped"


def _half_life_reason(before: Config, after: Config) -> str:
    steps = [half_life(config.hypers.beta2) for config in (before, after)]
    samples = steps[0] * before.geometry.optimization_batch
    return f"half forgotten in {rounded(steps[0], 4)} -> {rounded(steps[1], 4)} steps, so {samples:,.0f} samples"


def _fewer_minibatches(config: Config, move: Move) -> Mapping[str, object]:
    c = move.c
    auxiliary = {"aux_minibatches": round(config.aux_minibatches / c)} if config.policy_iterations_per_phase else {}
    return {"num_minibatches": round(config.num_minibatches / c)} | auxiliary


def _malladi(config: Config, move: Move) -> Mapping[str, object]:
    h, c = config.hypers, move.c
    return {
        **_rates(square_root, config, c),
        "beta1": malladi_beta(h.beta1, c),
        "beta2": malladi_beta(h.beta2, c),
        "optimizer_eps": malladi_eps(h.optimizer_eps, c),
    }


def _betas(config: Config, c: float) -> Mapping[str, object]:
    return {name: power(getattr(config.hypers, name), c) for name in ("beta1", "beta2")}


def _micro(config: Config, move: Move) -> Mapping[str, object]:
    """Wang & Aitchison (2024), https://arxiv.org/abs/2402.18824: what the gradient is divided by does not know the
    batch, as long as micro-batches keep their size, so the step size goes as that of SGD; moments forget per sample."""
    return {**_rates(linear, config, move.c), **_betas(config, move.c)}


def _advantages(config: Config, move: Move) -> Mapping[str, object]:
    """Normalization per iteration is the EWMA with decay 0; the others have no span to change."""
    if config.advantage_norm not in ("iteration", "ewma"):
        return {}
    decay = span_times(advantage_decay(config), move.c)
    return {"advantage_norm": "ewma", "adv_norm_decay": decay} if decay > 0 else {"adv_norm_decay": 0.0}


def advantage_decay(config: Config) -> float:
    """The decay that is really used: 0 unless advantage_norm is ewma."""
    return config.hypers.adv_norm_decay if config.advantage_norm == "ewma" else 0.0


def _proximal(rule: Callable[[float, float], float], config: Config, c: float) -> dict[str, object]:
    """Only an average that is in use has an age."""
    return {"beta_prox": rule(config.hypers.beta_prox, c)} if config.proximal_policy == "ewma" else {}


def _proximal_reason(before: Config, after: Config) -> str:
    steps = [center_of_mass(c.hypers.beta_prox) for c in (before, after)]
    age = before.geometry.proximal_age(before.hypers.beta_prox)
    return f"{rounded(steps[0], 4)} -> {rounded(steps[1], 4)} gradient steps, so {age:,.0f} environment steps old"


def rounded_phase(config: Config, c: float) -> int:
    """N_pi * c in whole iterations; a run without phases stays without."""
    return max(1, round(config.policy_iterations_per_phase * c)) if config.policy_iterations_per_phase else 0


def _phase_reason(before: Config, after: Config) -> str:
    was, is_now = before.geometry.phase_batch, after.geometry.phase_batch
    if was == is_now:
        return f"the phase batch stays {was:,} environment steps"
    return f"the phase batch becomes {is_now:,} environment steps, the nearest to {was:,}"


def _advantage_reason(before: Config, after: Config) -> str:
    spans = [span(advantage_decay(c)) for c in (before, after)]
    samples = [s * c.geometry.iteration_batch for s, c in zip(spans, (before, after), strict=True)]
    held = f"{samples[0]:,.0f}" if math.isclose(*samples, rel_tol=1e-6) else f"{samples[0]:,.0f} -> {samples[1]:,.0f}"
    return f"over {rounded(spans[0], 4)} -> {rounded(spans[1], 4)} iterations, so {held} samples"


PAPER = "Hilton et al. 2021, arXiv 2110.00641"
ADAPTIVE = ("adam", "rmsprop")
RATES = ("learning_rate", "aux_learning_rate")

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "adam-sqrt", RATES, "optimization", True, "lr / sqrt(c)", f"{PAPER}, section 3.2",
            lambda config, move: _rates(square_root, config, move.c),
            lambda before, after: "c steps for one, each with 1/sqrt(c) of the signal",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "sgd-linear", RATES, "optimization", True, "lr / c", f"{PAPER}, section 3.1",
            lambda config, move: _rates(linear, config, move.c),
            lambda before, after: "c steps for one, each with all of the signal",
            optimizers=("sgd",),
        ),
        Rule(
            "micro-linear", (*RATES, "beta1", "beta2"), "optimization", True, "lr / c, beta^(1/c)",
            "Wang & Aitchison 2024, arXiv 2402.18824",
            _micro,
            lambda before, after: f"c steps for one; squares stay those of {before.micro_batch_size} samples",
            optimizers=("adam-micro",),
        ),
        Rule(
            "proximal-age", ("beta_prox",), "optimization", True, "1/(1 - beta) - 1, times c",
            f"{PAPER}, section 4",
            lambda config, move: _proximal(center_of_mass_times, config, move.c),
            _proximal_reason,
        ),
        Rule(
            "advantage-span", ("advantage_norm", "adv_norm_decay"), "iteration", True, "2/(1 - decay) - 1, times c",
            f"{PAPER}, section 4", _advantages, _advantage_reason,
        ),
        Rule(
            "phase-batch", ("policy_iterations_per_phase",), "iteration", True, "N_pi * c", f"{PAPER}, section 4",
            lambda config, move: {"policy_iterations_per_phase": rounded_phase(config, move.c)},
            _phase_reason,
        ),
        Rule(
            "betas", ("beta1", "beta2"), "optimization", False, "beta^(1/c)", f"{PAPER}, section 3.2",
            lambda config, move: _betas(config, move.c),
            lambda before, after: "forgets equally much per sample (optional: Adam is robust to it)",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "beta2-half-life", ("beta2",), "optimization", False, "beta2^(1/c)", "Marek et al. 2025, arXiv 2507.07101",
            lambda config, move: {"beta2": power(config.hypers.beta2, move.c)},
            _half_life_reason,
            optimizers=ADAPTIVE,
        ),
        Rule(
            "surge", RATES, "optimization", False, "lr ~ 1/(sqrt(B_crit/B) + sqrt(B/B_crit))",
            "Li et al. 2024, arXiv 2405.14578",
            _surge,
            lambda before, after: "as the square root below the critical batch, falling beyond it",
            optimizers=ADAPTIVE,
            needs_critical_batch=True,
        ),
        Rule(
            "clip-noise", ("max_grad_norm",), "optimization", False,
            "norm * sqrt((1 + B_crit/B')/(1 + B_crit/B)), or norm * sqrt(c)",
            "after McCandlish et al. 2018, arXiv 1812.06162", _clip, _clip_reason,
        ),
        Rule(
            "linear-adam", RATES, "optimization", False, "lr / c", f"an ablation of {PAPER}, section 5.2",
            lambda config, move: _rates(linear, config, move.c),
            lambda before, after: "the paper's ablation: SGD's rule applied to Adam",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "malladi", (*RATES, "beta1", "beta2", "optimizer_eps"), "optimization", False,
            "lr / sqrt(c), 1 - (1 - beta)/c, eps * sqrt(c)", "Malladi et al. 2022, arXiv 2205.10287", _malladi,
            lambda before, after: "holds the stochastic differential equation that Adam follows",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "busbridge", ("beta_prox",), "optimization", False, "beta^(1/c)", "Busbridge et al. 2023, arXiv 2307.13813",
            lambda config, move: _proximal(power, config, move.c),
            lambda before, after: "forgets equally much per sample; the center of mass is held only nearly",
        ),
        Rule(
            "iteration-batch-only", ("num_minibatches", "aux_minibatches"), "iteration", False, "their number / c",
            "Beukman 2026, arXiv 2603.06009", _fewer_minibatches,
            lambda before, after: f"the optimization batch stays {before.geometry.optimization_batch:,} samples",
        ),
    )
}  # fmt: skip
