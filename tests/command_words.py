"""Settings as flags and in Python, and what a command prints."""

from pathlib import Path

import pytest

from isobatch.cli.main import main

SAMPLE = Path(__file__).parent / "data" / "zoo_sample.yml"
BASE = ["--algo", "ppo-ewma", "--num-envs", "64", "--num-steps", "32", "--num-minibatches", "8", "--update-epochs", "1"]
SETTINGS = dict(algo="ppo-ewma", num_envs=64, num_steps=32, num_minibatches=8, update_epochs=1)


def called(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    done = capsys.readouterr()
    assert done.err == ""
    return done.out
