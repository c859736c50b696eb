"""The monitors on metrics made by hand, with their suggestions worked out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.advice.findings import Finding
from isobatch.advice.monitors import (
    ADVANTAGE_STD,
    CLIP_EPS,
    CLIPFRAC,
    EWMA_STD,
    EXPLAINED_VARIANCE,
    KL,
    LEARNING_RATE,
    PROXIMAL_KL,
    clip_fraction,
    monitor,
    recent,
    swing,
    unspoken,
)
from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass, span
from isobatch.settings.presets import preset

ONE = Config().replace(update_epochs=1, proximal_policy="ewma", learning_rate=1e-3)
SEVERAL = ONE.replace(update_epochs=4)
SINGLE = preset("ppo", num_minibatches=1, update_epochs=1)  # one gradient step per iteration


def table(**columns: float | list[float]) -> dict[str, list[float]]:
    names = {"clip": CLIPFRAC, "kl": KL, "std": ADVANTAGE_STD, "ev": EXPLAINED_VARIANCE}
    return {names[k]: v if isinstance(v, list) else [v] * 20 for k, v in columns.items()}


def found(metrics: dict[str, list[float]], config: Config, name: str) -> Finding:
    return next(f for f in monitor(metrics, config)[0] if f.name == name)


def suggested(finding: Finding) -> dict[str, Any]:
    return {s.field: s.after for s in finding.suggestions}


@pytest.mark.parametrize(
    ("share", "config", "status"),
    [
        (0.05, ONE, "pass"),
        (0.14, ONE, "pass"),  # more than 10 %, but not much more
        (0.16, ONE, "warn"),
        (0.16, SEVERAL, "pass"),
        (0.29, SEVERAL, "pass"),
        (0.31, SEVERAL, "warn"),
        (0.008, ONE, "pass"),  # under 1 %, but not by much
        (0.001, ONE, "warn"),
        (0.0, SEVERAL, "warn"),
        (0.3, ONE.replace(objective="kl"), "note"),
        (0.0, ONE.replace(clip_eps="inf"), "note"),
    ],
)
def test_clip_fraction_bands(share: float, config: Config, status: str) -> None:
    assert clip_fraction(table(clip=share), config).status == status


def test_a_high_clip_fraction_suggests_a_lower_learning_rate() -> None:
    """P(|x| > z) = .3 at z = 1.0364 and .1 at z = 1.6449: the spread has to come down to 1.0364/1.6449 = .6301."""
    finding = found(table(clip=0.3), ONE, "clip-fraction")
    assert suggested(finding) == {"learning_rate": pytest.approx(0.6301e-3, rel=1e-4)}


def test_a_low_clip_fraction_suggests_an_older_proximal_policy() -> None:
    """At .1 % z = 3.2905, at 1 % 2.5758: (3.2905/2.5758)^2 = 1.63, so twice the age is enough; at 0 four times."""
    beta = suggested(found(table(clip=0.001), ONE, "clip-fraction"))["beta_prox"]
    assert center_of_mass(beta) == pytest.approx(16)
    beta = suggested(found(table(clip=0.0), ONE, "clip-fraction"))["beta_prox"]
    assert center_of_mass(beta) == pytest.approx(32)
    plain = suggested(found(table(clip=0.001), ONE.replace(proximal_policy="behavior"), "clip-fraction"))
    assert plain["proximal_policy"] == "ewma"
    assert center_of_mass(plain["beta_prox"]) == pytest.approx(ONE.geometry.gradient_steps - 1)


def test_a_decay_that_was_not_in_use_has_no_value_before() -> None:
    """4 gradient steps, twice as old: a center of mass of 3, beta 3/4."""
    finding = found(table(clip=0.001), ONE.replace(proximal_policy="behavior"), "clip-fraction")
    assert finding.tries.startswith("Try proximal_policy behavior -> ewma, beta_prox 0.75; or num_steps")
    assert "beta_prox 0.8889 -> 0.9412" in repr(found(table(clip=0.001), ONE, "clip-fraction"))  # 8 -> 16


def test_a_low_clip_fraction_suggests_a_larger_iteration_batch_too() -> None:
    """Footnote 4: more steps and as many more minibatches, so the optimization batch stays. Not with an average."""
    finding = found(table(clip=0.0), ONE.replace(proximal_policy="behavior"), "clip-fraction")
    assert {s.field: (s.before, s.after) for s in finding.instead} == {
        "num_steps": (128, 512),
        "num_minibatches": (4, 16),
    }
    assert "; or num_steps 128 -> 512, num_minibatches 4 -> 16." in repr(finding)
    assert found(table(clip=0.0), ONE, "clip-fraction").instead == ()
    single = SINGLE.replace(value_epochs=1, arrangement="shared")  # values move the policy before its one step
    assert center_of_mass(suggested(clip_fraction(table(clip=0.0), single))["beta_prox"]) == pytest.approx(2)


def test_nothing_is_judged_before_the_run_has_had_time() -> None:
    """A run of 499,712 steps: nothing in its first quarter, whatever the metrics are."""
    bad = table(clip=0.0, kl=0.3, std=[1.0, 100.0] * 10, ev=-1.0)
    for last, statuses in ((120_000, {"note"}), (130_000, {"warn"})):
        findings, disputes = monitor(bad | {"env_steps": [last] * 20}, ONE)
        assert {f.status for f in findings if f.name != "affordable-lag"} == statuses  # which fresh data has no use for
        assert bool(disputes) == ("warn" in statuses)
    assert "Too early to judge after 24% of the run." in findings_text(bad | {"env_steps": [120_000] * 20})
    assert {f.status for f in monitor(bad, ONE, done=0.1)[0]} == {"note"}


def findings_text(metrics: dict[str, Any]) -> str:
    return " ".join(map(repr, monitor(metrics, ONE)[0]))


def test_of_stale_data_the_kl_to_the_proximal_policy_is_judged() -> None:
    stale = ONE.replace(staleness=4, proximal_policy="recent")
    across = table(kl=0.16) | {PROXIMAL_KL: [0.01] * 20}
    assert found(across, stale, "kl-per-iteration").status == "pass"
    assert found(across | {PROXIMAL_KL: [0.08] * 20}, stale, "kl-per-iteration").status == "warn"
    held = stale.replace(proximal_policy="behavior")
    assert found(across, held, "kl-per-iteration").status == "note"


@pytest.mark.parametrize("proximal", ["behavior", "loglinear", "loglinear-age"])
def test_clipping_across_the_lag_says_nothing_about_the_learning_rate(proximal: str) -> None:
    """19.32 % of the ratios, in the band that is often called healthy and beyond the paper's: neither counts."""
    metrics = table(clip=0.1932) | {KL: [0.2] * 20}
    findings, disputes = monitor(metrics, ONE.replace(staleness=8, proximal_policy=proximal))
    clipped = next(f for f in findings if f.name == "clip-fraction")
    assert (clipped.status, clipped.suggestions, disputes) == ("note", (), [])
    assert "not measured, the ratio to a policy that may be 8 iterations old says nothing" in clipped.text
    assert found(metrics, ONE.replace(staleness=8, proximal_policy="recent"), "clip-fraction").status == "warn"
    assert found(metrics, ONE.replace(proximal_policy=proximal), "clip-fraction").status == "warn"


