"""The rules against hand-derived numbers, and what must hold of `rescale` at any size."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from isobatch.errors import UsageError
from isobatch.rescaling import Rescaled, rescale, rules
from isobatch.settings.config import Config
from isobatch.settings.geometry import center_of_mass, span

PAPER = Config().replace(
    num_envs=256,
    num_steps=256,
    num_minibatches=8,
    update_epochs=1,
    learning_rate=5e-4,
    aux_learning_rate=5e-4,
    objective="kl",
    proximal_policy="ewma",
    policy_iterations_per_phase=32,
    total_timesteps=48 * 2_097_152,  # whole phases
    max_grad_norm=math.inf,
)

# c, envs, lr, beta_prox, advantage decay, N_pi, beta1, beta2, optimization batch, iteration batch
LADDER = [
    (1, 256, 5e-4, 0.888889, 0, 32, 0.9, 0.999, 8192, 65536),
    (4, 64, 2.5e-4, 0.969697, 0.6, 128, 0.974004, 0.999750, 2048, 16384),
    (16, 16, 1.25e-4, 0.992248, 0.882353, 512, 0.993437, 0.999937, 512, 4096),
    (64, 4, 6.25e-5, 0.998051, 0.969231, 2048, 0.998355, 0.999984, 128, 1024),
    (256, 1, 3.125e-5, 0.999512, 0.992218, 8192, 0.999589, 0.999996, 32, 256),
]


@pytest.mark.parametrize("rung", LADDER)
def test_the_papers_ladder_to_six_digits(rung: tuple) -> None:
    c, envs, rate, beta_prox, decay, phase, beta1, beta2, optimization, iteration = rung
    result = rescale(PAPER, num_envs=envs, use=["betas"])
    after, h = result.after, result.after.hypers
    assert result.factor == c
    assert (after.num_envs, after.num_steps, after.num_minibatches) == (envs, 256, 8)
    assert h.learning_rate == h.aux_learning_rate == pytest.approx(rate, rel=1e-12)
    assert [round(x, 6) for x in (h.beta_prox, h.adv_norm_decay, h.beta1, h.beta2)] == [beta_prox, decay, beta1, beta2]
    assert after.policy_iterations_per_phase == phase
    assert (after.geometry.optimization_batch, after.geometry.iteration_batch) == (optimization, iteration)
    assert result.warnings == ()


def test_published_alternatives_by_hand() -> None:
    """At c = 4: Busbridge (8/9)^(1/4) = .97098; Malladi, kappa = 1/4: 1 - .1/4 = .975, 1 - .001/4, eps x 2, lr / 2."""
    busbridge = rescale(PAPER, factor=4, use=["busbridge"]).after.hypers
    assert round(busbridge.beta_prox, 5) == 0.97098
    malladi = rescale(PAPER, factor=4, use=["malladi"]).after.hypers
    assert malladi.beta1 == pytest.approx(0.975)
    assert malladi.beta2 == pytest.approx(0.99975)
    assert malladi.optimizer_eps == pytest.approx(2 * PAPER.hypers.optimizer_eps)
    assert malladi.learning_rate == pytest.approx(2.5e-4)
    assert rescale(PAPER, factor=4, use=["linear-adam"]).after.hypers.learning_rate == pytest.approx(1.25e-4)
    assert rescale(PAPER.replace(optimizer="sgd"), factor=4).after.hypers.learning_rate == pytest.approx(1.25e-4)
    assert rescale(PAPER.replace(optimizer="rmsprop"), factor=4).after.hypers.learning_rate == pytest.approx(2.5e-4)


def test_iteration_batch_only_holds_minibatch_size_learning_rate_and_proximal_policy() -> None:
    """A quarter of the iteration batch in a quarter of the minibatches; the advantage span still goes by iterations."""
    after = rescale(PAPER, num_envs=64, use=["iteration-batch-only"]).after
    assert (after.num_minibatches, after.geometry.optimization_batch) == (2, 8192)
    assert after.hypers.learning_rate == PAPER.hypers.learning_rate
    assert after.hypers.beta_prox == PAPER.hypers.beta_prox
    assert after.hypers.adv_norm_decay == pytest.approx(0.6)
    assert after.policy_iterations_per_phase == 128


def test_targets_that_say_the_same_thing_agree() -> None:
    by_envs = rescale(PAPER, num_envs=16).after
    assert rescale(PAPER, factor=16).after == by_envs
    assert rescale(PAPER, optimization_batch=512).after == by_envs
    assert rescale(PAPER, devices=1, devices_before=16).after == by_envs
    assert rescale(PAPER, devices=4).after.num_envs == 1024


def test_num_steps_changes_t_alone_and_both_batches() -> None:
    after = rescale(PAPER, num_steps=64).after
    assert (after.num_envs, after.num_steps, after.num_minibatches) == (256, 64, 8)
    assert after.geometry.optimization_batch == 2048
    assert after.hypers.learning_rate == pytest.approx(2.5e-4)


def test_trading_environments_for_steps_changes_no_rule() -> None:
    result = rescale(PAPER, num_envs=64, num_steps=1024)
    assert result.factor == 1
    assert [c.name for c in result.changes] == ["num_envs", "num_steps"]
    assert any("gae_lambda" in w for w in result.warnings)


@pytest.mark.parametrize("name", ["adam-sqrt", "proximal-age", "advantage-span", "phase-batch"])
def test_each_rule_can_be_switched_off_by_name(name: str) -> None:
    result = rescale(PAPER, num_envs=16, without=[name])
    everything = rescale(PAPER, num_envs=16)
    for change in everything.changes:
        kept = change.before if change.rule == name else change.after
        if change.name in everything.after.to_dict():
            assert result.after.to_dict()[change.name] == kept, change.name


def test_auxiliary_phases_follow() -> None:
    """PPG: the auxiliary optimizer's rate has the same rule; a run of whole phases stays one of whole phases."""
    base = PAPER.replace(total_timesteps=48 * 2_097_152 + 4096)  # the last 4096 steps make no whole iteration
    result = rescale(base, factor=16)
    assert result.after.hypers.aux_learning_rate == pytest.approx(1.25e-4)
    assert result.after.env_steps == base.env_steps
    assert result.after.num_iterations % result.after.policy_iterations_per_phase == 0
    held = rescale(base, num_envs=64, use=["iteration-batch-only"]).after
    assert (held.aux_minibatches, held.hypers.aux_learning_rate) == (4, 5e-4)
    plain = rescale(QUIET, factor=16)
    assert "aux_learning_rate" not in [change.name for change in plain.changes]


