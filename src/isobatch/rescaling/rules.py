"""How hyperparameters follow the batch size: one formula per rule, and the register of rules by name.

Both the iteration batch and the optimization batch are divided by c (c > 1 is smaller, c < 1 larger). Every formula
takes the value before and c, and returns the value after; each is the identity at c = 1 and f_b(f_a(x)) = f_ab(x),
but for the clamps that `span_times` and `malladi_beta` name.

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

    For Adam this is the paper's ablation, not a rule that holds.
    """
    return learning_rate / c


def power(beta: float, c: float) -> float:
    """Decay rate that forgets equally much per sample: beta' = beta^(1/c).

    Adam's beta1 and beta2: the paper, section 3.2 (after Hardin 2017). An average of the weights: Busbridge et al.
    (2023), rho' = rho^kappa with kappa = 1/c.
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
class Rule:
    """A named rule: which fields it sets, from which of the two factors, and why."""

    name: str
    fields: tuple[str, ...]
    follows: Literal["iteration", "optimization"]
    """Batch whose factor c the rule goes by. The two differ under `iteration-batch-only` alone."""
    default: bool
    equation: str
    source: str
    apply: Callable[[Config, float], Mapping[str, object]]
    reason: Callable[[Config, Config], str]
    """One line for a person, from the config before and after."""
    optimizers: tuple[str, ...] = ("adam", "rmsprop", "sgd")


def _rates(rule: Callable[[float, float], float], config: Config, c: float) -> Mapping[str, object]:
    """The learning rate, and with an auxiliary phase that one's too: its minibatches shrink by the same factor."""
    h = config.hypers
    auxiliary = {"aux_learning_rate": rule(h.aux_learning_rate, c)} if config.policy_iterations_per_phase else {}
    return {"learning_rate": rule(h.learning_rate, c)} | auxiliary


def _fewer_minibatches(config: Config, c: float) -> Mapping[str, object]:
    auxiliary = {"aux_minibatches": round(config.aux_minibatches / c)} if config.policy_iterations_per_phase else {}
    return {"num_minibatches": round(config.num_minibatches / c)} | auxiliary


def _malladi(config: Config, c: float) -> Mapping[str, object]:
    h = config.hypers
    return {
        **_rates(square_root, config, c),
        "beta1": malladi_beta(h.beta1, c),
        "beta2": malladi_beta(h.beta2, c),
        "optimizer_eps": malladi_eps(h.optimizer_eps, c),
    }


def _advantages(config: Config, c: float) -> Mapping[str, object]:
    """Normalization per iteration is the EWMA with decay 0; the others have no span to change."""
    if config.advantage_norm not in ("iteration", "ewma"):
        return {}
    decay = span_times(advantage_decay(config), c)
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


PAPER = "Hilton 2021"
ADAPTIVE = ("adam", "rmsprop")
RATES = ("learning_rate", "aux_learning_rate")

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "adam-sqrt", RATES, "optimization", True, "lr / sqrt(c)", f"{PAPER}, section 3.2",
            lambda config, c: _rates(square_root, config, c),
            lambda before, after: "c steps for one, each with 1/sqrt(c) of the signal",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "sgd-linear", RATES, "optimization", True, "lr / c", f"{PAPER}, section 3.1",
            lambda config, c: _rates(linear, config, c),
            lambda before, after: "c steps for one, each with all of the signal",
            optimizers=("sgd",),
        ),
        Rule(
            "proximal-age", ("beta_prox",), "optimization", True, "1/(1-b) - 1, times c", f"{PAPER}, section 4",
            lambda config, c: _proximal(center_of_mass_times, config, c),
            _proximal_reason,
        ),
        Rule(
            "advantage-span", ("advantage_norm", "adv_norm_decay"), "iteration", True, "2/(1-b) - 1, times c",
            f"{PAPER}, section 4", _advantages, _advantage_reason,
        ),
        Rule(
            "phase-batch", ("policy_iterations_per_phase",), "iteration", True, "N_pi * c", f"{PAPER}, section 4",
            lambda config, c: {"policy_iterations_per_phase": rounded_phase(config, c)},
            _phase_reason,
        ),
        Rule(
            "betas", ("beta1", "beta2"), "optimization", False, "b^(1/c)", f"{PAPER}, section 3.2",
            lambda config, c: {name: power(getattr(config.hypers, name), c) for name in ("beta1", "beta2")},
            lambda before, after: "forgets equally much per sample (optional: Adam is robust to it)",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "linear-adam", RATES, "optimization", False, "lr / c", f"{PAPER}, section 5.2",
            lambda config, c: _rates(linear, config, c),
            lambda before, after: "the paper's ablation: SGD's rule applied to Adam",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "malladi", (*RATES, "beta1", "beta2", "optimizer_eps"), "optimization", False,
            "lr / sqrt(c), 1 - (1-b)/c, eps * sqrt(c)", "Malladi 2022", _malladi,
            lambda before, after: "holds the stochastic differential equation that Adam follows",
            optimizers=ADAPTIVE,
        ),
        Rule(
            "busbridge", ("beta_prox",), "optimization", False, "b^(1/c)", "Busbridge 2023",
            lambda config, c: _proximal(power, config, c),
            lambda before, after: "forgets equally much per sample; the center of mass is held only nearly",
        ),
        Rule(
            "iteration-batch-only", ("num_minibatches", "aux_minibatches"), "iteration", False, "minibatches / c",
            "Beukman 2026", _fewer_minibatches,
            lambda before, after: f"the optimization batch stays {before.geometry.optimization_batch:,} samples",
        ),
    )
}  # fmt: skip