@pytest.mark.parametrize("config", [preset("a2c"), preset("reinforce"), SINGLE, SINGLE.replace(proximal_policy="ewma")])
def test_a_kl_before_the_only_gradient_step_was_not_measured(config: Config) -> None:
    """It is 0 by construction, up to rounding."""
    finding = found(table(kl=1.4e-17), config, "kl-per-iteration")
    assert finding.status == "note"
    assert "not measured, with one gradient step" in finding.text
    lag = found(table(kl=1.4e-17), config, "affordable-lag")
    assert (lag.status, "not measured" in lag.text) == ("note", True)
    assert found(table(kl=1.4e-17), config.replace(value_epochs=1, arrangement="shared"), finding.name).status == "pass"


def test_a_kl_to_an_older_policy_is_measured_before_the_only_step() -> None:
    stale = SINGLE.replace(staleness=4)
    apart = {PROXIMAL_KL: [0.01] * 20}
    assert found(apart, stale.replace(proximal_policy="ewma"), "kl-per-iteration").status == "pass"
    assert found(apart, stale.replace(proximal_policy="recent"), "kl-per-iteration").status == "note"
    assert "environment steps) stays within" in found(table(kl=0.01), stale, "affordable-lag").text


@pytest.mark.parametrize("proximal", ["behavior", "recent", "loglinear", "loglinear-age"])
def test_clipping_before_the_only_gradient_step_was_not_measured(proximal: str) -> None:
    findings, disputes = monitor(table(clip=0.0), SINGLE.replace(proximal_policy=proximal))
    clipped = next(f for f in findings if f.name == "clip-fraction")
    assert (clipped.status, clipped.tries, disputes) == ("note", "", [])
    assert "not measured, with one gradient step" in clipped.text
    assert found(table(clip=0.0), SINGLE.replace(proximal_policy="ewma"), "clip-fraction").status == "warn"
    stale = SINGLE.replace(staleness=4, proximal_policy="recent")
    assert found(table(clip=0.0), stale, "clip-fraction").status == "note"


