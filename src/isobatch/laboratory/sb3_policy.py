"""A policy of Stable-Baselines3: its model read from a file, and gradients of its log-probabilities by `torch.func`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from torch.func import functional_call, grad, vmap

from isobatch.errors import UsageError, first_line
from isobatch.laboratory.external_policy import ExternalPolicy
from isobatch.torch.ppo_ewma import PPOEWMA
from isobatch.torch.validation import unchecked_distributions

CHUNK_BYTES = 64e6  # of the gradients that are computed at the same time
CHUNK_SAMPLES = 8192


def load_model(path: Path) -> OnPolicyAlgorithm:
    """A model that PPO, PPOEWMA or A2C has saved. SB3 unpickles parts of it: that can run any code."""
    try:
        with zipfile.ZipFile(path) as archive:
            saved = json.loads(archive.read("data"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"sb3={str(path)!r} is not a model that Stable-Baselines3 saved ({first_line(error)}): give its .zip file."
        ) from None
    if "gae_lambda" not in saved:
        raise UsageError(f"sb3={str(path)!r} is not of an on-policy algorithm: give a model of PPO, PPOEWMA or A2C.")
    kind = PPOEWMA if "beta_prox" in saved else PPO if "clip_range" in saved else A2C
    try:
        return kind.load(path, device="cpu")
    except Exception as error:  # whatever unpickling an old or foreign file may raise
        raise UsageError(
            f"sb3={str(path)!r} cannot be loaded by {kind.__name__} of the Stable-Baselines3 that is installed "
            f"({type(error).__name__}: {first_line(error)}): save it with this version."
        ) from None


class _LogProb(th.nn.Module):
    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: th.Tensor, action: th.Tensor) -> th.Tensor:
        return self.policy.get_distribution(obs).log_prob(action)


class TorchPolicy(ExternalPolicy):
    """The policy of a model."""

    def __init__(self, model: OnPolicyAlgorithm) -> None:
        self.policy = model.policy
        self.policy.set_training_mode(False)
        self.discrete = isinstance(model.action_space, spaces.Discrete)
        self._log_prob = _LogProb(self.policy)
        self._parameters = self._in_use(model)
        self.size = sum(p.numel() for p in self._parameters.values())
        self.weights = b"".join(p.detach().cpu().numpy().tobytes() for p in self.policy.parameters())

    def _in_use(self, model: OnPolicyAlgorithm) -> dict[str, th.Tensor]:
        """The parameters that actions depend on, without those of the values alone."""
        obs = th.as_tensor(np.stack([model.observation_space.sample() for _ in range(2)]))
        distribution = self.policy.get_distribution(obs)
        log_prob = distribution.log_prob(distribution.sample())
        named = dict(self._log_prob.named_parameters())
        slopes = th.autograd.grad(log_prob.sum(), list(named.values()), allow_unused=True)
        with_slopes = zip(named.items(), slopes, strict=True)
        return {name: p.detach() for (name, p), slope in with_slopes if slope is not None}

    def mean_gradients(self, obs: np.ndarray, action: np.ndarray, advantage: np.ndarray) -> np.ndarray:
        def loss(
            parameters: dict[str, th.Tensor], obs: th.Tensor, action: th.Tensor, advantage: th.Tensor
        ) -> th.Tensor:
            return -(functional_call(self._log_prob, parameters, (obs, action)) * advantage).mean()

        actions = th.as_tensor(np.array(action)).long() if self.discrete else th.as_tensor(np.array(action))
        samples = th.as_tensor(np.array(obs)), actions, th.as_tensor(np.array(advantage, np.float32))
        chunk = int(max(1, min(CHUNK_BYTES / 4 / self.size, CHUNK_SAMPLES / advantage.shape[1])))
        with unchecked_distributions():
            each = vmap(grad(loss), in_dims=(None, 0, 0, 0), chunk_size=chunk)(self._parameters, *samples)
        return th.cat([g.flatten(start_dim=1) for g in each.values()], dim=1).numpy()
