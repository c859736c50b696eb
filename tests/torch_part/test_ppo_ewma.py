"""PPOEWMA beside Stable-Baselines3's own PPO: the same where it must be, and everything else of SB3 still works."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

import gymnasium as gym
import torch
from sb3_models import SHARED, small, weights
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv

from isobatch.errors import UsageError
from isobatch.torch import PPOEWMA

AS_PPO = dict(proximal_policy="behavior", advantage_norm="minibatch")

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared layers": dict(policy_kwargs=SHARED),
    "value clipping": dict(clip_range_vf=0.1),
    "early stopping": dict(target_kl=1e-4, n_epochs=4),
    "schedules": dict(learning_rate=lambda p: 1e-2 * p, clip_range=lambda p: 0.3 * p),
    "raw advantages": dict(normalize_advantage=False),
    "minibatches with a rest": dict(batch_size=10),
    "a tight clip range": dict(clip_range=0.01, learning_rate=1e-2, n_epochs=5),
}


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize("space", ["discrete", "continuous"])
@pytest.mark.parametrize("case", CASES)
def test_with_the_behavior_policy_it_is_ppo_to_the_bit(case: str, space: str) -> None:
    theirs = small(PPO, space, **CASES[case]).learn(6 * 4 * 4)
    ours = small(PPOEWMA, space, **AS_PPO, **CASES[case]).learn(6 * 4 * 4)
    start, end, expected = weights(small(PPO, space, **CASES[case])), weights(ours), weights(theirs)
    for name in expected:
        np.testing.assert_array_equal(end[name], expected[name], err_msg=name)
    assert any((start[name] != end[name]).any() for name in end)


@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_where_the_average_is_the_behavior_policy_it_is_ppo(space: str) -> None:
    """beta_prox 0 averages the newest weights only, and with one gradient step per rollout those collected it."""
    sizes = dict(batch_size=24, n_epochs=1, learning_rate=1e-2)
    theirs = weights(small(PPO, space, **sizes).learn(96))
    ours = weights(small(PPOEWMA, space, beta_prox=0.0, advantage_norm="minibatch", **sizes).learn(96))
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-7, err_msg=name)
    default = small(PPOEWMA, space, **sizes)  # an age of no gradient steps is PPO's here, so it is what is chosen
    assert default.proximal.beta == 0


def test_the_average_is_another_policy_otherwise() -> None:
    rates = dict(learning_rate=1e-2, clip_range=0.05, advantage_norm="minibatch")
    theirs, ours = (weights(small(PPOEWMA, **(rates | more)).learn(96)) for more in (AS_PPO, dict(beta_prox=0.9)))
    assert any((theirs[name] != ours[name]).any() for name in ours)


def test_save_and_load_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    model = small(PPOEWMA, beta_prox=0.7, advantage_norm="ewma", adv_norm_decay=0.5, learning_rate=1e-2).learn(72)
    model.save(tmp_path / "model")
    loaded = PPOEWMA.load(tmp_path / "model", device="cpu")
    assert (loaded.beta_prox, loaded.advantage_norm, loaded.adv_norm_decay) == (0.7, "ewma", 0.5)
    expected, found = model.get_parameters(), loaded.get_parameters()
    assert expected.keys() == {"policy", "policy.optimizer", "proximal", "advantage_moments"}
    for part in ("policy", "proximal", "advantage_moments"):
        for name, value in expected[part].items():
            assert torch.equal(found[part][name], value), (part, name)
    assert found["proximal"]["age"] > 0
    assert loaded.proximal.beta == 0.7
    assert loaded.predict(np.zeros(3), deterministic=True)[0] == model.predict(np.zeros(3), deterministic=True)[0]


def test_a_saved_model_has_nothing_pickled_beyond_ppo(tmp_path: Path) -> None:
    pickled = {}
    for kind in (PPO, PPOEWMA):
        small(kind).learn(48).save(tmp_path / kind.__name__)
        with zipfile.ZipFile(tmp_path / f"{kind.__name__}.zip") as archive:
            data = json.loads(archive.read("data"))
            for name in archive.namelist():
                if name.endswith(".pth") and "variables" not in name:
                    torch.load(archive.open(name), weights_only=True)
        pickled[kind] = {name for name, value in data.items() if isinstance(value, dict) and ":serialized:" in value}
    assert pickled[PPOEWMA] == pickled[PPO]


def test_a_model_of_ppo_is_taken_over(tmp_path: Path) -> None:
    theirs = small(PPO).learn(48)
    theirs.save(tmp_path / "ppo")
    ours = PPOEWMA.load(tmp_path / "ppo", env=theirs.env, device="cpu")
    for part in (ours.policy, ours.proximal.module):
        for name, value in theirs.policy.state_dict().items():
            assert torch.equal(part.state_dict()[name], value)
    ours.learn(48)


class Seen(BaseCallback):
    """First advantages of each rollout, as it was collected."""

    def _on_training_start(self) -> None:
        self.collected: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.collected.append(float(self.model.rollout_buffer.advantages.ravel()[0]))


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_rollouts_are_held_back(staleness: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    update = "isobatch.torch.formulas.AdvantageMoments.update"
    monkeypatch.setattr(update, lambda self, advantages: used.append(float(advantages.ravel()[0])))
    model, seen = small(PPOEWMA, staleness=staleness, advantage_norm="none"), Seen()
    start = weights(model)
    model.learn(24 * staleness, callback=seen) if staleness else None
    assert all((weights(model)[name] == start[name]).all() for name in start)
    model = small(PPOEWMA, staleness=staleness, advantage_norm="none").learn(24 * 6, callback=seen)
    assert used == seen.collected[: 6 - staleness]
    assert len(set(used)) == 6 - staleness


@pytest.mark.parametrize("proximal", ["recent", "ewma"])
@pytest.mark.parametrize("objective", ["clip", "kl"])
def test_stale_data_is_learned_from(objective: str, proximal: str) -> None:
    model = small(PPOEWMA, staleness=2, objective=objective, proximal_policy=proximal).learn(24 * 5)
    assert all(np.isfinite(value).all() for value in weights(model).values())
    assert model._n_updates == 3 * model.n_epochs


@pytest.mark.parametrize(
    ("policy", "env"),
    [
        ("CnnPolicy", FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)),
        ("MultiInputPolicy", SimpleMultiObsEnv()),
        ("MlpPolicy", "Pendulum-v1"),
    ],
)
def test_policies_of_sb3_are_averaged(policy: str, env: gym.Env | str) -> None:
    model = PPOEWMA(policy, env, n_steps=32, batch_size=16, n_epochs=1, objective="kl", device="cpu").learn(64)
    new, average = model.policy.state_dict(), model.proximal.module.state_dict()
    assert any(not torch.equal(new[name], average[name]) for name in new)
    assert model.proximal.age > 0


def test_state_dependent_exploration() -> None:
    model = PPOEWMA("MlpPolicy", "Pendulum-v1", n_steps=32, batch_size=16, n_epochs=1, use_sde=True, device="cpu")
    model.learn(64)
    assert model.proximal.age > 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(beta_prox=1.0), "beta_prox=1.0 is not a decay"),
        (dict(objective="clipped"), "objective='clipped' is unknown: use clip, kl."),
        (dict(advantage_norm="batch"), "advantage_norm='batch' is unknown: use none, minibatch, iteration, ewma."),
        (dict(importance_cap=0.5), "importance_cap=0.5, staleness=0, kl_coef=1.0: use at least 1, 0 and 0."),
        (dict(staleness=1, objective="kl", proximal_policy="behavior"), "use kl_form='squared'"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("(", r"\(")):
        small(PPOEWMA, **settings)
