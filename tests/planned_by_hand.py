"""A run with a known curve and a machine with a known clock: what a plan of them says can be worked out by hand."""

import csv
from pathlib import Path

import pytest

from isobatch.planning.timing import Timed
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.training.run_directory import RunDirectory

CRITICAL_BATCH = 512
STEPS_OF_A_POINT = 100  # of return
SUM = (2e-5, 6e-5)  # seconds of adding up one number, and a gradient, over two devices


def run_by_hand(path: Path, **settings: object) -> Path:
    """Four seeds whose returns go up by one in a hundred steps, with a critical batch size of 512 all along."""
    config = preset("ppo", "CartPole-v1", noise_scale=True, total_timesteps=51_200, **settings)
    directory = RunDirectory.make(path)
    directory.describe(config, {"seed": 0, "num_seeds": 4, "log_interval": 1})
    with (directory.path / "metrics.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        names = ("charts/episodic_return", "charts/episodes", "losses/approx_kl", "noise/trace", "noise/signal")
        lines.writerow(("iteration", "env_steps", "seed", *names))
        batch = config.geometry.iteration_batch
        for iteration in range(1, config.num_iterations + 1):
            steps = iteration * batch
            for seed in range(4):
                lines.writerow((iteration, steps, seed, steps / STEPS_OF_A_POINT, 9, 0.01, 2 * CRITICAL_BATCH, 2))
    return path


def step_seconds(num_envs: float) -> float:
    """Of all environments."""
    return 1e-5 + 1e-6 * num_envs


def gradient_seconds(batch: float) -> float:
    return 2e-4 + 1e-6 * batch


def iteration_seconds(num_envs: int, num_steps: int, num_minibatches: int, epochs: int) -> float:
    learning = epochs * num_minibatches * gradient_seconds(num_envs * num_steps / num_minibatches)
    return num_steps * step_seconds(num_envs) + learning


def clock_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled or timed for a plan: it gets the numbers above."""

    def time_iteration(config: Config, num_seeds: int) -> Timed:
        g = config.geometry
        sizes = g.num_envs, g.num_steps, g.num_minibatches, g.update_epochs
        return Timed(*sizes, num_seeds * iteration_seconds(*sizes), 0.02, 1.0)

    monkeypatch.setattr("isobatch.planning.machine.time_iteration", time_iteration)
    monkeypatch.setattr("isobatch.planning.machine.time_collecting", lambda config, envs: step_seconds(envs))
    monkeypatch.setattr("isobatch.planning.machine.seconds_per_sum", lambda layout, size: SUM[size > 1])
