"""Ray as an executor: what is refused before anything is trained, and what its workers check."""

import socket
from pathlib import Path

import pytest
from needs import needs_ray

from isobatch.cli.main import main
from isobatch.executors import ray_connection, ray_worker
from isobatch.executors.interface import Failure
from isobatch.executors.ray_worker import Board, Ticket, difference, work


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    code = main(["study", "run", "ewma", *flags])
    return code, capsys.readouterr().err


@needs_ray
@pytest.mark.parametrize("listens", [False, True])
def test_an_address_that_does_not_answer(
    listens: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there, or somebody who does not speak as Ray does."""
    monkeypatch.setattr(ray_connection, "SECONDS_TO_ANSWER", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        if listens:
            mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
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
    monkeypatch.setattr(ray_connection.importlib.util, "find_spec", lambda name: None)
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
