"""Callbacks for models of Stable-Baselines3: what they find, what they log, and that learning stays as it is."""

import numpy as np
import pytest

from isobatch.errors import UsageError
from isobatch.gradients.noise import noise_scale

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

import torch
from sb3_models import small, walks, weights
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger

from isobatch.torch import PPOEWMA, BatchSizeMonitor, NoiseScale


class Rows(KVWriter):
    """What was logged."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def write(self, key_values: dict, key_excluded: dict, step: int = 0) -> None:
        self.rows.append(dict(key_values))

    def close(self) -> None:
        pass


class PartGradients(BaseCallback):
    """Gradients of the policy's loss environment by environment, written out another way."""

    def _on_training_start(self) -> None:
        self.found: list[np.ndarray] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer, policy, rows = self.model.rollout_buffer, self.model.policy, []
        advantage = (buffer.advantages - buffer.advantages.mean()) / (buffer.advantages.std() + 1e-8)
        for env in range(self.model.n_envs):
            policy.zero_grad()
            total = 0.0
            for step in range(self.model.n_steps):
                distribution = policy.get_distribution(torch.tensor(buffer.observations[step, env][None]))
                action = torch.tensor(buffer.actions[step, env]).long()
                total = total - distribution.log_prob(action)[0] * float(advantage[step, env])
                total = total - self.model.ent_coef * distribution.entropy()[0]
            (total / self.model.n_steps).backward()
            rows.append(np.concatenate([p.grad.numpy().ravel() for p in policy.parameters() if p.grad is not None]))
        policy.zero_grad()
        self.found.append(np.stack(rows))


@pytest.mark.parametrize("kind", [PPO, PPOEWMA])
def test_noise_scale_is_that_of_whole_environments(kind: type[PPO]) -> None:
    """With as many parts as environments: the formula of pairs of different trajectories."""
    measured, direct, log = NoiseScale(decay=0.5), PartGradients(), Rows()
    model = small(kind, ent_coef=0.01)
    model.set_logger(Logger(None, [log]))
    model.learn(24 * 3, callback=[measured, direct])
    for i, rows in enumerate(direct.found):
        expected = noise_scale(rows @ rows.T, samples_per_unit=6, resamples=0)
        assert measured.signals[i] == pytest.approx(expected.signal.value, rel=1e-3, abs=1e-6)
        assert measured.traces[i] == pytest.approx(expected.noise.value, rel=1e-3)
    signal, trace = (np.average(x, weights=[0.25, 0.5, 1]) for x in (measured.signals, measured.traces))
    assert measured.critical_batch == (pytest.approx(trace / signal) if signal > 0 else np.inf)
    assert [row["noise/signal"] for row in log.rows] == measured.signals
    assert log.rows[-1]["noise/critical_batch"] == measured.critical_batch
    assert log.rows[-1]["noise/seconds"] > 0


def test_callbacks_leave_learning_as_it_is() -> None:
    alone = weights(small().learn(24 * 6))
    watched = weights(small().learn(24 * 6, callback=[NoiseScale(every=2), BatchSizeMonitor(every=2, verbose=0)]))
    assert all((alone[name] == watched[name]).all() for name in alone)


def test_noise_scale_needs_two_environments() -> None:
    with pytest.raises(UsageError, match="use n_envs of at least 2"):
        small(count=1, batch_size=6).learn(6, callback=NoiseScale())


def test_a_prime_number_of_environments_has_parts() -> None:
    callback = NoiseScale(every=2)
    small(count=11, batch_size=66).learn(11 * 6 * 4, callback=callback)
    assert callback.parts == 11
    assert len(callback.signals) == 2


@pytest.mark.parametrize("kind", [PPO, PPOEWMA])
def test_the_monitor_warns_once_of_steps_that_are_too_large(
    kind: type[PPO], capsys: pytest.CaptureFixture[str]
) -> None:
    monitor, log = BatchSizeMonitor(every=4), Rows()
    model = small(kind, learning_rate=0.1, clip_range=0.02)
    model.set_logger(Logger(None, [log]))
    model.learn(24 * 16, callback=monitor)
    warned = [finding for finding in monitor.findings if finding.name == "clip-fraction"]
    assert warned[0].status == "warn"
    assert warned[0].suggestions[0].field == "learning_rate"
    assert warned[0].suggestions[0].after < 0.1
    assert "clip-fraction" in monitor.sentences()[0]
    assert [row["advice/clip-fraction"] for row in log.rows if "advice/clip-fraction" in row][-1] == 1
    assert capsys.readouterr().out.count("the learning rate is probably too high") == 1


def test_the_monitor_sees_every_update_and_every_rollout() -> None:
    monitor, log = BatchSizeMonitor(verbose=0), Rows()
    model = small()
    model.set_logger(Logger(None, [log]))
    model.learn(24 * 5, callback=monitor)
    assert {len(rows) for rows in monitor.rows.values()} == {5}
    logged = [row["train/clip_fraction"] for row in log.rows if "train/clip_fraction" in row]
    assert monitor.rows["losses/clipfrac"][:4] == pytest.approx(logged)


def test_the_monitor_knows_what_a2c_does_not_have() -> None:
    monitor = BatchSizeMonitor(verbose=0)
    A2C("MlpPolicy", walks(), device="cpu").learn(5 * 4 * 6, callback=monitor)
    by_name = {finding.name: finding for finding in monitor.findings}
    assert by_name["clip-fraction"].status == "note"
    assert by_name["explained-variance"].status in ("pass", "warn")
