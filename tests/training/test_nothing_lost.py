"""Damaged files, kills at bad moments, two writers: nothing is lost, and what cannot go on says so."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import OPTIONS, tiny

import isobatch as ib
from isobatch.training import checkpoint_file
from isobatch.training.checkpoint_file import CheckpointNote, read_checkpoint, read_note
from isobatch.training.checkpoints import Checkpoints
from isobatch.training.loading import load_run
from isobatch.training.lock import LOCK, locked
from isobatch.training.metrics import METRICS, read_metrics
from isobatch.training.metrics_file import MetricsFile
from isobatch.training.run_directory import RunDirectory
from isobatch.training.trainer import Bookkeeper, train
from isobatch.training.verification import first_difference

pytestmark = pytest.mark.xdist_group("trainer")


def checkpoint(run_dir: Path, iteration: int) -> Path:
    return run_dir / "checkpoints" / f"{iteration:09d}.checkpoint"


def kept(run_dir: Path) -> list[int]:
    return Checkpoints(run_dir / "checkpoints").iterations()


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0x10
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "first byte": lambda path: flip(path, 0.0),
    "name of an array": lambda path: flip(path, 0.01),
    "middle": lambda path: flip(path, 0.5),
    "last byte": lambda path: flip(path, 1.0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "empty": lambda path: os.truncate(path, 0),
    "a pickle": lambda path: path.write_bytes(b"cos\nsystem\n(S'false'\ntR."),
    "huge": lambda path: path.write_text(
        json.dumps({"format": checkpoint_file.FORMAT, "arrays": [["a", "float64", [1 << 60]]]}) + "\n"
    ),
    "objects": lambda path: path.write_text(
        json.dumps({"format": checkpoint_file.FORMAT, "arrays": [["a", "object", [1]]]}) + "\n12345678" + "d" * 32
    ),
    "brackets": lambda path: path.write_text("[" * 100_000 + "\n"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_replaced(name: str, run_dir: Path, finished: Path) -> None:
    DAMAGES[name](checkpoint(run_dir, 12))
    said: list[str] = []
    train(tiny(), run_dir=run_dir, resume=True, say=said.append, **OPTIONS)
    assert [sentence for sentence in said if sentence.startswith("checkpoint 12 ") and "passed over" in sentence]
    assert first_difference(finished, run_dir) is None
    assert load_run(run_dir).iteration == 12
    assert kept(run_dir) == kept(finished)


def test_no_usable_checkpoint_starts_over_only_when_asked(run_dir: Path, finished: Path) -> None:
    for iteration in kept(run_dir):
        flip(checkpoint(run_dir, iteration), 0.5)
    before = contents(run_dir)
    with pytest.raises(ib.RunError, match=r"none of its checkpoints \(.*12\) can be used.*--resume .* --restart"):
        train(tiny(), run_dir=run_dir, resume=True, **OPTIONS)
    assert contents(run_dir) == before
    said: list[str] = []
    train(tiny(), run_dir=run_dir, resume=True, restart=True, say=said.append, **OPTIONS)
    assert len([sentence for sentence in said if "passed over" in sentence]) == len(kept(finished))
    assert first_difference(finished, run_dir) is None


def contents(run_dir: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in run_dir.rglob("*") if p.is_file() and p.name != LOCK}


def test_metrics_without_checkpoints_are_not_thrown_away(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "checkpoints")
    with pytest.raises(ib.RunError, match="no checkpoint can be used"):
        train(tiny(), run_dir=run_dir, resume=True, **OPTIONS)
    assert len(read_metrics(run_dir)["seed"]) == 24


def test_missing_lines_of_metrics_are_noticed_and_trained_again(run_dir: Path, finished: Path) -> None:
    """Cut after iteration 9: the checkpoint of iteration 8 still has all of its lines, that of 12 has not."""
    lines = (run_dir / METRICS).read_text().splitlines(keepends=True)
    (run_dir / METRICS).write_text("".join(lines[: 1 + 2 * 9]))
    said: list[str] = []
    train(tiny(), run_dir=run_dir, resume=True, say=said.append, **OPTIONS)
    assert (
        "checkpoint 12 was made when metrics.csv had lines that are missing or changed now: it is passed over." in said
    )
    assert first_difference(finished, run_dir) is None


def test_metrics_cut_before_every_checkpoint_are_not_gone_on_with(run_dir: Path) -> None:
    lines = (run_dir / METRICS).read_text().splitlines(keepends=True)
    (run_dir / METRICS).write_text("".join(lines[:3]))
    with pytest.raises(ib.RunError, match=r"none of its checkpoints .* can be used"):
        train(tiny(), run_dir=run_dir, resume=True, **OPTIONS)


def states_of(value: float) -> dict[str, np.ndarray]:
    return {"weights": np.full(3, value, np.float32), "none": np.zeros((0, 2), np.int32), "one": np.array(True)}


def save_all(directory: Path, scores: dict[int, float | None], keep: int = 2) -> Checkpoints:
    checkpoints = Checkpoints(directory, keep)
    for iteration, score in scores.items():
        checkpoints.save(iteration, states_of(iteration), CheckpointNote(score))
    checkpoints.close()
    return checkpoints


def test_the_best_is_that_of_the_highest_score(tmp_path: Path) -> None:
    """A run that gets worse: the best one is not the newest. Without a score one is the best only if none has one."""
    checkpoints = save_all(tmp_path / "worse", {0: None, 1: 5.0, 2: 9.0, 3: 7.0, 4: 2.0, 5: 1.0, 6: None})
    assert checkpoints.iterations() == [2, 5, 6]
    assert checkpoints.best() == 2
    assert save_all(tmp_path / "unscored", {0: None, 1: None}).best() == 1
    assert save_all(tmp_path / "negative", {0: None, 1: -8.0, 2: -9.0}).best() == 1


def test_a_run_that_gets_worse_is_played_from_its_best_checkpoint(tmp_path: Path) -> None:
    """Rewards fall from step to step: the first checkpoint with a score is the best, and stays."""
    run, config = tmp_path / "run", tiny(env="stubborn_envs:Worsening-v0", total_timesteps=32 * 4)
    train(config, run_dir=run, checkpoint_interval=1, keep_checkpoints=2)
    returns = read_metrics(run)["charts/episodic_return"]
    assert (np.diff(returns) < 0).all()
    scores = {i: note.score for i, note in Checkpoints(run / "checkpoints").notes().items() if note}
    assert scores == {i: pytest.approx(returns[i - 1], rel=1e-5) for i in (1, 3, 4)}
    assert load_run(run, "best").iteration == 1
    assert load_run(run).iteration == 4


def test_an_interruption_leaves_the_same_checkpoints(run_dir: Path, finished: Path, tmp_path: Path) -> None:
    """Stopped after iterations 3, 6, 7 and 9: each leaves a checkpoint, which goes when the next one is there."""
    run, stops = tmp_path / "stopped", [3, 6, 7, 9]
    add_lines = Bookkeeper.add_lines

    for count, stop in enumerate(stops):
        with pytest.MonkeyPatch.context() as patch:
            event = threading.Event()

            def watched(
                self: Bookkeeper, table: Any, begin: int, ends: list[int], event: Any = event, stop: int = stop
            ) -> list[tuple]:
                if ends and ends[-1] >= stop:
                    event.set()
                return add_lines(self, table, begin, ends)

            patch.setattr("isobatch.training.loop.MAX_ROWS", 1)
            patch.setattr("isobatch.training.trainer.stop_signals", lambda say, event=event: nullcontext(event))
            patch.setattr(Bookkeeper, "add_lines", watched)
            assert train(tiny(), run_dir=run, resume=count > 0, **OPTIONS).interrupted
        assert max(kept(run)) == stop
    train(tiny(), run_dir=run, resume=True, **OPTIONS)
    assert first_difference(finished, run) is None
    assert kept(run) == kept(finished)
    scores = [[read_note(checkpoint(each, i)) for i in kept(each)] for each in (run, finished)]
    assert scores[0] == scores[1]


def test_two_writers(tmp_path: Path) -> None:
    """The second one is told who the first is and writes nothing. The lock of a process that died is free."""
    run = tmp_path / "run"
    run.mkdir()
    code = (
        f"import sys, time; from pathlib import Path; from isobatch.training.lock import locked\n"
        f"with locked(Path({str(run)!r})): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        before = (run / LOCK).read_bytes()
        with pytest.raises(ib.RunError, match=rf"is being trained by process {holder.pid} on .* since 20"):
            train(tiny(), run_dir=run)
        assert (run / LOCK).read_bytes() == before
        assert os.listdir(run) == [LOCK]
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with locked(run), pytest.raises(ib.RunError, match=f"process {os.getpid()}"), locked(run):
        pass


@pytest.mark.parametrize("names", [[], ["run.lock"], ["config.yaml.77.new"], ["run.lock", "config.yaml"]])
def test_a_directory_that_was_killed_at_its_creation_can_be_started(
    names: list[str], tmp_path: Path, finished: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in names:
        (run / name).write_text("env: CartP")
    with pytest.raises(ib.UsageError, match="holds no run"):
        train(tiny(), run_dir=run, resume=True, **OPTIONS)
    train(tiny(), run_dir=run, **OPTIONS)
    assert first_difference(finished, run) is None


def test_a_run_that_was_killed_before_its_first_checkpoint_can_be_resumed(tmp_path: Path, finished: Path) -> None:
    run = tmp_path / "run"
    RunDirectory.make(run).describe(tiny(), {"seed": 0, "num_seeds": 2, "log_interval": 1})
    said: list[str] = []
    train(tiny(), run_dir=run, resume=True, say=said.append, **OPTIONS)
    assert "no checkpoint yet: starting at the beginning." in said
    assert first_difference(finished, run) is None


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(ib.UsageError, match="exists"):
        train(tiny(), run_dir=tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


NAMES = [
    "a[0]", "[!x]*?", "back\\slash", "two  words", "größe-模型", "-dash", "{a,b}", "%d%s", "a:b", "~", "new\nline",
    "$(x)", "gs:", "'\"",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_path_works(name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also relative to the current directory; checkpoints are where they are looked for."""
    monkeypatch.chdir(tmp_path)
    run = Path(name)
    train(tiny(), run_dir=run, **OPTIONS)
    assert load_run(run).iteration == 12
    assert load_run(run, "best").iteration in kept(run)
    checkpoint(run, 12).unlink()
    train(tiny(), run_dir=run, resume=True, **OPTIONS)
    assert first_difference(finished, run) is None
    assert os.listdir(tmp_path) == [name]


