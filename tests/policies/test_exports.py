"""An exported file alone is enough: the example rebuilds the policy from it and acts the same."""

import json
import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from trained import ITERATION, Runs

from isobatch.cli.main import main
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.distributions import Distribution
from isobatch.networks.moments import Moments
from isobatch.policies.agent import Agent, learned_of
from isobatch.rollouts.segment import preprocessor
from isobatch.training.agent import TrainedSeed
from isobatch.training.loading import load_run

pytestmark = pytest.mark.xdist_group("trained")

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "rebuild_policy.py"))
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("CartPole-v1", {}),
    "normalized": (
        "Pendulum-v1",
        dict(normalize_observations=True, normalize_rewards=True, hidden_sizes="8,5", activation="gelu"),
    ),
    "not clipped": ("MountainCarContinuous-v0", dict(normalize_observations=True, obs_clip="inf", activation="silu")),
    "images": ("Breakout-MinAtar", dict(channels="3,2", activation="relu", arrangement="shared")),
    "two axes": ("Catch-bsuite", dict(algo="ppg-ewma")),
    "residual": ("host_envs:Pixels-v0", dict(encoder="impala", channels="2,3", activation="relu")),
    "strides": (
        "host_envs:Pixels-v0",
        dict(encoder="nature", channels="2,3,2", activation="relu", env_kwargs="{shape: [36, 40, 3]}"),
    ),
    "parts": ("host_envs:Parts-v0", {}),
    "counted from 5": ("host_envs:Clock-v0", {}),
    "several choices": ("host_envs:Clock-v0", dict(env_kwargs="{actions: multi-discrete}")),
    "switches": ("host_envs:Clock-v0", dict(env_kwargs="{actions: multi-binary}")),
    "rescaled": ("host_envs:Clock-v0", dict(env_kwargs="{actions: box}", rescale_actions=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_rebuilt_from_the_file_alone(case: str, runs: Runs, tmp_path: Path, capsys: Any) -> None:
    """Outputs, values and actions to 1e-5, in NumPy and, where it is installed, in PyTorch."""
    env, settings = CASES[case]
    run_dir, file = runs(env, **settings), tmp_path / "policy.npz"
    assert main(["export", str(run_dir), "--out", str(file), "--policy-seed", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    tensors, description = EXAMPLE["read"](str(file))
    assert description == printed["description"]
    assert (description["policy_seed"], description["iteration"], description["env"]) == (1, ITERATION, env)

    learned = learned_of(load_run(run_dir), 1)
    raw = observations(description["observation"])
    obs = raw.astype(np.float32)
    distribution, value = computed(learned, raw)
    expected = distribution.mean if "log_std" in description["policy"]["distribution"] else distribution.logits
    layers = description["policy"]["layers"]
    output = EXAMPLE["forward"](layers, tensors, obs)
    assert np.ptp(output) > 0.01
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    values = EXAMPLE["forward"](description["value"]["layers"], tensors, obs)
    np.testing.assert_allclose(values[:, 0], value, rtol=1e-5, atol=1e-5)
    if case != "parts":  # whose agent takes dictionaries
        actions, _ = Agent(learned).predict(raw, deterministic=True)
        np.testing.assert_allclose(EXAMPLE["act"](description, tensors, raw), actions, rtol=1e-5, atol=1e-5)
    if "log_std" in description["policy"]["distribution"]:
        log_std = tensors[description["policy"]["distribution"]["log_std"]]
        np.testing.assert_allclose(np.broadcast_to(log_std, output.shape), distribution.log_std)
    try:
        import torch
    except ImportError:
        return
    with torch.no_grad():
        theirs = EXAMPLE["torch_module"](layers, tensors)(torch.tensor(obs)).numpy()
    np.testing.assert_allclose(theirs, expected, rtol=1e-5, atol=1e-5)


def computed(learned: TrainedSeed, raw: np.ndarray) -> tuple[Distribution, jax.Array]:
    """The policy and the value of what was learned, for observations as the environment gives them."""

    def outputs(networks: ActorCritic, moments: Moments | None, raw: jax.Array) -> tuple[Distribution, jax.Array]:
        seen = preprocessor(moments, learned.config.hypers.obs_clip)(raw)
        return networks.policy(seen), networks.value(seen)

    return jax.jit(outputs)(learned.networks, learned.obs_moments, raw)


def observations(description: dict[str, Any]) -> np.ndarray:
    rng, shape = np.random.default_rng(0), (6, *description["shape"])
    match description["dtype"]:
        case "bool":
            return rng.random(shape) > 0.8
        case "uint8":
            return rng.integers(0, 256, shape, np.uint8)
    return rng.normal(0, 2, shape).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_onnx_computes_the_same(case: str, runs: Runs, tmp_path: Path) -> None:
    """Run by ONNX's own runtime, on observations as the environment gives them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    env, settings = CASES[case]
    run_dir, file = runs(env, **settings), tmp_path / "policy.onnx"
    assert main(["export", str(run_dir), "--out", str(file), "--policy-seed", "1"]) == 0
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    description = json.loads(session.get_modelmeta().custom_metadata_map["description"])
    raw = observations(description["observation"])
    policy, value = session.run(["policy", "value"], {"observation": raw})
    learned = learned_of(load_run(run_dir), 1)
    distribution, expected_value = computed(learned, raw)
    expected = distribution.mean if "log_std" in description["policy"]["distribution"] else distribution.logits
    np.testing.assert_allclose(policy, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["normalized", "residual"])
def test_a_file_of_pytorch_loads_into_its_layers(case: str, runs: Runs, tmp_path: Path) -> None:
    """Without pickled objects; a weight fits a layer of PyTorch, and back in our layout all is as in the npz."""
    torch = pytest.importorskip("torch")
    run_dir = str(runs(*CASES[case][:1], **CASES[case][1]))
    for name in ("policy.npz", "policy.pt"):
        assert main(["export", run_dir, "--out", str(tmp_path / name)]) == 0
    state = torch.load(tmp_path / "policy.pt", weights_only=True)["state_dict"]
    out, into = state["policy.head.weight"].shape
    head = torch.nn.Linear(into, out)
    head.load_state_dict({part: state[f"policy.head.{part}"] for part in ("weight", "bias")})
    (tensors, description), (others, other) = (EXAMPLE["read"](str(tmp_path / f"policy.{e}")) for e in ("npz", "pt"))
    assert description == other
    assert tensors.keys() == others.keys()
    assert all(np.array_equal(tensor, others[name]) for name, tensor in tensors.items())
    features = np.random.default_rng(0).normal(size=(3, into)).astype(np.float32)
    expected = features @ tensors["policy.head.weight"] + tensors["policy.head.bias"]
    np.testing.assert_allclose(head(torch.tensor(features)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_safetensors_hold_the_same(runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    run_dir = str(runs(*CASES["normalized"][:1], **CASES["normalized"][1]))
    both = []
    for name in ("policy.npz", "policy.safetensors"):
        assert main(["export", run_dir, "--out", str(tmp_path / name)]) == 0
        both.append(EXAMPLE["read"](str(tmp_path / name)))
    (tensors, description), (others, other) = both
    assert description == other
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert np.array_equal(tensor, others[name])
        assert tensor.dtype == others[name].dtype == np.float32
    assert main(["export", run_dir, "--out", str(tmp_path / "policy.bin"), "--format", "safetensors"]) == 0
    assert (tmp_path / "policy.bin").read_bytes() == (tmp_path / "policy.safetensors").read_bytes()


def test_every_tensor_is_used_and_every_kind_explained(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "policy.npz"
    assert main(["export", str(runs("Pendulum-v1", **CASES["normalized"][1])), "--out", str(file)]) == 0
    tensors, description = EXAMPLE["read"](str(file))
    layers = description["policy"]["layers"] + description["value"]["layers"]
    named = {layer[role] for layer in layers for role in ("weight", "bias", "mean", "std") if role in layer}
    assert named | {"policy.log_std"} == tensors.keys()
    assert {layer["kind"] for layer in layers} == description["kinds"].keys() == {"normalize", "dense"}
    assert {layer.get("activation") for layer in layers} - {None} == description["activations"].keys()
    assert description["value"]["rewards_divided_by"] > 0
    assert description["action"] == {"kind": "box", "shape": [1], "low": [-2.0], "high": [2.0], "rescaled": False}


def test_the_example_says_what_it_found(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "policy.npz"
    assert main(["export", str(runs("CartPole-v1")), "--out", str(file)]) == 0
    assert "policy.torso.dense0" in capsys.readouterr().out
    EXAMPLE["main"](str(file))
    assert "ppo on CartPole-v1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--out", "policy.h5"], "out='policy.h5' has no ending that names a format: use npz, safetensors, onnx, pt."),
        (["--out", "policy.npz", "--format", "tflite"], "format='tflite' is unknown: use npz, safetensors, onnx, pt."),
        (["--out", "/dev/null/policy.npz"], "--out '/dev/null/policy.npz' cannot be written"),
        (["--out", "policy.npz", "--policy-seed", "x"], "policy_seed='x' is not valid: use a whole number"),
        (["--out", "policy.npz", "--policy-seed", "9"], "policy_seed=9 is not in this run: use 0 or 1."),
        (["--out", "policy.npz", "--checkpoint", "7"], "checkpoint='7' is not there"),
        ([], "the following arguments are required: --out"),
    ],
)
def test_bad_requests(words: list[str], complaint: str, runs: Runs, capsys: pytest.CaptureFixture) -> None:
    assert main(["export", str(runs("CartPole-v1")), *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ending", "module", "install"),
    [
        ("safetensors", "safetensors.numpy", "pip install 'isobatch[export]'"),
        ("onnx", "onnx", "pip install 'isobatch[export]'"),
        ("pt", "torch", "pip install torch"),
    ],
)
def test_without_the_package(
    ending: str, module: str, install: str, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    assert main(["export", str(runs("CartPole-v1")), "--out", f"policy.{ending}"]) == 2
    assert f"{install}, or use npz" in capsys.readouterr().err
