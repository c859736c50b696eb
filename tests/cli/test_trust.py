"""A run may have only such modules imported as its user has named before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isobatch.cli.main import main
from isobatch.envs import trust


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of a run whose module would leave a trace if it were imported."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "planted.py").write_text("raise SystemExit('executed')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("env: planted:Trap-v0\n")
    (tmp_path / "run" / "run.json").write_text("{}\n")
    return tmp_path / "run"


LOADING = [
    ["eval"], ["play"], ["export", "--out", "policy.npz"], ["diagnose"], ["train", "--resume"],
    ["train", "--init-from"], ["train", "--resume", "--run-dir"], ["train", "--replay"], ["advise"],
]  # fmt: skip


@pytest.mark.parametrize("words", LOADING, ids=" ".join)
def test_a_foreign_module_is_not_imported(words: list[str], run: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([*words, str(run)]) == 2
    err = capsys.readouterr().err
    assert "imports the module 'planted', and you have not used that module before" in err
    assert "--trust, or set ISOBATCH_TRUSTED_MODULES=planted" in err
    assert "planted" not in sys.modules


def test_what_was_named_is_remembered_with_its_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not trust.is_trusted("planted:Trap-v0")
    trust.remember("planted:Trap-v0")
    assert trust.is_trusted("gymnasium/planted.part:Other-v0")
    assert not trust.is_trusted("other:Trap-v0")
    other = run.parent / "elsewhere"
    other.mkdir()
    (other / "planted.py").write_text("")
    monkeypatch.syspath_prepend(str(other))
    assert not trust.is_trusted("planted:Trap-v0")  # the same name, and another file


def test_ways_to_allow_it(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("ISOBATCH_TRUSTED_MODULES", "gym_like, planted")
    main(["eval", str(run)])
    assert "have not used" not in capsys.readouterr().err
    monkeypatch.delenv("ISOBATCH_TRUSTED_MODULES")
    main(["eval", str(run), "--trust"])
    assert "have not used" not in capsys.readouterr().err


def test_importing_a_module_is_trust(run: Path, capsys: pytest.CaptureFixture) -> None:
    """A user's own module, named by a flag or in Python, is no longer asked about; one that fails is."""
    words = ["train", "--env", "planted:Trap-v0", "--run-dir", str(run.parent / "new")]
    assert main(words) == 2
    assert "a module that fails while it is imported (SystemExit: executed)" in capsys.readouterr().err
    assert not trust.is_trusted("planted:Trap-v0")
    (run.parent / "planted.py").write_text("")
    assert main(words) == 2
    assert "cannot be made" in capsys.readouterr().err  # nobody registered the id
    assert trust.is_trusted("planted:Trap-v0")
    main(["eval", str(run)])
    assert "have not used" not in capsys.readouterr().err


def test_commands_that_import_nothing_do_not_ask(run: Path) -> None:
    assert main(["rescale", str(run), "--factor", "2", "--json"]) == 0
    assert not trust.is_trusted("planted:Trap-v0")


def test_a_module_that_is_not_here_is_missing_rather_than_foreign(run: Path, capsys: pytest.CaptureFixture) -> None:
    """As one's own is, when the command is given in another directory."""
    (run / "config.yaml").write_text("env: not_here:Walk-v0\n")
    assert main(["eval", str(run)]) == 2
    err = capsys.readouterr().err
    assert "have not used" not in err
