"""A whole search: its budget, going on after an interruption, and moving the winner."""

import json
import shutil
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

import isobatch as ib
from isobatch.executors.interface import Job, ResultT, WatchAll
from isobatch.executors.processes import LocalProcesses
from isobatch.settings.files import load_yaml
from isobatch.settings.parsing import plain_json
from isobatch.studies.result_files import read_csv
from isobatch.tuning.directory import TuneDirectory
from isobatch.tuning.tuned import Tuned

pytestmark = pytest.mark.xdist_group("tuning")
STEPS = 32 * 36  # of a trial and seed
CONFIG = tiny(total_timesteps=STEPS)
# Two groups of 4 trials at the most: 4 x 4 + 2 x 8 + 2 x 24 iterations of 32 steps on 2 seeds, and 3 + 1 that confirm.
GROUP, RESERVE = (4 * 4 + 2 * 8 + 2 * 24) * 32 * 2, 3 * 2 * STEPS
OPTIONS: dict[str, Any] = dict(
    search=["learning_rate=1e-4:1e-1"], sampler="random", num_seeds=2, group=4, lanes=4, confirm_seeds=2,
    budget=2 * GROUP + RESERVE,
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return ib.tune(CONFIG, out=tmp_path_factory.mktemp("tune") / "search", **OPTIONS)


def files(path: Path) -> dict[str, Any]:
    """What a search leaves, without times."""
    groups = sorted((path / "groups").glob("*.json"))
    found = {file.name: json.loads(file.read_text()) for file in groups}
    return {name: {k: v for k, v in each.items() if "seconds" not in k} for name, each in found.items()} | {
        "trials": (path / "trials.csv").read_text(),
        "best": (path / "best.yaml").read_text(),
    }


def test_it_finds_better_settings_within_the_budget(finished: Tuned) -> None:
    """The probe pays 1 for the right action; small rates learn nothing in 1,152 steps."""
    assert len(finished.trials) == 8
    assert finished.env_steps <= finished.budget
    steps = sum(trial.env_steps for trial in finished.trials)
    assert finished.env_steps == steps + 2 * STEPS * len(finished.finalists)
    assert finished.best.hypers.learning_rate > 3e-3
    assert finished.finalists[0].confirmed.mean > 0.9
    assert [trial.finished for trial in finished.trials] == sorted((t.finished for t in finished.trials), reverse=True)
    assert {trial.number for trial in finished.trials} == set(range(8))
    start = next(trial for trial in finished.trials if trial.number == 0)
    assert start.settings == {"learning_rate": CONFIG.hypers.learning_rate}
    assert "trial 0, the settings it started from" in repr(finished).lower()


def test_its_files(finished: Tuned) -> None:
    assert ib.preset("ppo", CONFIG.env).replace(**load_yaml(finished.path / "best.yaml")) == finished.best
    rows = read_csv(finished.path / "trials.csv")
    assert [row["trial"] for row in rows] == [trial.number for trial in finished.trials]
    page = (finished.path / "report.html").read_text()
    for trial in finished.trials:
        assert f"{trial.settings['learning_rate']:.4g}" in page
    curves = TuneDirectory(finished.path).curves()
    assert {len(curves[trial.number]["seed"]) for trial in finished.trials if trial.finished} == {2 * 36}


def test_the_same_call_again_trains_nothing(finished: Tuned, tmp_path: Path) -> None:
    again = ib.tune(CONFIG, out=finished.path, executor=Stops(0), **OPTIONS)
    assert again.to_json() == finished.to_json()


class Stops(LocalProcesses):
    """Is interrupted after some jobs."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        object.__setattr__(self, "jobs", jobs)

    def run(self, jobs: Sequence[Job[ResultT]], watch: WatchAll) -> Generator[tuple[int, ResultT]]:
        for index, result in super().run(jobs, watch):
            if self.jobs == 0:  # type: ignore[attr-defined]
                raise KeyboardInterrupt  # after the work, before it is saved
            object.__setattr__(self, "jobs", self.jobs - 1)  # type: ignore[attr-defined]
            yield index, result


def test_an_interrupted_search_ends_as_one_that_was_not(finished: Tuned, tmp_path: Path) -> None:
    out = tmp_path / "search"
    for jobs in (0, 1, 1):  # in the first group, in the second, while the best are confirmed
        with pytest.raises(KeyboardInterrupt):
            ib.tune(CONFIG, out=out, executor=Stops(jobs), **OPTIONS)
    tuned = ib.tune(CONFIG, out=out, **OPTIONS)
    assert files(out) == files(finished.path)
    assert tuned.env_steps == finished.env_steps


def test_a_request_that_is_lost_is_made_again_and_takes_no_other_place(finished: Tuned, tmp_path: Path) -> None:
    """As whoever finds it damaged is told to do; the results of its group are there, so nothing is trained."""
    shutil.copytree(finished.path, tmp_path / "search")
    (tmp_path / "search" / "groups" / "0000.asked.json").unlink()
    again = ib.tune(CONFIG, out=tmp_path / "search", executor=Stops(0), **OPTIONS)
    assert again.trials == finished.trials


def test_a_larger_budget_goes_on(finished: Tuned, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "search")
    more = ib.tune(CONFIG, out=tmp_path / "search", **OPTIONS | dict(budget=3 * GROUP + 3 * RESERVE))
    assert len(more.trials) > 8
    old = {trial.number: trial for trial in finished.trials}
    assert {trial.number: trial for trial in more.trials if trial.number < 8} == old


def test_another_search_needs_another_folder(finished: Tuned) -> None:
    with pytest.raises(ib.UsageError, match="holds another search: seed differ; name another folder"):
        ib.tune(CONFIG, out=finished.path, **OPTIONS | dict(seed=1))
    with pytest.raises(ib.UsageError, match="is not empty and holds no search"):
        ib.tune(CONFIG, out=finished.path / "groups", **OPTIONS)


def test_the_winner_is_moved_and_confirmed(finished: Tuned, tmp_path: Path) -> None:
    """From 4 environments to 16: a rate twice as large."""
    shutil.copytree(finished.path, tmp_path / "search")
    budget = OPTIONS["budget"] + 2 * STEPS
    tuned = ib.tune(CONFIG, out=tmp_path / "search", **OPTIONS | dict(for_num_envs=16, budget=budget))
    winner = finished.finalists[0].config
    assert tuned.best.num_envs == 16
    assert tuned.best.hypers.learning_rate == pytest.approx(2 * winner.hypers.learning_rate)
    assert tuned.env_steps == finished.env_steps + 2 * STEPS
    assert tuned.moved is not None
    words = " ".join(tuned.moved.sentences())
    for part in ("Moved from 4 x 8 to 16 x 8", "Lost: ", "the same trials at 16 x 8 would take", "steps/s"):
        assert part in words
    moved = plain_json(tuned.to_json())["moved"]  # type: ignore[index,call-overload]
    assert moved["search_steps"] == 2 * GROUP
    assert moved["lost"]["low"] <= moved["lost"]["value"] <= moved["lost"]["high"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(budget=RESERVE), r"budget=6,912 is below one trial \(2 seeds x 1,152 steps\).*use at least 9,216"),
        (dict(budget="many"), "budget='many' is not valid: use a whole number"),
        (dict(num_seeds=0), "num_seeds=0 must be at least 1"),
        (dict(for_num_envs=0), "num_envs=0 is not a target"),
        (dict(for_num_envs=1024), "total_timesteps=1152 is below one iteration of 8192"),
        (dict(sampler="grid"), "sampler='grid' is unknown"),
        (dict(keep="all", for_num_envs=8), "keep='all' is unknown"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ib.UsageError, match=sentence):
        ib.tune(CONFIG, out=tmp_path / "search", **OPTIONS | options)
    assert not (tmp_path / "search").exists()
