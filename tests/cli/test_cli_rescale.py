"""The commands `rescale` and `advise` as a person uses them."""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from isobatch.cli.flags import Parser, add_config, config_from
from isobatch.cli.main import main
from isobatch.rescaling import rescale
from isobatch.settings.presets import preset

SAMPLE = Path(__file__).parents[1] / "data" / "zoo_sample.yml"
BASE = ["--algo", "ppo-ewma", "--num-envs", "64", "--num-steps", "32", "--num-minibatches", "8", "--update-epochs", "1"]
SETTINGS = dict(algo="ppo-ewma", num_envs=64, num_steps=32, num_minibatches=8, update_epochs=1)


def called(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    done = capsys.readouterr()
    assert done.err == ""
    return done.out


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
    assert list(answer) == ["factor", "before", "after", "changes", "warnings"]
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
    words = ["rescale", "--from-zoo", str(SAMPLE), "--algo", "ppo", "--env", "Schedules-v1", "--to-num-envs", "32"]
    out = called(capsys, *words)
    assert "batch_size is the minibatch" in out
    text = out.split("Schedules-v1: &base\n", 1)[1].split("\n\n", 1)[0]
    entry = yaml.safe_load(text)
    assert (entry["n_envs"], entry["batch_size"], entry["learning_rate"]) == (32, 512, "lin_0.002")
    assert "kept as they were, without a counterpart here: policy, clip_range (its schedule)" in out
    answer = json.loads(called(capsys, *words, "--json"))
    assert answer["foreign"]["settings"] == entry
    assert answer["after"]["num_envs"] == 32


def test_the_algorithm_of_a_zoo_file_is_in_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a2c.yml"
    path.write_text("CartPole-v1: {n_envs: 8, policy: MlpPolicy}\n")
    words = ["rescale", "--from-zoo", str(path), "--env", "CartPole-v1", "--to-num-envs", "32", "--json"]
    answer = json.loads(called(capsys, *words))
    assert answer["before"]["objective"] == "policy-gradient"
    assert answer["foreign"]["settings"]["learning_rate"] == pytest.approx(1.4e-3)


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
    rows = [f"{i},{i * 2048},0,0.3,0.5,0.01,1.0" for i in range(1, 21)]
    header = "iteration,env_steps,seed,losses/clipfrac,losses/explained_variance,losses/approx_kl,advantages/std"
    (tmp_path / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    out = called(capsys, "advise", str(tmp_path))
    assert "what the run's metrics say" in out
    assert "30.00% of the ratios are clipped" in out
    assert "learning_rate 0.0025 -> 0.001575" in " ".join(out.split())  # 1.0364/1.6449 of it
    answer = json.loads(called(capsys, "advise", str(tmp_path), "--json"))
    assert answer["monitors"][0]["suggestions"][0]["after"] == pytest.approx(0.0025 * 1.0364 / 1.6449, rel=1e-4)


PROBE = """
import sys
from isobatch.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as help_was_printed:
    code = help_was_printed.code
loaded = {"jax", "numpy", "matplotlib", "equinox"} & set(sys.modules)
sys.exit(f"loaded {sorted(loaded)}" if loaded else code)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["rescale", "--help"],
        ["rescale", *BASE, "--to-num-envs", "4"],
        ["rescale", "--from-zoo", str(SAMPLE), "--algo", "ppo", "--env", "Inherited-v0", "--factor", "2"],
        ["advise", *BASE],
    ],
)
def test_instant_and_without_jax(words: list[str]) -> None:
    """No JAX is loaded, and the whole command takes less than 0.3 s of processor time, the best of three."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.3, seconds
