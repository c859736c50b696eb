"""The command line as people use it: outputs, exit codes, and one sentence for each bad input."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from tiny import flags, tiny

from isobatch.cli.main import main
from isobatch.envs.registry import environment_of

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", *flags(tiny()), "--run-dir", str(path), "--num-seeds", "2", "--quiet"]) == 0
    return path


def test_train_prints_the_batch_accounting(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = [*flags(tiny("ppo-ewma")), "--run-dir", str(tmp_path / "run")]
    assert main(["train", *words]) == 0
    out, err = capsys.readouterr()
    assert "4 environments x 8 steps = 32 steps" in out
    assert "32 / 2 minibatches = 16 samples" in out
    assert "2 minibatches x 2 epochs = 4 per iteration, 48 in all" in out
    assert "center of mass 8 gradient steps = 64 environment steps" in out  # 8 x 16 samples / 2 epochs
    assert "final return" in out
    assert "100 %" in err


def test_train_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["train", *flags(tiny()), "--run-dir", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["env_steps"] == 384
    assert found["run_dir"] == str(tmp_path / "run")
    assert len(found["final_return"]) == len(found["seeds"]) == 1


def test_config_file_and_flags_that_override_it(tmp_path: Path, capsys: pytest.CaptureFixture, run_dir: Path) -> None:
    words = ["--config", str(run_dir / "config.yaml"), "--gamma", "0.5", "--run-dir", str(tmp_path / "run"), "--quiet"]
    assert main(["train", *words]) == 0
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "gamma: 0.5" in text
    assert re.sub("gamma: .*\n", "", text) == re.sub("gamma: .*\n", "", (run_dir / "config.yaml").read_text())


def test_resume_needs_only_the_directory(run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "--resume", "--run-dir", str(run_dir), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == [0, 1]


def test_resume_takes_a_run_and_a_finished_one_says_so(run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "--resume", str(run_dir), "--quiet"]) == 0
    assert "the run is finished: all of its 384 steps are trained." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--resume RUN --run-dir other", "both name a run: give one of them"),
        ("--restart", "--restart is for a run that goes on"),
        ("--resume RUN --init-from RUN", "--init-from is for a new run"),
        ("--init-from nowhere --run-dir new", "run_dir='nowhere' holds no run"),
        ("--init-from RUN --env CartPole-v1 --run-dir new", "has other networks"),
    ],
)
def test_what_does_not_go_together(words: str, complaint: str, run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["train", *words.replace("RUN", str(run_dir)).split()]) == 2
    assert complaint in capsys.readouterr().err


def test_an_environment_of_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the console script finds it, whose path has no current directory by itself."""
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine-v0', CartPoleEnv, max_episode_steps=9)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "bin"), *filter(os.path.isabs, sys.path[1:])])
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    assert environment_of(tiny(env="my_envs:Mine-v0")).max_steps == 9
    assert sys.path[-1] == str(tmp_path)  # after what is installed