def test_an_infinite_clip_range_clips_nothing() -> None:
    finding = clip_fraction(table(clip=0.0), ONE.replace(clip_eps="inf"))
    assert finding.text == "clip fraction: clip_eps is inf, nothing is clipped."
    assert finding.tries == ""


def test_swing_needs_a_rise_and_a_fall() -> None:
    assert swing([1, 2, 4, 8, 16, 32]) == 1
    assert swing([32, 16, 8]) == 1
    assert swing([1, 20, 2]) == 10  # rises by 20, falls by 10
    assert swing([3.0]) == 1
    assert swing([0.0, 1.0, 4.0, 1.0]) == 4


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_swing_against_all_pairs(values: list[float]) -> None:
    pairs = [(a, b) for i, a in enumerate(values) for b in values[i:]]
    rise, fall = max(b / a for a, b in pairs), max(a / b for a, b in pairs)
    assert swing(values) == pytest.approx(min(rise, fall))


def test_advantage_swings_suggest_a_longer_span() -> None:
    """A swing of 100 asks for 4 (log10 100)^2 = 16 times the span: 1 -> 16 iterations, decay 15/17."""
    finding = found(table(std=[1.0, 100.0] * 10), ONE, "advantage-swings")
    assert finding.status == "warn"
    assert suggested(finding) == {"advantage_norm": "ewma", "adv_norm_decay": pytest.approx(15 / 17)}
    assert found(table(std=[1.0, 5.0] * 10), ONE, "advantage-swings").status == "pass"
    assert found(table(std=[1.0, 50.0] * 10), ONE.replace(advantage_norm="none"), "advantage-swings").status == "note"


def test_a_slow_drift_is_no_swing() -> None:
    wave = [math.exp(3 * math.sin(2 * math.pi * k / 200)) for k in range(200)]  # a factor of 400 over 100 rows
    assert found(table(std=wave), ONE, "advantage-swings").status == "pass"


def test_an_ewma_is_judged_by_the_estimate_it_uses() -> None:
    config = ONE.replace(advantage_norm="ewma", adv_norm_decay=0.6)
    metrics = table(std=[1.0, 50.0] * 10) | {EWMA_STD: [10.0, 12.0] * 10}
    assert found(metrics, config, "advantage-swings").status == "pass"
    metrics = table() | {EWMA_STD: [1.0, 10.0] * 10}
    longer = suggested(found(metrics, config, "advantage-swings"))["adv_norm_decay"]
    assert span(longer) == pytest.approx(4 * span(0.6))


def test_explained_variance() -> None:
    assert found(table(ev=0.3), ONE, "explained-variance").status == "pass"
    assert suggested(found(table(ev=-0.2), ONE, "explained-variance")) == {"gae_lambda": pytest.approx(0.975)}
    config = ONE.replace(gae_lambda=1.0)
    assert suggested(found(table(ev=-0.2), config, "explained-variance")) == {"vf_coef": 1.0}


