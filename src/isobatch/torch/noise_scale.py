"""The gradient noise scale while a model of Stable-Baselines3 learns, by whole environments, as a callback."""

from __future__ import annotations

import time

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from isobatch.errors import UsageError
from isobatch.gradients.noise import smooth, two_batch_sizes
from isobatch.settings.geometry import divisors

MOST_PARTS = 8


class NoiseScale(BaseCallback):
    """Signal |G|^2 and noise S of the policy gradient, and the critical batch size S / |G|^2, in samples.

    McCandlish et al. 2018, appendix A, https://arxiv.org/abs/1812.06162, from the gradients of parts of the rollout.
    Samples of one environment are correlated, so parts are made of whole environments, of which there must be two or
    more. Both quantities are averaged over iterations before their ratio is taken.

    Costs one more gradient pass over the rollout each time: 1 / n_epochs of the time that learning takes, divided by
    `every`; `noise/seconds` has it. What is learned does not change.

    Logged: `noise/signal`, `noise/trace` (S), `noise/critical_batch`, `noise/seconds`.

    :param every: iterations between two measurements.
    :param decay: of the running averages, per measurement.
    """

    model: OnPolicyAlgorithm

    def __init__(self, every: int = 1, decay: float = 0.9, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.every, self.decay = every, decay
        self.signals: list[float] = []
        self.traces: list[float] = []
        self.rollouts = 0

    @property
    def critical_batch(self) -> float:
        """Samples at which noise and signal are equal; infinite where the gradient cannot be told from its noise."""
        return float(smooth(self.signals, self.traces, self.decay)[2][-1]) if self.signals else float("nan")

    def _init_callback(self) -> None:
        if self.model.n_envs < 2:
            raise UsageError(
                "n_envs=1 leaves NoiseScale nothing to compare, since its parts are whole environments: use n_envs of "
                "at least 2."
            )
        self.parts = max(n for n in divisors(self.model.n_envs) if n <= MOST_PARTS)
        if self.parts == 1:  # a prime number of environments
            self.parts = self.model.n_envs

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rollouts += 1
        if self.rollouts % self.every:
            return
        begin = time.perf_counter()
        gradients = self.gradients()
        small = float(gradients.square().sum(dim=1).mean())
        big = float(gradients.mean(dim=0).square().sum())
        signal, of_a_part = two_batch_sizes(small, big, 1, self.parts)
        self.signals.append(signal)
        self.traces.append(of_a_part * self.model.n_envs * self.model.n_steps / self.parts)
        record = self.logger.record
        record("noise/signal", self.signals[-1])
        record("noise/trace", self.traces[-1])
        record("noise/critical_batch", self.critical_batch)
        record("noise/seconds", time.perf_counter() - begin)

    def gradients(self) -> th.Tensor:
        """[parts, P]: the gradient of the policy's loss for each part of the environments, as the policy is now."""
        buffer, policy = self.model.rollout_buffer, self.model.policy
        advantages = buffer.advantages
        if getattr(self.model, "normalize_advantage", True):
            advantages = (advantages - np.mean(advantages)) / (np.std(advantages) + 1e-8)
        parameters = [p for p in policy.parameters() if p.requires_grad]
        rows = []
        for envs in np.split(np.arange(self.model.n_envs), self.parts):
            seen = buffer.observations
            obs = (
                {name: self._samples(part, envs) for name, part in seen.items()}
                if isinstance(seen, dict)
                else self._samples(seen, envs)
            )
            actions, advantage = self._samples(buffer.actions, envs), self._samples(advantages, envs)
            if isinstance(self.model.action_space, spaces.Discrete):
                actions = actions.long().flatten()
            _, log_prob, entropy = policy.evaluate_actions(obs, actions)
            loss = -(log_prob * advantage).mean()
            loss = loss - self.model.ent_coef * (-log_prob if entropy is None else entropy).mean()
            gradient = th.autograd.grad(loss, parameters, allow_unused=True)
            rows.append(th.cat([g.flatten() for g in gradient if g is not None]))
        return th.stack(rows)

    def _samples(self, leaf: np.ndarray, envs: np.ndarray) -> th.Tensor:
        """[T, N, ...] -> [T n, ...] of some environments."""
        part = leaf[:, envs]
        return th.as_tensor(part.reshape(-1, *part.shape[2:]), device=self.model.device)
