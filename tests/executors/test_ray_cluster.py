"""A study on a Ray cluster of two nodes: the files of the local engine, also when a node or the head is lost."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_study
import pytest
from needs import needs_ray

from isobatch.cli.main import main
from isobatch.executors import ray_cluster as cluster_module
from isobatch.executors import ray_worker
from isobatch.executors.interface import Failure
from isobatch.executors.ray_worker import Board, Ticket, difference, work

pytestmark = pytest.mark.xdist_group("ray")
RESULTS = ("rows.csv", "curves.csv.gz", "study.json")
LIMIT = 120  # seconds for anything


def start(out: Path, *flags: str) -> subprocess.Popen[str]:
    """The command line in a process of its own, with the study that has two long parts."""
    words = [sys.executable, str(Path(fake_study.__file__)), "study", "run", "fake", "--json", "--out", str(out)]
    return subprocess.Popen([*words, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    return said


def until(happened: Callable[[str], bool], process: subprocess.Popen[str]) -> None:
    """Read what the process says up to a line of which this is true."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if happened(line):
            return
    raise AssertionError(said)


def same_files(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in RESULTS)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("local") / "fake"
    finish(start(out))
    return out


@pytest.fixture(scope="module")
def cluster() -> Iterator[subprocess.Popen[str]]:
    script = str(Path(fake_study.__file__).with_name("two_nodes.py"))
    process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate(timeout=LIMIT)


@pytest.fixture(scope="module")
def on_cluster(cluster: subprocess.Popen[str]) -> list[str]:
    assert cluster.stdout is not None
    return ["--on", "ray", "--address", cluster.stdout.readline().strip()]


@needs_ray
def test_rows_are_those_of_the_local_engine(local: Path, on_cluster: list[str], tmp_path: Path) -> None:
    """Both parts at the same time, one on each node; then nothing is left to do."""
    process = start(tmp_path / "out", *on_cluster)
    until(lambda line: "0 of 2 jobs done, 2 at work" in line, process)
    finish(process)
    assert same_files(local, tmp_path / "out")
    finish(start(tmp_path / "out", *on_cluster))
    assert same_files(local, tmp_path / "out")


@needs_ray
def test_the_head_is_killed_and_started_again(local: Path, on_cluster: list[str], tmp_path: Path) -> None:
    process = start(tmp_path / "out", *on_cluster)
    until(lambda line: "2 at work" in line, process)
    process.kill()
    process.communicate()
    assert not (tmp_path / "out" / "rows.csv").exists()
    finish(start(tmp_path / "out", *on_cluster))
    assert same_files(local, tmp_path / "out")


@needs_ray
def test_a_node_is_lost(local: Path, cluster: subprocess.Popen[str], on_cluster: list[str], tmp_path: Path) -> None:
    """The last test on this cluster: what ran on the node is tried on the other one."""
    process = start(tmp_path / "out", *on_cluster)
    until(lambda line: "2 at work" in line, process)
    assert cluster.stdin is not None
    cluster.stdin.write("remove\n")
    cluster.stdin.flush()
    assert "was lost with its process or node" in finish(process)
    assert same_files(local, tmp_path / "out")


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    code = main(["study", "run", "ewma", *flags])
    return code, capsys.readouterr().err


@needs_ray
def test_an_address_that_does_not_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        code, said = refused(capsys, "--on", "ray", "--address", address, "--out", str(tmp_path / "out"))
    assert code == 1
    assert f"--address {address}: no Ray cluster answers there" in said
    assert not (tmp_path / "out").exists()


@needs_ray
@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:", ":6379"])
def test_an_address_that_is_none(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, "--on", "ray", "--address", address)
    assert code == 2
    assert f"--address {address!r} is not HOST:PORT" in said


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cluster_module.importlib.util, "find_spec", lambda name: None)
    assert refused(capsys, "--on", "ray") == (
        2, "isobatch: --on ray needs the package ray: pip install 'isobatch[ray]', or use --on local.\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--on", "rai"], "on='rai' is unknown; did you mean ray?"),
        (["--address", "head:6379"], "add --on ray, or leave it out."),
        (["--on", "ray", "--processes", "2"], "processes=2 is for --on local"),
        (["--processes", "0"], "processes=0 must be at least 1."),
    ],
)
def test_flags_that_do_not_go_together(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, *flags)
    assert code == 2
    assert sentence in said


def test_other_versions_are_refused_before_anything_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ray_worker.versions()
    monkeypatch.setattr(ray_worker, "versions", lambda: expected | {"jax": "0.1", "numpy": "1.0"})
    failure = work(Ticket(0, 1), b"this cannot be unpickled", expected, None)
    assert isinstance(failure, Failure)
    assert f"has jax 0.1 where {expected['jax']} is used and numpy 1.0 where" in str(failure.error)


def test_what_is_not_installed_here_may_be_there() -> None:
    assert difference({"jax": "1", "envpool": "not installed"}, {"jax": "1", "envpool": "2"}) == ""
    assert difference({"envpool": "2"}, {"envpool": "not installed"}) == "envpool not installed where 2 is used"


def test_a_board_keeps_attempts_apart() -> None:
    board = Board()
    board.note(Ticket(0, 1), 0.9)
    board.note(Ticket(0, 2), 0.1)
    assert board.read()[Ticket(0, 2)] == 0.1
