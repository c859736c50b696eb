"""Settings of other libraries on the command line: trained here, compared, converted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from isobatch.cli.main import main
from isobatch.settings.files import load_config

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ZOO = ["--from-zoo", str(EXAMPLES / "ppo.yml"), "--env", "CartPole-v1"]


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(list(words)) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_training_with_settings_of_the_zoo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 steps are two rollouts of 512: Stable-Baselines3 rounds up."""
    run = tmp_path / "run"
    words = [*ZOO, "--total-timesteps", "1000", "--run-dir", str(run), "--quiet", "--no-compile-cache"]
    _, err = called(capsys, "train", *words)
    config = load_config(run / "config.yaml")
    assert (config.num_envs, config.num_minibatches, config.lr_schedule) == (8, 8, "linear")
    assert (config.env_steps, config.hypers.vf_coef, config.advantage_norm) == (1024, 1.0, "minibatch")
    assert "total_timesteps 1,000 -> 1,024" in err
    assert (config.clip_schedule, config.hypers.clip_eps) == ("linear", 0.2)
    assert "a linear clip range is one iteration further on there, by 1/2 = 50 % of its start" in " ".join(err.split())
    assert "without a counterpart" not in err


def test_training_flags_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, part in (
        (["train", *ZOO, "--preset", "atari-ppo"], "--preset and --from-zoo cannot go together"),
        (["train", *ZOO, "--resume", str(tmp_path)], "--resume goes on with the settings of a run"),
        (["train", "--entry", "x"], "--entry x is of a file of another library"),
        (["train", *ZOO, "--algo", "ppg"], "algo='ppg' cannot be made of settings of ppo"),
    ):
        assert main(words) == 2
        assert part in capsys.readouterr().err


def test_rescaled_as_isobatch_and_converted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rescale", *ZOO, "--algo", "ppo-ewma", "--to-num-envs", "4", "--as", "isobatch"]
    out, _ = called(capsys, *words)
    settings = yaml.safe_load(out.split("settings\n", 1)[1].split("\nflags", 1)[0])
    assert (settings["algo"], settings["num_envs"]) == ("ppo-ewma", 4)
    assert settings["beta_prox"] == pytest.approx(7 / 8)  # 3.5 gradient steps at 8 environments, 7 at 4
    assert "what changes on the way to isobatch" in out
    answer = json.loads(called(capsys, *words, "--json")[0])
    assert answer["isobatch"] == settings
    assert any("proximal_policy behavior -> ewma" in remark for remark in answer["remarks"])


def test_alternatives_are_shown_and_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = called(capsys, "rescale", *ZOO, "--to-num-envs", "64")
    assert "ways to have 64 environments" in out
    assert "iteration-batch *" in out
    first = out.split("\n\n")[1]
    assert first.startswith("N x T is kept")
    assert "by the rules (keep=minibatch-count; docs/results/transfer.md)" in " ".join(first.split())
    entry = yaml.safe_load(out.split("CartPole-v1:\n", 1)[1].split("\n\n", 1)[0])
    assert (entry["n_envs"], entry["n_steps"], entry["batch_size"]) == (64, 8, 64)
    assert entry["learning_rate"] == "lin_0.001"
    answer = json.loads(called(capsys, "rescale", *ZOO, "--to-num-envs", "64", "--json")[0])
    iterations = {other["keep"]: other["iterations"] for other in answer["alternatives"]}
    assert iterations == {"iteration-batch": 195, "minibatch-size": 24, "minibatch-count": 24}
    assert answer["keep"] == "iteration-batch"
    out, _ = called(capsys, "rescale", *ZOO, "--to-num-envs", "64", "--keep", "minibatch-count")
    assert "minibatch-count *" in out
    assert "N x T is kept" not in out


def test_settings_that_are_not_in_use_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = called(capsys, "rescale", *ZOO, "--to-num-envs", "64")
    assert "beta_prox" not in out.split("where the theory stops")[0]


def test_controllers_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(
        "num_steps_per_env: 24\nmax_iterations: 100\nalgorithm: {num_mini_batches: 4, num_learning_epochs: 5, "
        "learning_rate: 0.001, schedule: adaptive, desired_kl: 0.01}\n"
    )
    words = ["rescale", "--from-rsl-rl", str(path), "--num-envs", "4096", "--to-num-envs", "1024"]
    out, _ = called(capsys, *words)
    assert "the learning rate follows the KL divergence" in out
    assert "desired_kl=0.0025" in " ".join(out.split())
    assert len(json.loads(called(capsys, *words, "--json")[0])["kl_control"]) == 2


def test_a_file_of_another_library_is_refused_with_its_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescale", "--from-skrl", str(EXAMPLES / "rllib.yaml"), "--num-envs", "8", "--factor", "2"]) == 2
    assert "--from-rllib" in capsys.readouterr().err
    path = tmp_path / "typo.yml"
    path.write_text("n_envs: 8\nn_step: 64\nbatch_size: 64\n")
    out, _ = called(capsys, "rescale", "--from-zoo", str(path), "--algo", "ppo", "--factor", "2")
    assert "n_step is not a setting of Stable-Baselines3; did you mean n_steps?" in out
