"""Evaluations during training: what they measure, when they begin, and that nothing else changes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny

from isobatch.errors import UsageError
from isobatch.rollouts.evaluation import Evaluator, evaluate
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.training.curves import seed_curves
from isobatch.training.metrics import EVALUATION_COLUMNS, INDEX, METRICS, RETURN, read_metrics
from isobatch.training.plots import plot
from isobatch.training.recorder import TensorBoard, WeightsAndBiases
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
    assert [*plain.metrics, *EVALUATION_COLUMNS] == list(evaluated.metrics)
    assert plain.final_return == evaluated.final_return
    for name, column in plain.metrics.items():
        assert column.tobytes() == evaluated.metrics[name].tobytes(), name


def test_every_interval_and_at_the_end_as_eval_does(config: Config, evaluated: Any) -> None:
    table = evaluated.evaluations
    assert table["iteration"].tolist() == [5, 5, 10, 10, 12, 12]
    assert table["env_steps"].tolist() == [160, 160, 320, 320, 384, 384]
    assert table["seed"].tolist() == [0, 1] * 3
    played = evaluate(config, evaluated.states, 3, deterministic=True, seed=0)
    np.testing.assert_allclose(evaluated.newest_evaluation, played.return_mean, rtol=1e-6)
    header, *lines = (evaluated.run_dir / METRICS).read_text().splitlines()
    assert header.endswith("," + ",".join(EVALUATION_COLUMNS))
    assert [line.split(",")[0] for line in lines if not line.endswith(",,,")] == ["5", "5", "10", "10", "12", "12"]
    for name, values in read_metrics(evaluated.run_dir).items():
        np.testing.assert_array_equal(np.float32(values), np.float32(evaluated.metrics[name]), err_msg=name)


def test_a_seed_is_evaluated_once_its_training_return_has_reached_the_threshold(
    config: Config, evaluated: Any, tmp_path: Path
) -> None:
    """A threshold that one seed reaches before the other: the higher of the returns of their first lines. A run that
    was resumed knows which seeds have reached it."""
    first, second = (evaluated.metrics[RETURN][evaluated.metrics["seed"] == seed] for seed in (0, 1))
    threshold = max(first[0], second[0])
    reached = [1 + int(np.argmax(returns >= threshold)) if (returns >= threshold).any() else 99
               for returns in (first, second)]  # fmt: skip
    assert reached[0] != reached[1]
    once = dict(eval_interval=1, eval_threshold=threshold, eval_episodes=1, **RUN)
    table = train(config, run_dir=tmp_path / "whole", **once).evaluations
    for seed, begin in enumerate(reached):
        assert table["iteration"][table["seed"] == seed].tolist() == list(range(begin, 13))
    train(config.replace(total_timesteps=5 * 32), run_dir=tmp_path / "run", **once)
    train(config, run_dir=tmp_path / "run", resume=True, **RUN)
    assert (tmp_path / "run" / METRICS).read_bytes() == (tmp_path / "whole" / METRICS).read_bytes()
    assert train(config, eval_interval=1, eval_threshold=1e9, **RUN).evaluations["seed"].size == 0


@pytest.mark.parametrize("number", [1, 2])
def test_a_resumed_run_leaves_the_file_of_an_undisturbed_one(
    number: int, config: Config, evaluated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in the first or second evaluation, with lines, and half a line, beyond the newest checkpoint."""
    run, calls, play = tmp_path / "run", [0], Evaluator.__call__

    def interrupted(self: Evaluator, states: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            raise KeyboardInterrupt
        return play(self, states)

    monkeypatch.setattr(Evaluator, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config, run_dir=run, eval_interval=5, eval_episodes=3, **RUN)
    monkeypatch.undo()
    assert read_metrics(run)["iteration"][-1] == 5 * number
    with (run / METRICS).open("a") as file:
        file.write("11,352,0,7")
    resumed = train(config, run_dir=run, resume=True, **RUN)
    assert (run / METRICS).read_bytes() == (evaluated.run_dir / METRICS).read_bytes()
    for name, values in evaluated.evaluations.items():
        np.testing.assert_array_equal(np.float32(resumed.evaluations[name]), np.float32(values), err_msg=name)


def test_a_run_of_an_older_version_goes_on_without(config: Config, tmp_path: Path) -> None:
    """Its evaluations had a file of their own, which stays as it is."""
    run, plain, said = tmp_path / "run", tmp_path / "plain", list[str]()
    train(config, run_dir=plain, **RUN)
    train(config.replace(total_timesteps=5 * 32), run_dir=run, **RUN)
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"eval_interval": 5, "eval_threshold": 0.5, "eval_episodes": 3}))
    (run / "evaluations.csv").write_text("iteration,env_steps,seed,eval/episodic_return\n5,160,0,1\n")
    resumed = train(config, run_dir=run, resume=True, say=said.append, **RUN)
    assert "metrics.csv is of an older version, without columns for evaluations: going on without them." in said
    assert (run / METRICS).read_bytes() == (plain / METRICS).read_bytes()
    assert (run / "evaluations.csv").read_text().endswith("5,160,0,1\n")
    assert resumed.newest_evaluation == [None, None]