def test_a_base_that_normalises_per_iteration_becomes_an_ewma() -> None:
    base = PAPER.replace(advantage_norm="iteration", adv_norm_decay=0.9)  # the decay is not in use, so it counts as 0
    after = rescale(base, factor=4).after
    assert (after.advantage_norm, after.hypers.adv_norm_decay) == ("ewma", pytest.approx(0.6))


@pytest.mark.parametrize("norm", ["none", "minibatch"])
def test_other_advantage_normalization_is_left_alone(norm: str) -> None:
    base = PAPER.replace(advantage_norm=norm, adv_norm_decay=0.5)
    after = rescale(base, factor=4).after
    assert (after.advantage_norm, after.hypers.adv_norm_decay) == (norm, 0.5)


def test_json_has_the_promised_shape() -> None:
    answer = rescale(PAPER, num_envs=64).to_json()
    assert list(answer) == ["factor", "before", "after", "changes", "warnings"]
    sizes = {"num_envs", "num_steps", "num_minibatches", "update_epochs", "iteration_batch", "optimization_batch"}
    followers = {"learning_rate", "beta1", "beta2", "beta_prox", "adv_norm_decay", "policy_iterations_per_phase"}
    for side in ("before", "after"):
        assert sizes | followers <= set(answer[side])
    assert all(list(c) == ["name", "before", "after", "rule", "reason"] for c in answer["changes"])
    assert answer["after"]["max_grad_norm"] == "inf"  # JSON has no infinity


def test_the_answer_can_be_read_back() -> None:
    result = rescale(PAPER, num_envs=64)
    settings = {k: v for k, v in result.to_json()["after"].items() if not k.endswith("_batch")}
    assert Config.from_dict(settings) == result.after


# Properties over wide ranges. Sizes are products, so that every factor below divides them.

decays = st.just(0.0) | st.floats(1e-3, 0.9999)
powers = st.integers(0, 5)


@st.composite
def bases(draw: st.DrawFn) -> Config:
    """Configs of 2^10 environments, with room to shrink and grow by 32 twice."""
    return PAPER.replace(
        num_envs=1024,
        num_steps=draw(st.sampled_from([4, 16, 100, 256])),
        num_minibatches=draw(st.sampled_from([1, 2, 4])),
        update_epochs=draw(st.integers(1, 4)),
        optimizer=draw(st.sampled_from(["adam", "sgd", "rmsprop"])),
        learning_rate=draw(st.floats(1e-6, 1e-1)),
        beta1=draw(decays),
        beta2=draw(decays),
        beta_prox=draw(decays),
        advantage_norm="ewma",
        adv_norm_decay=draw(decays),
        policy_iterations_per_phase=draw(st.sampled_from([0, 1024, 3072])),
        aux_minibatches=draw(st.sampled_from([1, 2, 4])),
        total_timesteps=1024 * 6400 * 3072 * 100,
    )


