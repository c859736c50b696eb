"""Evaluations during training: what they measure, when they begin, and that nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny

from isobatch.errors import UsageError
from isobatch.rollouts.evaluation import evaluate
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.evaluations import COLUMNS, EVALUATIONS
from isobatch.training.metrics import RETURN
from isobatch.training.recorder import WeightsAndBiases
from isobatch.training.trainer import train

RUN = dict(num_seeds=2, log_interval=1, checkpoint_interval=3)


@pytest.fixture(scope="module")
def config() -> Config:
    return tiny("ppo", lr_schedule="constant")  # twelve iterations


@pytest.fixture(scope="module")
def evaluated(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(config, run_dir=tmp_path_factory.mktemp("runs") / "run", eval_interval=5, eval_episodes=3, **RUN)


def test_they_change_no_bit_of_the_run(config: Config, evaluated: Any) -> None:
    plain = train(config, **RUN)
    assert plain.evaluations["seed"].size == 0
    for name, column in plain.metrics.items():
        assert column.tobytes() == evaluated.metrics[name].tobytes(), name


def test_every_interval_and_at_the_end_as_eval_does(config: Config, evaluated: Any) -> None:
    table = evaluated.evaluations
    assert table["iteration"].tolist() == [5, 5, 10, 10, 12, 12]
    assert table["env_steps"].tolist() == [160, 160, 320, 320, 384, 384]
    assert table["seed"].tolist() == [0, 1] * 3
    played = evaluate(config, evaluated.states, 3, deterministic=True, seed=0)
    np.testing.assert_allclose(evaluated.newest_evaluation, played.return_mean, rtol=1e-6)
    header, *lines = (evaluated.run_dir / EVALUATIONS).read_text().splitlines()
    assert header == ",".join(COLUMNS)
    assert [line.split(",")[0] for line in lines] == ["5", "5", "10", "10", "12", "12"]


def test_a_seed_is_evaluated_once_its_training_return_has_reached_the_threshold(config: Config, evaluated: Any) -> None:
    """A threshold that one seed reaches before the other: the higher of the returns of their first lines."""
    first, second = (evaluated.metrics[RETURN][evaluated.metrics["seed"] == seed] for seed in (0, 1))
    threshold = max(first[0], second[0])
    reached = [1 + int(np.argmax(returns >= threshold)) if (returns >= threshold).any() else 99
               for returns in (first, second)]  # fmt: skip
    assert reached[0] != reached[1]
    table = train(config, eval_interval=1, eval_threshold=threshold, eval_episodes=1, **RUN).evaluations
    for seed, begin in enumerate(reached):
        assert table["iteration"][table["seed"] == seed].tolist() == list(range(begin, 13))
    assert train(config, eval_interval=1, eval_threshold=1e9, **RUN).evaluations["seed"].size == 0


def test_a_resumed_run_leaves_the_file_of_an_undisturbed_one(config: Config, evaluated: Any, tmp_path: Path) -> None:
    """What was evaluated after the checkpoint is forgotten, a line that a kill cut short too, and the rest goes on."""
    short = config.replace(total_timesteps=5 * 32)
    train(short, run_dir=tmp_path / "run", eval_interval=5, eval_episodes=3, **RUN)
    with (tmp_path / "run" / EVALUATIONS).open("a") as file:
        file.write("10,320,0,77,0,1\n10,32")
    train(config, run_dir=tmp_path / "run", resume=True, **RUN)
    assert (tmp_path / "run" / EVALUATIONS).read_bytes() == (evaluated.run_dir / EVALUATIONS).read_bytes()


def test_they_are_logged_beside_the_metrics() -> None:
    """Two seeds with returns of 1 and 3: their mean at the step, and no return of training."""

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            assert (values, step) == (dict.fromkeys(COLUMNS[3:], 2.0), 160)

    WeightsAndBiases(Run()).write(COLUMNS, [(5, 160, 0, 1.0, 1.0, 1.0), (5, 160, 1, 3.0, 3.0, 3.0)])


def test_what_needs_evaluations_is_refused_without_them() -> None:
    for name, value in (("eval_threshold", 3.0), ("eval_episodes", 7)):
        with pytest.raises(UsageError, match=rf"{name}={value:g} needs evaluations: add eval_interval"):
            Options(**{name: value})
    with pytest.raises(UsageError, match="eval_threshold=nan is no return"):
        Options(eval_interval=1, eval_threshold=float("nan"))
