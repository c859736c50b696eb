"""A policy of Stable-Baselines3 is measured as the same policy of this package is."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny

from isobatch.cli.main import main
from isobatch.envs.spaces import Box, Discrete
from isobatch.errors import UsageError
from isobatch.laboratory.chains import Chains
from isobatch.laboratory.landscape import measure, window_products
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.sections.lags import lag_sums
from isobatch.networks.initialization import make_networks
from isobatch.rollouts.segment import Segment

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

import torch
from sb3_models import small
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.laboratory.sb3_policy import TorchPolicy, load_model
from isobatch.laboratory.sb3_source import Model, diagnose_sb3
from isobatch.torch import PPOEWMA

SPACES = {"discrete": Discrete(3), "continuous": Box((2,), (-9.0, -9.0), (9.0, 9.0))}
NEAR = dict(rtol=2e-4, atol=1e-6)
STEPS, CHAINS = 8, 6


def pair(space: str) -> tuple[object, TorchPolicy]:
    """The same policy in JAX and in PyTorch."""
    ours = make_networks(tiny(hidden_sizes="4"), (3,), SPACES[space], seed=0).policy
    ours = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), ours)
    model = small(PPO, space)
    state = model.policy.state_dict()
    for name, layer in (("mlp_extractor.policy_net.0", ours.torso.denses[0]), ("action_net", ours.head)):
        state[f"{name}.weight"], state[f"{name}.bias"] = (
            torch.tensor(np.array(layer.weight).T),
            torch.tensor(np.array(layer.bias)),
        )
    if ours.log_std is not None:
        state["log_std"] = torch.tensor(np.array(ours.log_std))
    model.policy.load_state_dict(state)
    return ours, TorchPolicy(model)


def chains(ours: object) -> Chains:
    """Made-up data of the policy."""
    rng, shape = np.random.default_rng(0), (STEPS, CHAINS)
    obs = jnp.asarray(rng.normal(size=(*shape, 3)), jnp.float32)
    behavior = ours(obs)
    numbers = [jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(4)]
    done = jnp.asarray(rng.uniform(size=shape) < 0.2)
    action = behavior.sample(jax.random.key(1))
    segment = Segment(
        obs=obs, action=action, behavior=behavior, log_prob=behavior.log_prob(action), reward=numbers[0],
        terminated=done, truncated=jnp.zeros_like(done), value=numbers[1], next_value=numbers[2], time_limit=8,
    )  # fmt: skip
    return Chains(segment, numbers[3], groups=1)


@pytest.mark.parametrize("space", SPACES)
def test_products_of_gradients_are_those_of_the_same_policy_here(space: str) -> None:
    ours, theirs = pair(space)
    data, config = chains(ours), tiny()
    size = sum(leaf.size for leaf in jax.tree.leaves(ours))
    assert theirs.size == size
    obs, action = data.segment.obs, data.segment.action
    for steps in (1, 4):
        expected = window_products(ours, obs, action, data.segment.reward, steps)
        found = window_products(theirs, obs, action, data.segment.reward, steps)
        for a, b in zip((found[0], found[2]), (expected[0], expected[2]), strict=True):
            np.testing.assert_allclose(a, b, **NEAR)
    variants = [(1, 0.5), (4, 0.95), (8, 1.0)]
    expected, found = (measure(config, policy, data, variants) for policy in (ours, theirs))
    for variant in variants:
        for part in ("windows", "sample", "mean", "bias"):
            a, b = (getattr(products[0][variant], part) for products in (found, expected))
            np.testing.assert_allclose(a, b, **NEAR, err_msg=part)
    sums = [lag_sums(config, policy, data, 0.9) for policy in (theirs, ours)]
    for part in ("products", "counts", "everything", "equal_times"):
        a, b = (getattr(s, part) for s in sums)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=part)


def test_inner_products_by_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, policy = pair("discrete")
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(7, 3)).astype(np.float32), rng.integers(3, size=7), rng.normal(size=7)
    whole, along = policy.gram(samples), policy.along(samples, np.ones(policy.size))
    monkeypatch.setattr("isobatch.laboratory.external_policy.STORED_BYTES", 3 * 4 * policy.size)
    assert len(policy._blocks(7)) == 3
    np.testing.assert_allclose(policy.gram(samples), whole, rtol=1e-5)
    np.testing.assert_allclose(policy.along(samples, np.ones(policy.size)), along, rtol=1e-5)
    rows = policy.mean_gradients(*(np.asarray(x)[:, None] for x in samples))
    np.testing.assert_allclose(rows @ rows.T, whole, rtol=1e-5)
    np.testing.assert_allclose(rows.mean(axis=0), policy.gradient(samples), rtol=1e-4, atol=1e-7)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    settings = dict(n_steps=16, policy_kwargs=dict(net_arch=[8]), device="cpu", seed=0)
    models = {
        "ppo": PPO("MlpPolicy", make_vec_env("CartPole-v1", 2), batch_size=16, n_epochs=2, **settings),
        "ppo-ewma": PPOEWMA("MlpPolicy", make_vec_env("CartPole-v1", 2), batch_size=16, n_epochs=2, **settings),
        "a2c": A2C("MlpPolicy", make_vec_env("Pendulum-v1", 2), **settings),
        "dqn": DQN("MlpPolicy", "CartPole-v1", buffer_size=8),
    }
    paths = {}
    for name, model in models.items():
        paths[name] = folder / f"{name}.zip"
        model.learn(64 if name != "dqn" else 0).save(paths[name])
    return paths


@pytest.mark.parametrize("name", ["ppo", "ppo-ewma", "a2c"])
def test_the_right_algorithm_loads(saved: dict[str, Path], name: str) -> None:
    assert type(load_model(saved[name])) is {"ppo": PPO, "ppo-ewma": PPOEWMA, "a2c": A2C}[name]


def test_a_diagnosis_from_the_command_line(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["diagnose", "--sb3", str(saved["ppo-ewma"]), "--env", "CartPole-v1", "--out", str(tmp_path), "--quiet"]
    assert main([*words, "--chains", "16", "--batches", "4", "--env-kwargs", "{max_episode_steps: 16}"]) == 0
    said = capsys.readouterr()
    assert "ppo-ewma of Stable-Baselines3 on CartPole-v1 after 64 steps" in said.out
    assert "2x16" in said.out
    for part in ("Batches of 32 samples", "Correlation of gradients within a trajectory", "critical batch size"):
        assert part in said.out
    assert "trust-region: left out. It needs the optimizer of a run of isobatch" in said.err
    assert (tmp_path / "000000002-geometries.png").exists()


def test_continuous_actions_and_normalized_observations(saved: dict[str, Path], tmp_path: Path) -> None:
    normalizer = VecNormalize(make_vec_env("Pendulum-v1", 2))
    normalizer.obs_rms.mean, normalizer.ret_rms.var = np.full(3, 0.5), np.array(4.0)
    normalizer.save(str(tmp_path / "vecnormalize.pkl"))
    found = diagnose_sb3(
        saved["a2c"],
        "Pendulum-v1",
        LabOptions(sections="cosines,minibatches", batches=4, chains=4),
        tmp_path / "vecnormalize.pkl",
        tmp_path,
    )
    assert list(found.sections) == ["cosines", "minibatches"]
    assert found.env_steps == 64
    model = Model(load_model(saved["a2c"]), normalizer)
    np.testing.assert_allclose(model.seen(np.ones((2, 3), np.float32)), 0.5, rtol=1e-4)
    np.testing.assert_allclose(model.rewards(np.array([1.0])), 0.5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "env", "sentence"),
    [
        ("ppo", "Pendulum-v1", "shows observations of shape"),
        ("dqn", "CartPole-v1", "is not of an on-policy algorithm"),
        ("nothing", "CartPole-v1", "is not a model that Stable-Baselines3 saved"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    saved: dict[str, Path], tmp_path: Path, name: str, env: str, sentence: str
) -> None:
    (tmp_path / "nothing.zip").write_text("nothing")
    with pytest.raises(UsageError, match=sentence):
        diagnose_sb3(saved.get(name, tmp_path / "nothing.zip"), env, out=tmp_path)


def test_images_are_seen_with_their_channels_first() -> None:
    from stable_baselines3.common.envs import FakeImageEnv

    env = DummyVecEnv([lambda: FakeImageEnv(screen_height=36, screen_width=40, n_channels=3)])
    model = Model(PPO("CnnPolicy", env, n_steps=4, batch_size=4, device="cpu"), None)
    image = np.random.default_rng(0).integers(255, size=(2, 36, 40, 3), dtype=np.uint8)
    assert model.seen(image).shape == (2, 3, 36, 40)
    policy: ExternalPolicy = TorchPolicy(model.model)
    samples = model.seen(image), np.array([0, 1]), np.array([1.0, -1.0])
    rows = policy.mean_gradients(*(x[:, None] for x in samples))
    assert rows.shape == (2, policy.size)
    np.testing.assert_allclose(rows.mean(axis=0), policy.gradient(samples), rtol=1e-3, atol=1e-6)
