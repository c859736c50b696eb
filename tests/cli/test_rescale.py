"""The command `rescale` as a person uses it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from command_words import BASE, SAMPLE, SETTINGS, called

from isobatch.cli.flags import Parser, add_config, config_from
from isobatch.cli.main import main
from isobatch.cli.train import moved
from isobatch.rescaling import rescale
from isobatch.rescaling.alternatives import HELD
from isobatch.settings.presets import preset


def block(text: str, title: str) -> str:
    """The lines below a title, up to the next empty one."""
    return text.split(f"\n{title}\n", 1)[1].split("\n\n", 1)[0]


def test_rescale_prints_table_settings_and_flags_that_agree(capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, "rescale", *BASE, "--to-num-envs", "4")
    after = rescale(preset(**SETTINGS), num_envs=4).after
    assert "c = 16" in out
    assert "0.992248" in out  # beta_prox to six digits
    assert "held  num_steps 32, num_minibatches 8, update_epochs 1, proximal age 2,048 steps" in out
    assert preset(**yaml.safe_load(block(out, "settings"))) == after
    parser = Parser(prog="isobatch train")
    add_config(parser)
    words = block(out, "flags").split()
    assert words[:2] == ["isobatch", "train"]
    assert config_from(parser.parse_args(words[2:])) == after


def test_flags_that_hold_a_mapping_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    mapping = {"gravity": 3.7, "name": "a b"}
    words = ["rescale", *BASE, "--env-kwargs", json.dumps(mapping), "--max-grad-norm", "inf", "--to-num-envs", "4"]
    typed = shlex.split(block(called(capsys, *words), "flags"))
    assert json.loads(typed[typed.index("--env-kwargs") + 1]) == mapping
    assert typed[typed.index("--max-grad-norm") + 1] == "inf"


def test_rescale_json_is_one_object_of_the_promised_shape(capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, "rescale", *BASE, "--factor", "16", "--use", "betas", "--json")
    answer = json.loads(out)
    parts = ["factor", "keep", "evidence", "before", "after", "changes", "rules", "warnings", "alternatives"]
    assert list(answer) == parts
    assert {change["rule"] for change in answer["changes"]} == {*answer["rules"], "target"}
    assert answer["rules"]["betas"]["equation"] == "beta^(1/c)"
    assert all("arXiv" in rule["source"] for rule in answer["rules"].values())
    assert {other.pop("keep") for other in answer.pop("alternatives")} == set(HELD)
    assert answer == json.loads(json.dumps(rescale(preset(**SETTINGS), factor=16, use=["betas"]).to_json()))


def test_rescale_reads_yaml_and_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, result = tmp_path / "base.yaml", tmp_path / "deep" / "small.yaml"
    source.write_text(yaml.safe_dump(SETTINGS))
    called(capsys, "rescale", "--config", str(source), "--to-optimization-batch", "64", "--out", str(result))
    assert preset(**yaml.safe_load(result.read_text())) == rescale(preset(**SETTINGS), num_envs=16).after


def test_rules_can_be_named_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rescale", *BASE, "--factor", "4", "--use", "linear-adam", "--without", "proximal-age", "--json"]
    after = json.loads(called(capsys, *words))["after"]
    assert after["learning_rate"] == pytest.approx(2.5e-3 / 4)
    assert after["beta_prox"] == pytest.approx(8 / 9)


def test_devices_multiply_the_environments(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rescale", *BASE, "--devices", "2", "--to-devices", "8", "--critical-batch", "100000", "--json"]
    assert json.loads(called(capsys, *words))["after"]["num_envs"] == 256


def test_a_zoo_file_gets_a_zoo_shaped_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rescale", "--from-zoo", str(SAMPLE), "--algo", "ppo", "--env", "Schedules-v1", "--factor", "0.25"]
    out = called(capsys, *words)
    assert "batch_size is the minibatch" in out
    text = out.split("Schedules-v1: &base\n", 1)[1].split("\n\n", 1)[0]
    entry = yaml.safe_load(text)
    assert (entry["n_envs"], entry["batch_size"], entry["learning_rate"]) == (32, 512, "lin_0.002")
    assert entry["clip_range"] == "lin_0.2"
    assert "without a counterpart" not in out
    answer = json.loads(called(capsys, *words, "--json"))
    assert answer["library_settings"]["settings"] == entry
    assert answer["after"]["num_envs"] == 32


def test_the_algorithm_of_a_zoo_file_is_in_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a2c.yml"
    path.write_text("CartPole-v1: {n_envs: 8, policy: MlpPolicy}\n")
    words = ["rescale", "--from-zoo", str(path), "--env", "CartPole-v1", "--to-num-envs", "32", "--json"]
    answer = json.loads(called(capsys, *words))
    assert answer["before"]["objective"] == "policy-gradient"
    assert answer["library_settings"]["settings"]["learning_rate"] == pytest.approx(1.4e-3)


def test_from_one_library_to_another(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from-cleanrl", "ppo.py --num-envs 8 --seed 3 --no-norm-adv", "--factor", "2", "--as", "zoo"]
    out = called(capsys, "rescale", *words)
    entry = yaml.safe_load(out.split("CartPole-v1:\n", 1)[1].split("\n\n", 1)[0])
    assert (entry["n_envs"], entry["n_steps"], entry["batch_size"]) == (4, 128, 128)
    assert entry["learning_rate"] == f"lin_{2.5e-4 / 2**0.5!r}"
    assert entry["vf_coef"] == 0.25  # of the whole squared error, 0.5 of half of it there
    assert "left behind, without a counterpart here: seed" in out


def test_what_a_library_cannot_say_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    out = called(capsys, "rescale", *BASE, "--factor", "4", "--as", "cleanrl")
    missing = " ".join(out.split("has no setting for it:")[1].split())
    assert "proximal_policy=ewma" in missing
    assert "beta_prox=0.969697" in missing
    assert "advantage_norm=ewma" in missing


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["rescale"], ["no target was given"]),
        (["rescale", "--to-num-envs", "0"], ["num_envs=0", "positive"]),
        (["rescale", "--to-num-envs", "-8"], ["num_envs=-8", "positive"]),
        (["rescale", "--to-num-envs", "many"], ["to_num_envs='many'", "whole number"]),
        (["rescale", "--factor", "2", "--to-num-envs", "4"], ["cannot go together"]),
        (["rescale", "--factor", "3"], ["factor=4", "factor=2.66667"]),
        (["rescale", "--factor", "2", "--as", "sb4"], ["library 'sb4'", "zoo"]),
        (["rescale", "--factor", "2", "--use", "magic"], ["'magic'"]),
        (["rescale", "--factor", "2", "--from-zoo", "nowhere.yml"], ["nowhere.yml", "cannot be read"]),
        (["rescale", "--factor", "2", "--from-rllib", __file__], ["not valid YAML"]),
        (["rescale", "--factor", "2", "--from-zoo", "a", "--from-skrl", "b"], ["cannot go together"]),
        (["rescale", "--factor", "2", "--from-zoo", "a", "--config", "b"], ["cannot go together"]),
        (["rescale", "--factor", "2", "--from-zoo", "a", "--stale-objective", "recent"], ["cannot go together"]),
        (["rescale", "--factor", "2", "--devices", "2"], ["--devices 2", "--to-devices"]),
        (["rescale", "--factor", "2", "--from-zoo", str(SAMPLE)], ["--algo ppo"]),
        (["rescale", "--factor", "2", "--out", "/dev/null/x"], ["--out", "cannot be written"]),
        (["advise", "nowhere"], ["nowhere", "holds no run"]),
        (["advise", "nowhere", "--gamma", "0.9"], ["not both"]),
        (["advise", "--critical-batch", "0"], ["critical_batch=0", "above 0"]),
        (["advise", "--plot", "geometry.bmp"], ["picture's ending"]),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_two(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert all(part in done.err for part in parts), done.err


def test_a_yaml_that_is_not_a_mapping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ppo.yml"
    path.write_text("- n_envs\n- 8\n")
    assert main(["rescale", "--from-zoo", str(path), "--factor", "2"]) == 2
    assert "not a mapping but a list" in capsys.readouterr().err


def test_a_run_is_rescaled_from_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from isobatch.settings.presets import preset
    from isobatch.training.run_directory import RunDirectory

    run = tmp_path / "a [run]"
    RunDirectory.make(run).describe(preset("ppo", "CartPole-v1", num_envs=8), {"seed": 0, "num_seeds": 1})
    assert main(["rescale", str(run), "--to-num-envs", "32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["before"]["num_envs"], found["after"]["num_envs"]) == (8, 32)
    assert main(["rescale", str(run), "--config", "other.yaml", "--to-num-envs", "32"]) == 2
    assert "--config and a run cannot go together" in capsys.readouterr().err
    assert main(["rescale", str(tmp_path / "nowhere"), "--to-num-envs", "32"]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_settings_that_are_words_move_to_other_devices_too(capsys: pytest.CaptureFixture[str]) -> None:
    """`train --from-devices 2` on one: half the environments, and advantages normalized over two iterations."""
    after = moved(preset("ppo-ewma", num_envs=8), 2, 1)
    assert (after.num_envs, after.advantage_norm) == (4, "ewma")
    assert "advantage_norm: iteration -> ewma (advantage-span)" in capsys.readouterr().err


def test_more_devices_are_told_per_device_and_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescale", "--env", "CartPole-v1", "--to-devices", "4"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "every device keeps 8 environments, so there are 32 in all" in out
    assert "(2 a device) the batch and all else stays: --num-envs 8 --devices 4." in out


def test_the_environment_is_asked_how_many_samples_whole_episodes_use(capsys: pytest.CaptureFixture[str]) -> None:
    """CartPole ends at 500: of 2 x 2,000 steps 3,002 are used, and of 4 x 1,000 2,004; of 16 x 250 perhaps none."""
    out = " ".join(called(capsys, "rescale", "--algo", "reinforce", "--to-num-envs", "16").split())
    assert "samples used, at least 3,002 24,016 target" in out
    assert "4,000 0 (0%) !" in out
    assert "! far less of what is collected than before" in out
    words = ["rescale", "--algo", "reinforce", "--to-num-envs", "4", "--keep", "iteration-batch"]
    assert "samples used, at least 3,002 2,004 target" in " ".join(called(capsys, *words).split())
    answer = json.loads(called(capsys, *words, "--json"))
    assert {other["keep"]: other.get("samples_used") for other in answer["alternatives"]} == {
        "iteration-batch": 2004,
        "minibatch-count": 6004,
        "minibatch-size": None,
    }
    assert "samples used" not in called(capsys, "rescale", *BASE, "--to-num-envs", "4")
