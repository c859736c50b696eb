"""The running estimate of the gradient noise scale."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny

from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.gradients.noise import two_batch_sizes
from isobatch.training.metrics import critical_batch
from isobatch.training.trainer import train


def test_signal_and_noise_by_hand() -> None:
    """E|G_B|^2 = |G|^2 + S/B. With |G|^2 = 3 and S = 40: 13 at B = 4 and 5 at B = 20, and back."""
    signal, noise = two_batch_sizes(jnp.float32(13.0), jnp.float32(5.0), 4, 20)
    np.testing.assert_allclose([signal, noise], [3.0, 40.0], rtol=1e-6)


def test_unbiased_on_gradients_of_known_distribution() -> None:
    """Groups of independent normal gradients: both estimates average to the truth within 4 standard errors."""
    rng = np.random.default_rng(0)
    truth, spread, parts, each = np.array([1.0, -2.0, 0.5]), 3.0, 8, 16
    estimates = []
    for _ in range(4000):
        groups = truth + spread / np.sqrt(each) * rng.standard_normal((parts, 3))
        small, big = np.mean(np.sum(groups**2, axis=1)), np.sum(groups.mean(axis=0) ** 2)
        estimates.append([float(v) for v in two_batch_sizes(jnp.float32(small), jnp.float32(big), each, parts * each)])
    mean, error = np.mean(estimates, axis=0), np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert np.all(np.abs(mean - [np.sum(truth**2), 3 * spread**2]) < 4 * error)


def test_critical_batch_is_a_ratio_of_means_over_the_second_half() -> None:
    table = {
        "env_steps": np.array([10, 20, 30, 40]),
        "noise/trace": np.array([1e9, 1e9, 10.0, 30.0]),
        "noise/signal": np.array([1e9, 1e9, -1.0, 5.0]),
    }
    assert critical_batch(table) == 20 / 2
    with pytest.raises(UsageError, match="cannot be told from its noise"):
        critical_batch(table | {"noise/signal": -table["noise/signal"]})
    with pytest.raises(UsageError, match="--noise-scale"):
        critical_batch({"env_steps": np.array([1])})


@pytest.mark.xdist_group("noise")
def test_measured_in_a_run_and_read_by_rescale_and_advise(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Measuring changes no parameter, and the commands take the number from the run."""
    run_dir = tmp_path / "run"
    measured = train(tiny(noise_scale=True), num_seeds=2, run_dir=run_dir)
    plain = train(tiny(), num_seeds=2)
    np.testing.assert_array_equal(measured.metrics["losses/entropy"], plain.metrics["losses/entropy"])
    assert np.all(measured.metrics["noise/trace"] >= 0)
    expected = critical_batch(measured.metrics)
    assert main(["rescale", "--num-envs", "64", "--to-num-envs", "128", "--critical-batch", str(run_dir)]) == 0
    assert f"critical batch size of {expected:,.6g}" in " ".join(capsys.readouterr().out.split())
    assert main(["advise", str(run_dir)]) == 0
    assert "critical-batch" in capsys.readouterr().out
