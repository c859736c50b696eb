"""The command `advise` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_words import BASE, SETTINGS, called

from isobatch.settings.presets import preset


def test_advise_draws_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "geometry.svg"
    out = called(capsys, "advise", *BASE, "--num-steps", "256", "--plot", str(picture))
    assert "64 x 256 = 16,384" in out
    assert "8 minibatches of 2,048" in out
    assert "minibatch-count wins over minibatch-size" in out
    assert picture.is_file()
    answer = json.loads(called(capsys, "advise", *BASE, "--json"))
    assert {c["status"] for c in answer["checks"]} <= {"pass", "warn", "note"}


def test_advise_reads_the_metrics_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from isobatch.settings.files import dump_config

    config = preset(**SETTINGS, lr_schedule="constant")
    (tmp_path / "config.yaml").write_text(dump_config(config))
    (tmp_path / "run.json").write_text("{}")
    rows = [f"{i},{i * 20480},0,0.3,0.5,0.01,1.0" for i in range(1, 21)]
    header = "iteration,env_steps,seed,losses/clipfrac,losses/explained_variance,losses/approx_kl,advantages/std"
    (tmp_path / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    out = called(capsys, "advise", str(tmp_path))
    assert "what the run's metrics say" in out
    assert "30.00% of the ratios are clipped" in out
    assert "learning_rate 0.0025 -> 0.001575" in " ".join(out.split())  # 1.0364/1.6449 of it
    answer = json.loads(called(capsys, "advise", str(tmp_path), "--json"))
    assert answer["monitors"][0]["suggestions"][0]["after"] == pytest.approx(0.0025 * 1.0364 / 1.6449, rel=1e-4)