def optional(config: Config) -> list[str]:
    return [] if config.optimizer == "sgd" else ["betas"]


def assert_same(a: Config, b: Config) -> None:
    """Equal but for rounding. Decay rates are compared by the average's length, where rounding is seen evenly."""
    left, right = a.to_dict(), b.to_dict()
    for name in ("beta1", "beta2", "beta_prox", "adv_norm_decay"):
        left[name], right[name] = span(left[name]), span(right[name])
    for name, value in left.items():
        if isinstance(value, float):
            assert value == pytest.approx(right[name], rel=1e-6), name
        else:
            assert value == right[name], name


@given(bases())
def test_identity_at_one_is_exact(base: Config) -> None:
    result = rescale(base, factor=1, use=optional(base))
    assert result.after == base
    assert result.changes == result.warnings == ()


@given(bases(), powers, powers)
def test_composition_when_shrinking(base: Config, a: int, b: int) -> None:
    use = optional(base)
    twice = rescale(rescale(base, factor=2**a, use=use).after, factor=2**b, use=use).after
    assert_same(twice, rescale(base, factor=2 ** (a + b), use=use).after)


@given(bases(), st.floats(0.999, 0.9999), st.floats(0.5, 0.9999), powers, powers)
def test_composition_when_growing(base: Config, long: float, beta: float, a: int, b: int) -> None:
    """While the span is above one iteration (2^10 at the most here), and beta^(2^10) is above zero in floats."""
    base = base.replace(adv_norm_decay=long, beta1=beta, beta2=beta)
    assert span(long) > 2 ** (a + b)
    use = optional(base)
    twice = rescale(rescale(base, factor=0.5**a, use=use).after, factor=0.5**b, use=use).after
    assert_same(twice, rescale(base, factor=0.5 ** (a + b), use=use).after)


@given(bases(), st.integers(0, 10))
def test_inverse(base: Config, a: int) -> None:
    use = optional(base)
    there = rescale(base, factor=2**a, use=use).after
    assert_same(rescale(there, factor=0.5**a, use=use).after, base)


@given(bases(), st.integers(1, 4096))
def test_what_is_held_constant_is_constant_at_any_number_of_environments(base: Config, num_envs: int) -> None:
    """Age of the proximal policy and samples behind the advantages, in environment steps; non-integer c included."""
    base = base.replace(policy_iterations_per_phase=0)
    assume(num_envs * base.num_steps % base.num_minibatches == 0)
    after = rescale(base, num_envs=num_envs).after
    age = base.geometry.proximal_age(base.hypers.beta_prox)
    assert after.geometry.proximal_age(after.hypers.beta_prox) == pytest.approx(age, rel=1e-6)
    samples = span(base.hypers.adv_norm_decay) * base.geometry.iteration_batch
    least = after.geometry.iteration_batch
    held = span(after.hypers.adv_norm_decay) * after.geometry.iteration_batch
    assert held == pytest.approx(max(samples, least), rel=1e-6)


@given(bases(), st.integers(-5, 10))
def test_phase_batch_is_constant(base: Config, a: int) -> None:
    after = rescale(base, factor=2.0**a).after
    assert after.geometry.phase_batch == base.geometry.phase_batch


@given(st.floats(1e-3, 0.9999), st.floats(1e-3, 1e3))
def test_formulas_do_what_their_names_say(beta: float, c: float) -> None:
    assert center_of_mass(rules.center_of_mass_times(beta, c)) == pytest.approx(c * center_of_mass(beta), rel=1e-6)
    longer = c * span(beta)
    assert span(rules.span_times(beta, c)) == pytest.approx(max(1.0, longer), rel=1e-6)


@given(st.floats(1e-3, 0.9999), st.floats(0.1, 1e3))
def test_power_forgets_equally_much_per_sample(beta: float, c: float) -> None:
    assert c * math.log(rules.power(beta, c)) == pytest.approx(math.log(beta), rel=1e-6)


# Where the theory stops.


def warned(result: Rescaled, *words: str) -> bool:
    return any(all(word in w for word in words) for w in result.warnings)


QUIET = PAPER.replace(policy_iterations_per_phase=0)


