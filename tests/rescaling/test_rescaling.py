"""The rules against hand-derived numbers, and what must hold of `rescale` at any size."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paper_settings import PAPER, PAPER_WITHOUT_PHASES

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.geometry import span


@pytest.mark.parametrize("name", ["adam-sqrt", "proximal-age", "advantage-span", "phase-batch"])
def test_each_rule_can_be_switched_off_by_name(name: str) -> None:
    result = rescale(PAPER, num_envs=16, without=[name])
    everything = rescale(PAPER, num_envs=16)
    for change in everything.changes:
        kept = change.before if change.rule == name else change.after
        if change.name in everything.after.to_dict():
            assert result.after.to_dict()[change.name] == kept, change.name


def test_phases_are_rounded_to_whole_iterations() -> None:
    """32 x 256 / 96 = 85.33: 85 iterations of 96 x 256 are 2,088,960 of 2,097,152 steps, .39 % fewer. The run's
    100,663,296 steps are 48.19 such phases: 48."""
    after, (warning,) = (result := rescale(PAPER, num_envs=96, critical_batch=1e6)).after, result.warnings
    assert after.policy_iterations_per_phase == 85
    assert after.geometry.phase_batch == 2_088_960
    assert after.total_timesteps == after.env_steps == 48 * 2_088_960
    assert all(word in warning for word in ("85.3333", "2,088,960", "2,097,152", "-0.39 %"))
    assert rescale(PAPER, num_envs=256 * 100).after.policy_iterations_per_phase == 1


def test_auxiliary_phases_follow() -> None:
    """PPG: the auxiliary optimizer's rate has the same rule; a run of whole phases stays one of whole phases."""
    base = PAPER.replace(total_timesteps=48 * 2_097_152 + 4096)  # the last 4096 steps make no whole iteration
    result = rescale(base, factor=16)
    assert result.after.hypers.aux_learning_rate == pytest.approx(1.25e-4)
    assert result.after.env_steps == base.env_steps
    assert result.after.num_iterations % result.after.policy_iterations_per_phase == 0
    held = rescale(base, num_envs=64, use=["iteration-batch-only"]).after
    assert (held.aux_minibatches, held.hypers.aux_learning_rate) == (4, 5e-4)
    plain = rescale(PAPER_WITHOUT_PHASES, factor=16)
    assert "aux_learning_rate" not in [change.name for change in plain.changes]


def test_a_base_that_normalizes_per_iteration_becomes_an_ewma() -> None:
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
    assert list(answer) == ["factor", "keep", "evidence", "before", "after", "changes", "rules", "warnings"]
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


@given(bases(), st.floats(1, 1e6), st.floats(0.01, 100), powers, powers)
def test_composition_of_the_rules_that_know_the_critical_batch(
    base: Config, critical: float, limit: float, a: int, b: int
) -> None:
    """As long as it is the same critical batch; identity and inverse follow from a = 0 and b = -a."""
    base = base.replace(max_grad_norm=limit, optimizer="adam")
    use = ["surge", "clip-noise", "beta2-half-life"]

    def moved(config: Config, factor: float) -> Config:
        return rescale(config, factor=factor, use=use, critical_batch=critical).after

    assert moved(base, 1) == base
    assert_same(moved(moved(base, 2**a), 2**b), moved(base, 2 ** (a + b)))
    assert_same(moved(moved(base, 2**a), 0.5**a), base)


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


def test_rescaling_imports_no_jax() -> None:
    code = (
        "import sys; from isobatch.settings.config import Config; from isobatch.rescaling import rescale\n"
        "rescale(Config(), num_envs=64)\n"
        "sys.exit(str([m for m in sys.modules if m.split('.')[0] in ('jax', 'numpy', 'matplotlib')]) "
        "if {'jax', 'numpy', 'matplotlib'} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