def test_a_run_that_was_begun_without_them_has_none(config: Config, tmp_path: Path) -> None:
    train(config.replace(total_timesteps=32), run_dir=tmp_path / "run", **RUN)
    with pytest.raises(UsageError, match=r"begun with other settings: eval_interval \(0 there, 5 now\)"):
        train(config, run_dir=tmp_path / "run", resume=True, eval_interval=5, **RUN)


COLUMNS = (*INDEX, RETURN, *EVALUATION_COLUMNS)
LINES = [  # of two seeds, neither of them evaluated, then one, then both
    (4, 128, 0, 5.0, np.nan, np.nan, np.nan),
    (4, 128, 1, np.nan, np.nan, np.nan, np.nan),
    (5, 160, 0, np.nan, 1.0, 0.0, 7.0),
    (5, 160, 1, 9.0, np.nan, np.nan, np.nan),
    (6, 192, 0, np.nan, 1.0, 1.0, 1.0),
    (6, 192, 1, np.nan, 3.0, 3.0, 3.0),
]


def test_wandb_gets_means_over_the_seeds_that_were_evaluated() -> None:
    logged: dict[int, dict[str, float]] = {}

    class Run:
        def log(self, data: dict[str, float], step: int) -> None:
            logged[step] = data

    WeightsAndBiases(Run()).write(COLUMNS, LINES)
    assert logged == {
        128: {RETURN: 5.0, f"seeds/0/{RETURN}": 5.0},
        160: {RETURN: 9.0, f"seeds/1/{RETURN}": 9.0} | dict(zip(EVALUATION_COLUMNS, (1.0, 0.0, 7.0), strict=True)),
        192: dict.fromkeys(EVALUATION_COLUMNS, 2.0),
    }


def test_tensorboard_gets_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    added: list[tuple[int, str, float, int]] = []

    class Writer:
        def __init__(self, seed: int) -> None:
            self.seed = seed

        def add_scalar(self, name: str, value: float, step: int) -> None:
            added.append((self.seed, name, value, step))

    TensorBoard(tmp_path, {seed: Writer(seed) for seed in (0, 1)}).write(COLUMNS, LINES)
    assert [each for each in added if each[1] in (RETURN, EVALUATION_COLUMNS[0])] == [
        (0, RETURN, 5.0, 128),
        (0, EVALUATION_COLUMNS[0], 1.0, 160),
        (1, RETURN, 9.0, 160),
        (0, EVALUATION_COLUMNS[0], 1.0, 192),
        (1, EVALUATION_COLUMNS[0], 3.0, 192),
    ]
    assert len(added) == 2 + 3 * len(EVALUATION_COLUMNS)


def test_they_are_drawn_like_any_metric(evaluated: Any, tmp_path: Path) -> None:
    """A curve is the newest evaluation, without one before the first: at 160, 320 and 384 steps of 384."""
    metric = EVALUATION_COLUMNS[0]
    assert plot(evaluated, metric=metric, out=tmp_path / "curve.svg").is_file()
    x, curves = seed_curves(evaluated.metrics, metric, window=0.02)
    assert np.isnan(curves[:, x < 160]).all()
    values = evaluated.evaluations[metric].reshape(3, 2).T
    np.testing.assert_allclose(curves[:, (x >= 160) & (x < 320)].T, values[:, 0] + 0 * x[(x >= 160) & (x < 320), None])
    np.testing.assert_allclose(curves[:, -1], values[:, 2])


def test_what_needs_evaluations_is_refused_without_them() -> None:
    for name, value in (("eval_threshold", 3.0), ("eval_episodes", 7)):
        with pytest.raises(UsageError, match=rf"{name}={value:g} needs evaluations: add eval_interval"):
            Options(**{name: value})
    with pytest.raises(UsageError, match="eval_threshold=nan is no return"):
        Options(eval_interval=1, eval_threshold=float("nan"))
