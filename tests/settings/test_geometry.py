"""The batches of policy optimization by their names, and which minibatches fit."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isobatch.errors import UsageError
from isobatch.settings.geometry import Geometry, center_of_mass, cuts_evenly, divisors, minibatch_counts, span


@pytest.mark.parametrize(
    ("c", "envs", "optimization", "iteration", "phase_iterations"),
    [(1, 256, 8192, 65536, 32), (4, 64, 2048, 16384, 128), (16, 16, 512, 4096, 512), (256, 1, 32, 256, 8192)],
)
def test_the_batches_of_the_paper(c, envs, optimization, iteration, phase_iterations):
    """T 256, 8 minibatches, one epoch; PPG's phase batch is held: 256 x 256 x 32 = 2 097 152 environment steps."""
    geometry = Geometry(envs, 256, 8, 1, phase_iterations)
    assert (geometry.optimization_batch, geometry.iteration_batch) == (optimization, iteration)
    assert geometry.phase_batch == 2_097_152
    assert geometry.gradient_steps == 8
    assert geometry.env_steps_per_gradient_step == optimization


def test_epochs_repeat_data_and_add_no_environment_steps():
    """8 envs x 128 steps, 4 minibatches, 4 epochs: 16 gradient steps of 256 samples, 64 new environment steps each."""
    geometry = Geometry(8, 128, 4, 4)
    assert geometry.gradient_steps == 16
    assert geometry.optimization_batch == 256
    assert geometry.env_steps_per_gradient_step == 64
    assert geometry.phase_batch == 0


def test_the_proximal_policy_s_age_is_the_same_at_every_batch_size():
    """Section 4: 8 gradient steps of 8192 samples = 32 gradient steps of 2048, and so on (the paper's ladder)."""
    for envs, beta in ((256, 8 / 9), (64, 32 / 33), (16, 128 / 129), (1, 2048 / 2049)):
        assert Geometry(envs, 256, 8, 1).proximal_age(beta) == pytest.approx(65536)


@pytest.mark.parametrize(
    ("beta", "center", "effective"), [(0.0, 0.0, 1.0), (0.5, 1.0, 3.0), (8 / 9, 8.0, 17.0), (0.6, 1.5, 4.0)]
)
def test_center_of_mass_and_span(beta, center, effective):
    """1/(1 - beta) - 1 and 2/(1 - beta) - 1; the paper's decay .6 spans 4 iterations."""
    assert center_of_mass(beta) == pytest.approx(center)
    assert span(beta) == pytest.approx(effective)


@given(st.floats(0, 0.99))
def test_they_are_the_moments_of_the_weights(beta):
    """With weights beta^k (1 - beta) of age k: mean age = center of mass; (sum w)^2 / sum w^2 = span."""
    weights = [(1 - beta) * beta**k for k in range(5000)]
    assert center_of_mass(beta) == pytest.approx(sum(k * w for k, w in enumerate(weights)), abs=1e-9)
    assert span(beta) == pytest.approx(sum(weights) ** 2 / sum(w * w for w in weights))


@given(st.integers(1, 3000))
def test_divisors_are_all_and_in_order(n):
    assert divisors(n) == [k for k in range(1, n + 1) if n % k == 0]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 150))
def test_a_count_fits_if_and_only_if_it_cuts_evenly(envs, steps, count):
    """shuffle: the count divides N T. envs: it divides N, or it is N times a divisor of T."""
    assert (count in minibatch_counts(envs, steps, "shuffle")) == (envs * steps % count == 0)
    whole_rows = envs % count == 0
    chunks = count % envs == 0 and steps % (count // envs) == 0
    assert (count in minibatch_counts(envs, steps, "envs")) == (whole_rows or chunks)
    for scheme in ("shuffle", "envs"):
        counts = minibatch_counts(envs, steps, scheme)
        assert counts == sorted(set(counts))


def test_an_uneven_count_is_refused_with_numbers_that_would_fit():
    with pytest.raises(UsageError, match=r"num_minibatches=5 .*num_envs 8 x num_steps 4.*; use 1 or 2 or 4 or 8"):
        Geometry(8, 4, 5, 1).check_minibatches("shuffle")
    with pytest.raises(UsageError, match=r"num_minibatches=3 .*whole environment rows.*use 1 or 2 or 4 or 8"):
        Geometry(4, 6, 3, 1).check_minibatches("envs")
    Geometry(4, 6, 12, 1).check_minibatches("envs")


@pytest.mark.parametrize("scheme", ["shuffle", "envs"])
def test_sizes_beyond_reason_are_judged_at_once(scheme):
    """10^18 = 2^18 5^18 has 19^2 divisors. 10^18 + 9 is a prime, and no search could go through what is below it."""
    start = time.perf_counter()
    assert len(divisors(10**18)) == 19 * 19
    assert divisors(10**18 + 9) == [1, 10**18 + 9]
    Geometry(10**9, 10**9, 10**9, 1).check_minibatches(scheme)
    with pytest.raises(UsageError, match="num_minibatches=3 does not evenly divide"):
        Geometry(10**18, 1, 3, 1).check_minibatches(scheme)
    with pytest.raises(UsageError, match=r"num_minibatches=7 .*; use 1 or 1000000000000000009\."):
        Geometry(10**18 + 9, 1, 7, 1).check_minibatches("shuffle")
    assert time.perf_counter() - start < 2


def test_a_count_that_no_search_finds_still_fits():
    """1000003 x 1000033: both primes are above what is looked for, but whether one divides is plain."""
    assert cuts_evenly(1_000_003, 1_000_003 * 1_000_033, 1, "shuffle")
