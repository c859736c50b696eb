"""The directory of a search when its files are damaged, when it was killed at its creation, or when two want it."""

import gzip
import os
from pathlib import Path

import fake_study
import pytest

from isobatch.errors import RunError, UsageError
from isobatch.studies.rows import CURVES
from isobatch.studies.runner import run_study
from isobatch.studies.study_directory import StudyDirectory
from isobatch.training.lock import LOCK, locked
from isobatch.tuning.directory import INFO, TuneDirectory

PLAN = {"seed": 0}
LINE = (",".join(["0"] * (1 + len(CURVES))) + "\n").encode()
DAMAGES = {
    "empty": b"",
    "cut": b"{",
    "list": b"[]",
    "number": b"3",
    "bare": b"{}",
    "bytes": b"\xff",
    "null": b"null",
    "deep": b"[" * 100_000,
}


def begun(path: Path, **files: bytes) -> TuneDirectory:
    """With two groups that were asked for, of which the first is finished, and what else is given."""
    directory = TuneDirectory(path)
    with directory.begun(PLAN):
        pass
    asked = b'{"number": %d, "round": %d, "first": 0, "settings": [{}]}'
    whole = {
        "groups/0000.asked.json": asked % (0, 0),
        "groups/0001.asked.json": asked % (1, 1),
        "groups/0000.json": b'{"seconds": 1, "compile_seconds": 1, "trials": []}',
        "groups/0000.csv.gz": gzip.compress(LINE),
        "confirmed/a.json": b'{"returns": [], "env_steps": 1, "seconds": 1, "compile_seconds": 1, "finished": ""}',
    }
    for name, content in (whole | files).items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return directory


def read_all(directory: TuneDirectory) -> None:
    with directory.begun(PLAN):
        directory.groups()
        directory.all_confirmed()
        directory.curves()


def test_a_whole_directory_is_read(tmp_path: Path) -> None:
    directory = begun(tmp_path / "search")
    read_all(directory)
    assert [asked.number for asked in directory.asked()] == [0, 1]


@pytest.mark.parametrize("name", [INFO, "groups/0001.asked.json", "groups/0000.json", "confirmed/a.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(name: str, damage: str, tmp_path: Path) -> None:
    directory = begun(tmp_path / "search", **{name: DAMAGES[damage]})
    says = "holds another search" if (name, damage) == (INFO, "bare") else f"{name}' is damaged: remove it, and give"
    with pytest.raises(UsageError, match=says):
        read_all(directory)


@pytest.mark.parametrize(
    "content",
    [b"", b"x", gzip.compress(b"a,b\n"), gzip.compress(LINE)[:-9]],
    ids=["empty", "other", "words", "cut"],
)
def test_damaged_curves_are_had_again_without_their_results(content: bytes, tmp_path: Path) -> None:
    directory = begun(tmp_path / "search", **{"groups/0000.csv.gz": content})
    with pytest.raises(UsageError, match=r"0000\.csv\.gz' is damaged: remove '.*0000\.json', and give the same"):
        read_all(directory)


def test_a_search_that_was_killed_at_its_creation_can_be_started(tmp_path: Path) -> None:
    (tmp_path / f"{INFO}.77.new").write_text('{"se')
    (tmp_path / LOCK).write_text("")
    with TuneDirectory(tmp_path).begun(PLAN):
        assert TuneDirectory(tmp_path).info == PLAN


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UsageError, match="is not empty and holds no search"), TuneDirectory(tmp_path).begun(PLAN):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_nothing_is_written_while_another_search_begins_there(tmp_path: Path) -> None:
    """Whoever has the lock has not written what it searches yet."""
    says = rf"out='.*' is being trained by process {os.getpid()}"
    with locked(tmp_path), pytest.raises(RunError, match=says), TuneDirectory(tmp_path).begun(PLAN):
        pass
    assert not (tmp_path / INFO).exists()


def test_two_studies_do_not_share_a_directory(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(RunError, match=r"out='.*' is being trained by"):
        run_study(fake_study.STUDY, "quick", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"out='.*file' cannot be written"),
        TuneDirectory(tmp_path / "file").begun(PLAN),
    ):
        pass


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "bare"])
def test_a_damaged_study_is_one_sentence(damage: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_bytes(DAMAGES[damage])
    with pytest.raises(UsageError, match=r"has a damaged study\.json"):
        StudyDirectory.read(tmp_path)
