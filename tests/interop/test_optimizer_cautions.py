"""Weight decay and Muon of other libraries are said, with the number that would hold, and not without a cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isobatch.cli.main import main
from isobatch.interop.optimizer_cautions import optimizer_cautions
from isobatch.rescaling import rescale
from isobatch.rescaling.rules import decoupled_decay
from isobatch.settings.config import Config

BASE = Config().replace(learning_rate=1e-3)
SMALLER = rescale(BASE, num_envs=2).after  # c = 4


def test_the_memory_of_decoupled_decay_is_held_in_samples() -> None:
    """B / (rate x decay): 256 / (1e-3 x .1) = 64 / (5e-4 x .05). With the rate held, the decay goes by the batch."""
    assert decoupled_decay(0.1, 1e-3, 5e-4, 4) == pytest.approx(0.05)
    assert decoupled_decay(0.1, 1e-3, 1e-3, 4) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optim": {"weight_decay": 0.1}}, ["optim.weight_decay=0.1 stays", "0.05 would hold"]),
        ({"policy_kwargs": "dict(optimizer_kwargs=dict(weight_decay=1e-5))"}, ["weight_decay of policy_kwargs=1e-05"]),
        ({"agent.optim": {"weight_decay": 0.1}}, ["agent.optim.weight_decay=0.1 stays"]),  # a name with a dot in it
        ({"algorithm": {"optimizer": "Muon"}}, ["algorithm.optimizer=Muon", "derived for Adam", "try both"]),
    ],
)
def test_what_no_rule_moves_is_said(settings: dict, words: list[str]) -> None:
    (sentence,) = optimizer_cautions(settings, BASE, SMALLER)
    assert all(word in sentence for word in words)
    assert optimizer_cautions(settings, BASE, rescale(BASE, num_envs=2, keep="iteration-batch").after) == []


def test_nothing_is_said_without_a_cause() -> None:
    assert optimizer_cautions({"weight_decay": 0, "optimizer": "adam", "lr": 1e-3}, BASE, SMALLER) == []
    assert optimizer_cautions({"weight_decay": None, "optimizer_kwargs": {}}, BASE, SMALLER) == []


def test_the_command_says_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PufferLib has Muon where its file says nothing, and where it says so."""
    for line in ("", "optimizer = muon\n"):
        file = tmp_path / "puffer.ini"
        file.write_text("[vec]\nnum_envs = 8\n[env]\nnum_envs = 1024\n[train]\nbptt_horizon = 64\n" + line)
        assert main(["rescale", "--from-pufferlib", str(file), "--factor", "4", "--json"]) == 0
        remarks = json.loads(capsys.readouterr().out)["remarks"]
        assert sum("train.optimizer=muon is taken for Adam" in remark for remark in remarks) == 1
