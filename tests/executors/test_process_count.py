"""Numbers of processes that a machine cannot have are refused before the first one is started."""

import multiprocessing
import subprocess
from typing import Any

import host_envs  # noqa: F401  # registers its environments
import pytest
from some_jobs import Square
from tiny import tiny

from isobatch.cli.main import main
from isobatch.errors import UsageError
from isobatch.executors import process_count
from isobatch.executors.processes import LocalProcesses
from isobatch.training.trainer import train


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory for one process that computes, or four environments; and a start is an error."""

    def start(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(process_count, "free_memory", lambda: process_count.JAX_BYTES)
    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start)


def test_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--num-processes", "1e9", "--", "train"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("isobatch: num_processes=1000000000 is too much: 1,000,000,000 processes need at least ")
    assert said.endswith("1 would fit.\n")


def test_jobs_count_as_many_processes_as_there_are_jobs() -> None:
    with pytest.raises(UsageError, match="processes=3 is too much: 3 processes need at least"):
        list(LocalProcesses(10**9).run([Square(1)] * 3, lambda *_: None))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(num_envs=16, vectorization="async"), "num_envs is too much: 8 processes need"),
        (dict(num_envs=4, actors=2, max_lag="1i"), "actors=2 is too much: 2 processes need"),
    ],
)
def test_environments_and_actors(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        train(tiny("ppo", "host_envs:Walk-v0", total_timesteps=256, **settings))