def test_a_full_disk_leaves_what_can_be_resumed(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of iteration 8 finds no room, then the lines of metrics: one sentence each."""
    write = checkpoint_file.write_checkpoint
    run = tmp_path / "run"

    def full(path: Path, *rest: Any) -> None:
        if "8" in path.name:
            raise OSError(28, "No space left on device")
        write(path, *rest)

    monkeypatch.setattr("isobatch.training.checkpoints.write_checkpoint", full)
    with pytest.raises(ib.RunError, match=r"cannot be written \(No space left on device\): make room"):
        train(tiny(), run_dir=run, **OPTIONS)
    monkeypatch.undo()
    open_file = Path.open

    def half(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if self.name == METRICS and mode == "ab":
            with open_file(self, mode) as file:
                file.write(b"half a line")
            raise OSError(28, "No space left on device")
        return open_file(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", half)
    with pytest.raises(ib.RunError, match=r"metrics.csv' cannot be written \(No space left on device\): make room"):
        train(tiny(), run_dir=run, resume=True, **OPTIONS)
    monkeypatch.undo()
    assert not (run / METRICS).read_text().endswith("half a line")
    train(tiny(), run_dir=run, resume=True, **OPTIONS)
    assert first_difference(finished, run) is None


def test_a_run_is_read_while_its_files_are_replaced(run_dir: Path) -> None:
    """Checkpoints come and go, and lines are half written: every load is of a whole state."""
    template = load_run(run_dir).states
    done = threading.Event()

    def write() -> None:
        checkpoints = Checkpoints(run_dir / "checkpoints", keep=1)
        for iteration in range(13, 100):
            checkpoints.save(iteration, template, CheckpointNote(float(-iteration)))
        checkpoints.close()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    loads = 0
    try:
        while not done.is_set():
            assert load_run(run_dir, "best" if loads % 2 else "newest").iteration >= 12
            loads += 1
    finally:
        writer.join()
    assert loads > 5


def test_half_a_line_of_metrics_is_not_read(run_dir: Path) -> None:
    """Also when it has all its columns and its last number is cut: 1,2,3.2 of 1,2,3.25."""
    whole = read_metrics(run_dir)
    content = (run_dir / METRICS).read_bytes()
    (run_dir / METRICS).write_bytes(content + content.splitlines()[-1][:-2])
    for name, values in read_metrics(run_dir).items():
        np.testing.assert_array_equal(values, whole[name])


def test_marks_of_the_metrics_file(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / METRICS)
    empty = file.mark
    file.append(("iteration", "x"), [(1, np.float32(0.5))])
    one = file.mark
    file.append(("iteration", "x"), [(2, np.float32(1.5))])
    assert (tmp_path / METRICS).read_text() == "iteration,x\n1,0.5\n2,1.5\n"
    assert file.holds(empty)
    assert file.holds(one)
    again = MetricsFile(tmp_path / METRICS)
    again.rewind(one)
    again.append(("iteration", "x"), [(2, np.float32(2.5))])
    assert (tmp_path / METRICS).read_text() == "iteration,x\n1,0.5\n2,2.5\n"
    assert not again.holds(file.mark)


def test_what_a_checkpoint_holds_comes_back(tmp_path: Path) -> None:
    states = {
        "float": np.linspace(0, 1, 7, dtype=np.float32).reshape(7, 1),
        "empty": np.zeros((0, 3), np.int8),
        "scalar": np.array(3, np.int64),
        "bool": np.array([True, False]),
        "half": np.arange(4).astype("bfloat16"),
    }
    path = tmp_path / "a.checkpoint"
    checkpoint_file.write_checkpoint(path, CheckpointNote(1.5, True), states)
    note, leaves = read_checkpoint(path)
    assert note == CheckpointNote(1.5, True)
    assert list(leaves) == list(states)
    for name, array in states.items():
        assert (leaves[name].dtype, leaves[name].shape) == (array.dtype, array.shape)
        assert leaves[name].tobytes() == array.tobytes()
