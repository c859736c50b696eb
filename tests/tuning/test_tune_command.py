"""The command `tune`: what it prints, `--json`, and what it complains about."""

import json
from pathlib import Path

import pytest
import yaml

from isobatch.cli.main import main
from isobatch.settings.presets import preset, without_environment

pytestmark = pytest.mark.xdist_group("tuning")
TINY = "--env Probe-ActionObserved --num-envs 4 --num-steps 8 --hidden-sizes 8 --num-minibatches 2 --update-epochs 2"
SMALL = "--total-timesteps 1152 --search learning_rate=1e-4:1e-1 --num-seeds 2 --group 4 --lanes 4 --confirm-seeds 2"
WORDS = [*TINY.split(), *SMALL.split(), "--budget", "12100", "--sampler", "random"]


def test_the_command_searches_prints_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "search"
    assert main(["tune", *WORDS, "--out", str(out)]) == 0
    printed, progress = capsys.readouterr()
    for words in (
        "learning_rate  0.0001 to 0.1, log",
        "The best trials",
        "What it found",
        "flags\nisobatch train --algo",
    ):
        assert words in printed
    assert "group 1: 4 trials" in progress
    assert f"Report, to open in a browser: {out / 'report.html'}" in printed.replace("\n", "")
    assert main(["tune", *WORDS, "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == yaml.safe_load((out / "best.yaml").read_text())
    assert len(found["trials"]) == 4
    assert found["moved"] is None


def test_from_defaults_leaves_out_what_is_known_of_the_environment() -> None:
    bare = without_environment("ppo", "CartPole-v1", num_envs=16)
    assert (bare.env, bare.num_envs, bare.hypers.learning_rate) == ("CartPole-v1", 16, 2.5e-4)
    assert preset("ppo", "CartPole-v1").hypers.learning_rate == 2.5e-3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--search", "learning_rat"], "did you mean learning_rate"),
        (["--search", "gamma=0.9:0.99", "--gamma", "0.9"], "gamma is both given and searched"),
        (["--budget", "1000"], "budget=1,000 is below one trial (3 seeds x 499,712 steps)"),
        (["--budget", "1e300"], "must be at most 9223372036854775807"),
        (["--budget", "lots"], "budget='lots' is not valid: use a whole number."),
        (["--sampler", "tpa"], "sampler='tpa' is unknown; did you mean tpe"),
        (["--env", "CartPol-v1"], "did you mean CartPole-v1"),
        (["--algo", "pppo"], "algo='pppo' is unknown; did you mean ppo"),
        (["--serch", "gamma"], "unknown flag --serch; did you mean --search"),
        (["CartPole-v1"], "unknown argument CartPole-v1: use --env CartPole-v1."),
        (["--on", "rai"], "on='rai' is unknown; did you mean ray"),
        (["--from-defaults", "--preset", "atari-ppo"], "--from-defaults starts from the algorithm alone"),
        (["--seed", "-1"], "seed=-1 must be at least 0."),
        (["--seed", "2146483648"], "seed + 1,000,000 + confirm_seeds - 1=2147483653 must be at most 2147483647."),
        (["--group", "1e9"], "group=1000000000 must be at most 100000."),
        (["--at-num-envs", "0", "--for-num-envs", "64"], "num_envs=0 is not a target"),
        (["--at-num-envs", "4"], "at_num_envs=4 is where to search for another batch: add for_num_envs"),
        (["--at-num-envs", "4", "--for-num-envs", "4"], "for_num_envs=4 is where the search is made"),
        (["--for-num-envs", "8"], "for_num_envs=8 is where the search is made"),
        (["--for-num-envs", "64", "--search", "num_envs=8,16"], "num_envs is searched, and for_num_envs=64 moves"),
        (["--keep", "iteration-batch"], "keep='iteration-batch' is what stays where the number of environments"),
    ],
)
def test_wrong_words_are_one_sentence_and_code_2(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["tune", "--out", str(tmp_path / "search"), *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    assert not (tmp_path / "search").exists()