def test_eval(run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["eval", str(run_dir), "--episodes", "5"]) == 0
    assert "most likely actions, 5 episodes" in capsys.readouterr().out
    assert main(["eval", str(run_dir), "--episodes", "5", "--sampled", "--checkpoint", "best", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["return_mean"]) == 2
    assert found["length_mean"] == [1.0, 1.0]  # an episode of the probe is one step


def test_plot(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("a.png", "a.svg"):
        assert main(["plot", str(run_dir), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 5000


def test_verify_says_identical(capsys: pytest.CaptureFixture) -> None:
    assert main(["verify", *flags(tiny("a2c")), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["identical"] is True
    assert found["metrics_compared"] > 100


def test_verify_says_where_runs_differ(run_dir: Path, tmp_path: Path) -> None:
    from isobatch.training.verification import first_difference

    other = tmp_path / "other"
    assert main(["train", *flags(tiny(gamma=0.9, env="Probe-Delay")), "--run-dir", str(other), "--num-seeds", "2"]) == 0
    assert " at environment step 32, seed 0: " in first_difference(run_dir, other)


BAD = {
    "--env CartPole-v7": r"env='CartPole-v7' is unknown; did you mean CartPole-v1",
    "--env MNISTBandit-bsuite": r"env='MNISTBandit-bsuite' is not available: it downloads",
    "--algo pppo": r"algo='pppo' is unknown; did you mean ppo",
    "--num-minibatches 3": r"num_minibatches=3 does not evenly divide .* use 1 or 2 or 4 or 8",
    "--num-minibatches 3 --minibatch-scheme envs": r"num_minibatches=3 does not evenly divide whole environment rows",
    "--num-envs 0": r"num_envs=0 must be at least 1",
    "--num-steps -5": r"num_steps=-5 must be at least 1",
    "--num-envs x": r"num_envs='x' is not valid: use a whole number",
    "--num-envs 1.5": r"num_envs='1.5' is not valid: use a whole number",
    "--learning-rate nan": r"learning_rate=nan is out of range: use a number above 0",
    "--gamma 1.5": r"gamma=1.5 is out of range: use a number from 0 to 1",
    "--beta-prox 1": r"beta_prox=1 is out of range",
    "--total-timesteps 100": r"total_timesteps=100 is below one iteration of 1024 steps",
    "--objective ppo": r"objective='ppo' is not valid: use one of policy-gradient, clip, kl",
    "--seed -1": r"seed=-1 must be at least 0",
    "--num-seeds 0": r"num_seeds=0 must be at least 1",
    "--lr 1": r"unknown flag --lr; what other libraries call so is set by --learning-rate here\.",
    "--normalize 1": r"set by --normalize-observations and --normalize-rewards and",
    "--lerning-rate 1": r"unknown flag --lerning-rate; did you mean --learning-rate",
    "--resume": r"--resume needs a run to go on with: --resume RUN",
    "--resume --run-dir nowhere": r"run_dir='nowhere' holds no run",
    "--run-dir /dev/null/run": r"run_dir='/dev/null/run' cannot be written",
    "--config nowhere.yaml": r"'nowhere.yaml' cannot be read",
    "--staleness -1": r"staleness=-1 must be at least 0",
    "--staleness 1000": r"staleness=1000 leaves none of the",
    "--algo a2c --staleness 2": r"staleness=2 needs an objective with an importance ratio",
    "--algo a2c --stale-objective decoupled": r"stale_objective='decoupled' needs .* and a2c has none",
    "--stale-objective fresh": r"stale_objective='fresh' is unknown: use one of recent, decoupled, behavior",
    "--algo ppg --policy-iterations-per-phase 7 --total-timesteps 500000": (
        r"policy_iterations_per_phase=7 does not .* total_timesteps=\d+"
    ),
    "--algo ppg --aux-epochs 0": r"aux_epochs=0 must be at least 1",
    "--algo ppg --num-steps 10000000 --num-envs 64 --total-timesteps 5120000000 --policy-iterations-per-phase 8": (
        r"policy_iterations_per_phase=8 needs [\d,.]+ [GT]B .* lower it"
    ),
    "--algo reinforce --num-steps 100": r"num_steps=100 is too short for complete episodes of CartPole-v1",
    "--objective policy-gradient": r"objective='policy-gradient' has no ratio to correct for the 16 gradient steps",
    "--objective kl --proximal-policy loglinear": r"proximal_policy='loglinear' has no analytic KL",
    "--algo ppg --complete-episodes": r"complete_episodes=True does not go with an auxiliary phase",
    "--noise-scale --num-envs 1": r"noise_scale=True compares environments .* use num_envs of at least 2",
    "--num-envs 1e9 --total-timesteps 1e12": r"num_envs=1000000000, num_steps=128, .* need at least [\d,.]+ [GT]B",
    "--hidden-sizes 10000000,10000000": r"hidden_sizes=\[10000000, 10000000\] need at least 1,200 TB for 1 seed",
    "--num-seeds 2147483647": r"num_seeds=2147483647 must be at most 100000",
    "--no-baseline": r"baseline=False needs returns without a value function",
}  # fmt: skip


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_sentence(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Exit code 2, the field and the fix, no traceback, and nothing written."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words.split()]) == 2
    err = capsys.readouterr().err
    complaint = err.strip().splitlines()[-1]
    assert re.search(BAD[words], complaint), complaint
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_rows_too_short_are_refused_before_the_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--algo", "reinforce", "--env", "MountainCar-v0", "--num-steps", "128"]) == 2
    assert capsys.readouterr() == (
        "",
        "isobatch: num_steps=128 is too short for complete episodes of MountainCar-v0, which last up to 200 steps: use "
        "at least that, better 4 times as much, or complete_episodes=False.\n",
    )


@pytest.mark.parametrize("command", ["diagnose", "train", "advise"])
def test_the_blog_post_is_a_study_and_no_preset(command: str, capsys: pytest.CaptureFixture) -> None:
    assert main([command, "--preset", "pendulum-post"]) == 2
    assert "use `isobatch study run pendulum-post`" in capsys.readouterr().err


YAML = {
    "lerning_rate: 1": r"unknown setting 'lerning_rate'; did you mean learning_rate",
    "- 1\n- 2": r"is not a mapping",
    "a: [1": r"is not valid YAML at line",
    "num_envs: many": r"num_envs='many' is not valid: use a whole number",
    "normalize_rewards: 3": r"normalize_rewards=3 is not valid: use true or false",
}


@pytest.mark.parametrize("text", YAML)
def test_bad_yaml_is_one_sentence(text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    assert main(["train", "--config", str(tmp_path / "settings.yaml"), "--run-dir", str(tmp_path / "run")]) == 2
    assert re.search(YAML[text], capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["trian"], "command 'trian' is unknown; did you mean train"),
        (["eval", "nowhere"], "run_dir='nowhere' holds no run"),
        (["plot", "nowhere"], "run_dir='nowhere' holds no run"),
        (["eval"], "the following arguments are required: RUN"),
    ],
)
def test_bad_commands(words: list[str], complaint: str, capsys: pytest.CaptureFixture) -> None:
    assert main(words) == 2
    assert complaint in capsys.readouterr().err


def test_bad_checkpoint_and_metric_are_named(run_dir: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["eval", str(run_dir), "--checkpoint", "777"]) == 2
    assert "checkpoint='777' is not there: use newest, best or one of" in capsys.readouterr().err
    assert main(["plot", str(run_dir), "--metric", "losses/nothing"]) == 2
    assert "metric='losses/nothing' is not in" in capsys.readouterr().err
    assert main(["plot", str(run_dir), "--out", "curve.txt"]) == 2
    assert "has no picture's ending" in capsys.readouterr().err
