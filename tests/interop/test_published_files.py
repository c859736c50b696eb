"""Published files of other libraries, where they are: rl_zoo3's own, and folders named in an environment variable."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "published_files.py"
FOLDERS = os.environ.get("ISOBATCH_PUBLISHED", "")


def run(folders: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    spec = importlib.util.spec_from_file_location("published_files", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["published_files"] = module
    spec.loader.exec_module(module)
    code = module.main(folders)
    return code, capsys.readouterr().out


def test_own_samples_go_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from test_robotics_libraries import BRAX, ML_AGENTS, PUFFER, RL_GAMES, RSL_RL, TORCHRL

    texts = {"agent.yaml": RSL_RL, "ppo.yaml": RL_GAMES, "brax.yaml": BRAX, "puffer.ini": PUFFER, "t.yaml": TORCHRL}
    for name, text in (texts | {"ball.yaml": ML_AGENTS, "other.yaml": "a: 1\n"}).items():
        (tmp_path / name).write_text(text)
    code, out = run([str(tmp_path)], capsys)
    assert code == 0, out
    for title in ("rsl_rl", "rl_games", "Brax", "PufferLib", "TorchRL", "ML-Agents"):
        assert f"| {title} | 1 | 1 | 1 | 1 | 1 | 0 | 0 |" in out


def test_a_file_that_does_not_come_back_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1,501 iterations cannot be halved."""
    from test_robotics_libraries import RSL_RL

    (tmp_path / "agent.yaml").write_text(RSL_RL.replace("1500", "1501"))
    code, out = run([str(tmp_path)], capsys)
    assert code == 1
    assert "max_iterations is 1502" in out


@pytest.mark.skipif(not FOLDERS, reason="ISOBATCH_PUBLISHED names no folders with published files")
def test_published_files(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run(FOLDERS.split(os.pathsep), capsys)
    rows = [line for line in out.splitlines() if line.startswith("| ") and not line.startswith(("| library", "| ---"))]
    assert rows
    assert all(row.endswith("| 0 |") for row in rows), out
