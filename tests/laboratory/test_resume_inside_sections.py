"""Sections of a diagnosis that are killed after every part of theirs and go on: the same bits as without a kill."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import host_envs  # noqa: F401  # registers its environments
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny
from trained import SEEDS, write_run

from isobatch.envs.registry import environment_of
from isobatch.laboratory import LabOptions, landscape, partial_results
from isobatch.laboratory.diagnosis import Diagnosis, DiagnosisProgress, measure_sections, subject_of
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.host_source import HostSource
from isobatch.laboratory.jax_source import JaxSource
from isobatch.laboratory.landscape import window_products
from isobatch.laboratory.partial_results import MadePiece, PartialResults, Piece, spans
from isobatch.laboratory.sections import ALL
from isobatch.laboratory.subject import Subject
from isobatch.learning.state import initial_state
from isobatch.rollouts.player import lengths_after
from isobatch.training.loading import load_run

pytestmark = pytest.mark.xdist_group("laboratory")
SMALL: dict[str, Any] = dict(chains=8, batches=4, geometries="8x4,4x8", lambdas=(1.0,))
ENVS = {"inside": {}, "outside": dict(env="host_envs:Walk-v0", normalize_observations=True, normalize_rewards=True)}
MOST_KILLS = 200


class KilledError(BaseException):
    """As a kill, nothing but a test catches it."""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    return {name: made(tmp_path_factory.mktemp("resumed") / "run", **settings) for name, settings in ENVS.items()}


def made(path: Path, seed: int | None = None, **settings: Any) -> Subject:
    write_run(path, tiny(**settings))
    return subject_of(load_run(path), LabOptions(**SMALL), seed)


def measured(subject: Subject, section: str, out: Path, **options: Any) -> str:
    """One section, in a process that has just begun, as far as the subject can tell."""
    asked = dataclasses.replace(subject, options=LabOptions(**SMALL, sections=section, **options))
    progress = DiagnosisProgress(lambda what, done: None)
    empty = Diagnosis(1, 0, "", {})
    diagnosis = measure_sections(asked, empty, out, progress, lambda sentence: None, lambda part: None)
    return repr(diagnosis.sections)


@pytest.fixture
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are results too, which would differ."""
    monkeypatch.setattr("isobatch.laboratory.sections.geometries.gradient_seconds", lambda *_: 0.5)
    for source in (JaxSource, HostSource):
        monkeypatch.setattr(source, "seconds", lambda self, num_envs, num_steps: num_envs / 8)


