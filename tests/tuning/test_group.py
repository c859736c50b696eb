"""A group of trials: it trains what training alone would, stops the worst, and notes how far each went."""

import numpy as np
import pytest
from tiny import tiny

from isobatch.settings.config import Config
from isobatch.studies.grid import Cell
from isobatch.studies.jobs import Devices
from isobatch.studies.lanes import train_cells
from isobatch.studies.rows import Outcome
from isobatch.training.metrics import EPISODES, RETURN
from isobatch.tuning.group import GroupResult, TrainGroup
from isobatch.tuning.halving import Halving
from isobatch.tuning.trials import LOST, UNKNOWN, score_of, trial_of

pytestmark = pytest.mark.xdist_group("tuning")
RATES = (1e-1, 1e-5, 1e-2, 1e-4, 3e-2)
SEEDS = [0, 1]
SILENT = np.array([np.nan])


def configs() -> list[Config]:
    return [tiny(learning_rate=rate, total_timesteps=32 * 36) for rate in RATES]


def trained(some: list[Config], earlier: list[list[float]], together: int = 2) -> GroupResult:
    return TrainGroup(some, SEEDS, Halving(), together, earlier, Devices(some[0], 2)).run(lambda done: None)


@pytest.fixture(scope="module")
def result() -> GroupResult:
    return trained(configs(), [])


def test_the_worst_stop_and_the_others_are_those_of_training_alone(result: GroupResult) -> None:
    """5 trials, 2 at a time: 2 go on after 4 iterations and after 12."""
    lengths = [len(scores) for scores in result.scores]
    assert sorted(lengths) == [1, 1, 1, 3, 3]
    assert lengths[1] == lengths[3] == 1  # the two smallest rates learn nothing
    some = [lengths.index(3), lengths.index(1)]  # as many as a program of the group trains, so that nothing is compiled
    alone = train_cells([Cell(configs()[i], {}) for i in some], SEEDS)
    for i, other, lines in zip(some, alone, (36, 4), strict=True):
        for name, values in other.table.items():
            found = result.outcomes[i].table[name]
            np.testing.assert_allclose(found, values[: 2 * lines], rtol=1e-3, atol=1e-4, err_msg=name)


def test_steps_are_those_that_were_taken(result: GroupResult) -> None:
    rungs = [4, 12, 36]
    some = configs()
    trials = [trial_of(i, 0, {}, some[i], result.outcomes[i], result.scores[i], rungs, SEEDS) for i in range(len(some))]
    assert [trial.env_steps for trial in trials] == [
        32 * 2 * (36 if len(scores) == 3 else 4) for scores in result.scores
    ]
    best = max(trials, key=lambda trial: trial.worth)
    assert best.finished
    assert best.score == pytest.approx(np.mean([value for value in best.returns if value is not None]))


def test_a_group_that_is_worse_than_those_before_ends(result: GroupResult) -> None:
    ended = trained(configs(), [[2.0] * 5])  # more than the probe can return
    assert [len(scores) for scores in ended.scores] == [1] * 5
    assert [scores[0] for scores in ended.scores] == [scores[0] for scores in result.scores]


def test_a_trial_that_diverges_is_lost_and_one_without_an_episode_is_not() -> None:
    scores = trained([*configs()[:2], tiny(learning_rate=1e38, total_timesteps=32 * 36)], []).scores
    assert scores[2] == [LOST]
    assert all(score[0] > UNKNOWN for score in scores[:2])
    silent = Outcome(
        {"seed": np.array([0]), EPISODES: np.array([0.0]), "env_steps": np.array([32])} | {RETURN: SILENT}, {}
    )
    assert score_of(silent, [0], 32) == UNKNOWN > LOST