def test_kl_goes_by_the_square_of_the_learning_rate() -> None:
    """.08 is four times .02: half the learning rate."""
    assert found(table(kl=0.04), ONE, "kl-per-iteration").status == "pass"
    assert suggested(found(table(kl=0.08), ONE, "kl-per-iteration")) == {"learning_rate": pytest.approx(5e-4)}


def test_only_the_last_quarter_counts() -> None:
    assert recent(table(clip=[1.0] * 15 + [0.0] * 5), CLIPFRAC, ONE) == 0
    assert recent(table(clip=[0.0] * 15 + [0.2] * 5), CLIPFRAC, ONE) == pytest.approx(0.2)


def test_rows_of_an_annealed_learning_rate_are_left_out() -> None:
    """A rate that has fallen to zero clips nothing; that is no reason to change the proximal policy."""
    metrics = table(clip=[0.05] * 10 + [0.0] * 10) | {LEARNING_RATE: [1e-3 * (1 - k / 20) for k in range(20)]}
    assert found(metrics, ONE, "clip-fraction").status == "warn"
    assert found(metrics, ONE.replace(lr_schedule="linear"), "clip-fraction").status == "pass"


def test_rows_of_a_clip_range_that_has_fallen_are_left_out() -> None:
    """A range that has fallen to zero clips everything; that is no reason to lower the learning rate."""
    metrics = table(clip=[0.05] * 11 + [0.9] * 9) | {CLIP_EPS: [0.2 * (1 - k / 20) for k in range(20)]}
    assert found(metrics, ONE, "clip-fraction").status == "warn"
    assert found(metrics, ONE.replace(clip_schedule="linear"), "clip-fraction").status == "pass"


def test_seeds_are_kept_apart() -> None:
    """Interleaved, two quiet seeds at different heights would look like a swing."""
    metrics = table(std=[1.0, 50.0] * 10) | {"seed": [0, 1] * 10}
    assert found(metrics, ONE, "advantage-swings").status == "pass"
    assert recent(table(clip=[0.1, 0.3] * 10) | {"seed": [0, 1] * 10}, CLIPFRAC, ONE) == pytest.approx(0.2)


def test_missing_nan_and_short_metrics_are_notes() -> None:
    for metrics in ({}, table(clip=math.nan, kl=math.nan, std=math.nan, ev=math.nan), table(clip=[0.5] * 3)):
        assert {f.status for f in monitor(metrics, ONE)[0]} == {"note"}


def test_the_paper_wins_over_what_is_often_said_both_ways() -> None:
    """10-30 % is often called healthy: that would keep 20 % (one epoch), which the paper warns of, and change 5 %."""
    for share, word in ((0.2, "keep"), (0.05, "change")):
        conflict = monitor(table(clip=share), ONE)[1][0]
        assert conflict.winner == "clip-fraction"
        assert word in conflict.why
    assert monitor(table(clip=0.001), ONE)[1] == []  # both would change it
    assert monitor(table(clip=0.15), SEVERAL)[1] == []  # both would keep it


def test_one_change_at_a_time_and_the_learning_rate_first() -> None:
    low = monitor(table(clip=0.0, kl=0.2), ONE)[1]
    assert [(c.winner, c.loser) for c in low] == [("kl-per-iteration", "clip-fraction")]
    high = monitor(table(clip=0.4, kl=0.2), ONE)[1]
    assert [(c.winner, c.loser) for c in high] == [("clip-fraction", "kl-per-iteration")]


def test_monitors_speak_once_per_cause() -> None:
    first, spoken = unspoken(monitor(table(clip=0.5), ONE)[0], frozenset())
    assert [f.name for f in first] == ["clip-fraction"]
    again, spoken = unspoken(monitor(table(clip=0.6), ONE)[0], spoken)
    assert again == []
    other, spoken = unspoken(monitor(table(clip=0.6, ev=-1.0), ONE)[0], spoken)
    assert [f.name for f in other] == ["explained-variance"]
    assert spoken == {"clip-fraction", "explained-variance"}
