"""A study elsewhere: the files of the local engine, also when a node or the head of a cluster is lost."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fake_study
import jax
import pytest
from needs import needs_ray, one_more_case

from isobatch.studies.runner import run_study

pytestmark = pytest.mark.xdist_group("ray")
RESULTS = ("rows.csv", "curves.csv.gz", "study.json")
LIMIT = 300  # seconds for anything


def start(out: Path, *flags: str) -> subprocess.Popen[str]:
    """The command line in a process of its own, with the study that has two long parts, on the devices of tests."""
    words = [sys.executable, str(Path(fake_study.__file__)), "study", "run", "fake", "--json", "--out", str(out)]
    devices = {"JAX_NUM_CPU_DEVICES": str(jax.device_count())}
    return subprocess.Popen(
        [*words, *flags], env=os.environ | devices, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Standard error; standard output is one JSON object, whatever happened to nodes."""
    printed, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    assert json.loads(printed)["finished"]
    return said


def until_both_are_at_work(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "0 of 2 jobs done, 2 at work" in line:
            return
    raise AssertionError(said)


def same_files(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in RESULTS)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_study(fake_study.LONG, "quick", tmp_path_factory.mktemp("local") / "fake").path


@pytest.fixture(scope="module")
def cluster() -> Iterator[subprocess.Popen[str]]:
    script = str(Path(fake_study.__file__).with_name("two_nodes.py"))
    process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate(timeout=LIMIT)


@pytest.fixture(scope="module")
def on_cluster(cluster: subprocess.Popen[str], local: Path) -> list[str]:
    """Flags; the cluster starts while the local study runs."""
    assert cluster.stdout is not None
    return ["--on", "ray", "--address", cluster.stdout.readline().strip()]


@needs_ray
def test_rows_are_the_same_after_the_head_was_killed(local: Path, on_cluster: list[str], tmp_path: Path) -> None:
    """Both parts run at the same time, one on each node, and nothing is finished when the head is killed."""
    process = start(tmp_path / "out", *on_cluster)
    until_both_are_at_work(process)
    process.kill()
    process.communicate()
    assert not (tmp_path / "out" / "rows.csv").exists()
    finish(start(tmp_path / "out", *on_cluster))
    assert same_files(local, tmp_path / "out")


@needs_ray
def test_rows_are_the_same_after_a_node_was_lost(
    local: Path, cluster: subprocess.Popen[str], on_cluster: list[str], tmp_path: Path
) -> None:
    """The last test on this cluster: what ran on the node is tried on the other one."""
    process = start(tmp_path / "out", *on_cluster)
    until_both_are_at_work(process)
    assert cluster.stdin is not None
    cluster.stdin.write("remove\n")
    cluster.stdin.flush()
    assert "was lost with its process or node" in finish(process)
    assert same_files(local, tmp_path / "out")


@one_more_case
@pytest.mark.parametrize("sent", [None, signal.SIGTERM, signal.SIGINT])
def test_rows_of_two_processes_are_the_same(sent: signal.Signals | None, local: Path, tmp_path: Path) -> None:
    """Also after they were stopped in the middle of both parts."""
    process = start(tmp_path / "out", "--processes", "2")
    until_both_are_at_work(process)
    if sent is not None:
        process.send_signal(sent)
        _, said = process.communicate(timeout=LIMIT)
        assert process.returncode == 130
        assert said.splitlines()[-1].startswith("interrupted: what is finished is kept")
        assert not (tmp_path / "out" / "rows.csv").exists()
        process = start(tmp_path / "out", "--processes", "2")
    finish(process)
    assert same_files(local, tmp_path / "out")