@pytest.mark.parametrize(
    ("changes", "target", "words"),
    [
        (dict(update_epochs=3), dict(factor=4), ["update_epochs=3", "one policy epoch"]),
        (dict(), dict(factor=4, critical_batch=8192), ["8,192", "near", "critical batch size"]),
        (dict(), dict(factor=4, critical_batch=5000), ["above", "critical batch size", "0.53 times"]),
        (dict(), dict(factor=0.5), ["critical_batch", "not given"]),
        (dict(proximal_policy="behavior"), dict(factor=4), ["65,536", "16,384", "beta_prox=0.969697"]),
        (dict(advantage_norm="minibatch"), dict(factor=4), ["2,048", "8,192", "advantage_norm=iteration"]),
        (dict(gamma=0.9, gae_lambda=0.5), dict(num_steps=64), ["256 -> 64", "1.82 steps", "gae_lambda"]),
        (dict(), dict(factor=1 / 16, use=["malladi"]), ["malladi", "beta1 breaks above 10", "16-fold"]),
        (dict(), dict(factor=0.25), ["advantage decay 0", "65,536", "262,144"]),
        (dict(staleness=4), dict(factor=4), ["staleness=4", "65,536", "262,144", "staleness=16"]),
        (dict(max_grad_norm=0.5), dict(factor=4), ["max_grad_norm=0.5", "2-fold"]),
    ],
)
def test_warnings_where_the_theory_stops(changes: dict, target: dict[str, Any], words: list[str]) -> None:
    assert warned(rescale(QUIET.replace(**changes), **target), *words)


def test_no_warning_without_a_cause() -> None:
    assert rescale(QUIET, factor=4, critical_batch=1e6).warnings == ()
    a2c = QUIET.replace(objective="policy-gradient", proximal_policy="behavior", num_minibatches=1)
    assert rescale(a2c, factor=4).warnings == ()  # without a proximal policy there is no age to change


def test_sample_cost_near_the_critical_batch_by_hand() -> None:
    """B = 8192 -> 2048 at B_crit = 5000: (1 + .4096)/(1 + 1.6384) = .534 (McCandlish 2018)."""
    assert warned(rescale(QUIET, factor=4, critical_batch=5000), "0.53 times")


# Bad input: one sentence that names the field, the value and the fix.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(), ["no target", "num_envs", "factor"]),
        (dict(num_envs=0), ["num_envs=0", "positive whole number"]),
        (dict(num_envs=-4), ["num_envs=-4"]),
        (dict(num_envs=2.5), ["num_envs=2.5", "whole number"]),
        (dict(factor=0), ["factor=0", "positive"]),
        (dict(factor=math.nan), ["factor=nan"]),
        (dict(factor=math.inf), ["factor=inf"]),
        (dict(factor=4, num_envs=16), ["num_envs=16 and factor=4", "one target"]),
        (dict(devices=2, optimization_batch=64), ["cannot go together"]),
        (dict(factor=3), ["factor=3", "85.3333", "factor=4 (num_envs=64)", "factor=2 (num_envs=128)"]),
        (dict(num_envs=96), ["policy_iterations_per_phase", "85.3333", "num_envs=64", "num_envs=128"]),
        (dict(optimization_batch=100), ["optimization_batch=64", "optimization_batch=128"]),
        (dict(devices=3, devices_before=0), ["devices_before=0"]),
        (dict(factor=4, use=["adam"]), ["'adam'", "did you mean"]),
        (dict(factor=4, without=["warmup"]), ["'warmup'", "unknown"]),
        (dict(factor=4, without=["betas"]), ["betas", "not in use"]),
        (dict(factor=4, use=["malladi", "linear-adam"]), ["malladi", "linear-adam", "same field"]),
        (dict(factor=4, use=["sgd-linear"]), ["sgd-linear", "optimizer=adam"]),
        (dict(factor=16, use=["iteration-batch-only"]), ["8192", "factor=8"]),
        (dict(optimization_batch=64, use=["iteration-batch-only"]), ["holds constant"]),
        (dict(factor=4, critical_batch=-1), ["critical_batch=-1"]),
    ],
)
def test_bad_input_is_one_clear_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        rescale(PAPER, **arguments)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


def test_nearest_sizes_really_work_when_minibatches_are_environment_rows() -> None:
    base = QUIET.replace(minibatch_scheme="envs", num_steps=10)
    with pytest.raises(UsageError, match="num_envs=8 and num_envs=16"):
        rescale(base, num_envs=12)
    for num_envs in (8, 16):
        assert rescale(base, num_envs=num_envs).after.num_envs == num_envs


def test_rescaling_imports_no_jax() -> None:
    code = (
        "import sys; from isobatch.settings.config import Config; from isobatch.rescaling import rescale\n"
        "rescale(Config(), num_envs=64)\n"
        "sys.exit(str([m for m in sys.modules if m.split('.')[0] in ('jax', 'numpy', 'matplotlib')]) "
        "if {'jax', 'numpy', 'matplotlib'} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