@pytest.fixture
def kill_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Once it is called every piece is written at once, and after some files a kill comes; after 0 none."""
    left, write = [0], partial_results.write_checkpoint

    def written(*args: Any) -> None:
        write(*args)
        left[0] -= 1
        if left[0] == 0:
            raise KilledError

    def kill_after(files: int) -> None:
        left[0] = files
        monkeypatch.setattr(partial_results, "write_checkpoint", written)
        for name in ("SAVE_SECONDS", "WORTH_KEEPING", "SPAN_SECONDS"):
            monkeypatch.setattr(partial_results, name, -1.0)

    return kill_after


def killed_again_and_again(call: Callable[[], Any], kill_after: Callable[[int], None]) -> tuple[Any, int]:
    """What it returns in the end, and how often it was killed: after every file that it writes."""
    for kills in range(MOST_KILLS):
        kill_after(1)
        try:
            return call(), kills
        except KilledError:
            continue
    raise AssertionError("it does not come to an end")


CASES = [("inside", section) for section in ALL] + [
    ("outside", section) for section in ("lags", "minibatches", "aggregations")
]


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize(("env", "section"), CASES)
def test_a_section_goes_on_after_each_of_its_parts(
    env: str, section: str, subjects: dict[str, Subject], tmp_path: Path, kill_after: Callable[[int], None]
) -> None:
    whole = measured(subjects[env], section, tmp_path / "whole")
    interrupted, kills = killed_again_and_again(
        lambda: measured(subjects[env], section, tmp_path / "killed"), kill_after
    )
    assert interrupted == whole
    assert kills >= 4
    left = {path.name for path in (tmp_path / "killed").iterdir()}
    assert left == {path.name for path in (tmp_path / "whole").iterdir()}
    assert len(left) == 1


@pytest.mark.usefixtures("no_clock")
def test_environments_that_cannot_be_brought_back_begin_anew(tmp_path: Path, kill_after: Callable[[int], None]) -> None:
    """Where each resets in a step of its own; a kill in the middle of the chains, and one in what follows."""
    subject = made(tmp_path / "run", **ENVS["outside"], autoreset="next-step")
    whole = measured(subject, "lags", tmp_path / "whole")
    for files in (1, 9):
        kill_after(files)
        with pytest.raises(KilledError):
            measured(subject, "lags", tmp_path / "killed")
    kill_after(0)
    assert measured(subject, "lags", tmp_path / "killed") == whole


@pytest.mark.usefixtures("no_clock")
def test_other_settings_find_no_parts(
    subjects: dict[str, Subject], tmp_path: Path, kill_after: Callable[[int], None]
) -> None:
    """Neither another seed of the measurement nor another policy goes on with them."""
    subject, other = subjects["inside"], made(tmp_path / "run", SEEDS[1])
    for number, (which, seed) in enumerate([(subject, 1), (other, 0)]):
        out = tmp_path / str(number)
        whole = measured(which, "lags", tmp_path / f"{number}-whole", measure_seed=seed)
        kill_after(5)
        with pytest.raises(KilledError):
            measured(subject, "lags", out)
        kill_after(0)
        assert measured(which, "lags", out, measure_seed=seed) == whole


class Linear(ExternalPolicy):
    """Gradients are observations times advantages."""

    size = 3
    weights = b"none"

    def mean_gradients(self, obs: np.ndarray, action: np.ndarray, advantage: np.ndarray) -> np.ndarray:
        return np.mean(obs * advantage[..., None], axis=1)


@pytest.mark.parametrize("at_once", [6, 100])
@pytest.mark.parametrize("external", [False, True])
def test_a_pass_over_windows_goes_on_inside_of_one(
    at_once: int, external: bool, tmp_path: Path, kill_after: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four windows of 8 chains, 3 at a time, or all of them."""
    monkeypatch.setattr(landscape, "at_once", lambda samples: at_once)
    config = tiny()
    state = initial_state(config, environment_of(config), 0)
    policy = Linear() if external else state.networks.policy
    obs = jax.random.normal(jax.random.key(0), (8, 8, 3 if external else state.envs.obs.shape[-1]))
    action, advantage = jnp.zeros((8, 8), int), jax.random.normal(jax.random.key(1), (8, 8))
    whole = window_products(policy, obs, action, advantage, 2)

    def resumed() -> Any:
        parts = PartialResults(tmp_path / "section.json", {"section": "some"})
        return window_products(policy, obs, action, advantage, 2, parts)

    found, kills = killed_again_and_again(resumed, kill_after)
    assert kills == (4 if external or at_once == 100 else 4 * 3)
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def numbers(first: int, last: MadePiece | None) -> Iterator[Piece]:
    for number in range(first, 5):
        yield {"number": np.array(number), "twice": np.array(2 * number)}


def test_pieces_that_are_damaged_or_missing_are_made_again(tmp_path: Path, kill_after: Callable[[int], None]) -> None:
    kill_after(0)
    section, key = tmp_path / "section.json", {"section": "some"}

    def values() -> list[int]:
        return [int(piece["number"]) for piece in PartialResults(section, key).pieces("numbers", numbers)]

    assert values() == [0, 1, 2, 3, 4]
    folder = tmp_path / "section.parts" / "numbers"
    assert len(list(folder.iterdir())) == 5
    files = sorted(folder.iterdir())
    files[1].write_bytes(files[1].read_bytes()[:-1])
    assert values() == [0, 1, 2, 3, 4]
    assert len(list(folder.iterdir())) == 5
    sorted(folder.iterdir())[0].unlink()
    assert values() == [0, 1, 2, 3, 4]


def test_nothing_is_written_where_there_is_no_room(
    tmp_path: Path, kill_after: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_after(1)
    monkeypatch.setattr(partial_results, "ROOM", 1e30)
    parts = PartialResults(tmp_path / "section.json", {"section": "some"})
    assert len(list(parts.pieces("numbers", numbers))) == 5


def test_pieces_that_others_have_taken_up_are_dropped_after_these_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_results, "WORTH_KEEPING", -1.0)
    parts = PartialResults(tmp_path / "section.json", {"section": "some"})
    outer = parts.pieces("outer", numbers)
    next(outer)
    list(parts.pieces("inner", numbers))
    inner, folder = tmp_path / "section.parts" / "inner", tmp_path / "section.parts" / "outer"
    assert inner.exists()
    assert not folder.exists()
    parts.drop("inner")
    assert not inner.exists()
    assert [path.name for path in folder.iterdir()] == ["000000000-000000001.pieces"]


def test_spans_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(spans(3, 13)) == [(3, 4), (4, 6), (6, 10), (10, 13)]  # nothing takes time
    monkeypatch.setattr(partial_results, "SPAN_SECONDS", 0.0)
    assert list(spans(0, 3)) == [(0, 1), (1, 2), (2, 3)]


def test_lengths_of_episodes_in_progress() -> None:
    """One goes on, one ends with the last row, one ended before it."""
    done = np.array([[[0, 0, 1], [0, 1, 0]]], bool)
    np.testing.assert_array_equal(lengths_after(np.array([[5, 5, 5]]), done), [[7, 0, 1]])
