"""PPO-EWMA as an algorithm of Stable-Baselines3: its PPO, holding on to an average of recent policies."""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.distributions import kl_divergence, sum_independent_dims
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import MaybeCallback, RolloutBufferSamples, TensorDict
from stable_baselines3.common.utils import FloatSchedule, explained_variance
from torch.nn import functional

from isobatch.errors import UsageError
from isobatch.settings.config import AdvantageNorm, KlForm
from isobatch.torch.formulas import AdvantageMoments, Ewma, LossWithProximal
from isobatch.torch.sb3_settings import Arguments, beta_of_ppo, from_ppo
from isobatch.torch.validation import unchecked_distributions

Proximal = Literal["ewma", "recent", "behavior"]
Objective = Literal["clip", "kl"]


class PPOEWMA(PPO):
    """PPO whose clipping, or KL penalty, holds on to an average of the policy's weights: PPO-EWMA.

    Hilton, Cobbe & Schulman 2021, Batch size-invariance for policy optimization, https://arxiv.org/abs/2110.00641. All
    arguments of Stable-Baselines3's PPO, and all of its methods, are there. Besides:

    :param beta_prox: decay of the average, per gradient step; its age is beta / (1 - beta) steps. By default the
        average is as old as the policy that PPO holds on to at these sizes; `rescaled` keeps its age at others.
    :param proximal_policy: ewma; or behavior, the policy that collected the data, which is PPO; or recent, the one
        before this iteration's gradient steps, which is the same but for stale data.
    :param objective: clip, or kl: a penalty on KL[proximal, current] in place of clipping.
    :param kl_coef: weight of that penalty.
    :param kl_form: analytic, or squared: half the squared log-ratio of the sampled actions.
    :param advantage_norm: the samples whose mean and deviation normalize the advantages: iteration (the rollout), ewma
        (an average over rollouts), minibatch (as PPO does) or none. normalize_advantage=False is none too.
    :param adv_norm_decay: of the average over rollouts.
    :param staleness: iterations by which each rollout is held back before it is used, with the log-probabilities of the
        policy that acted; so many iterations at the beginning, and after loading a model, only collect.
    :param importance_cap: largest ratio of the current to the behavior policy that a sample is weighted with.
    """

    rollout_buffer: RolloutBuffer

    def __init__(
        self,
        *args: Any,
        beta_prox: float | None = None,
        proximal_policy: Proximal = "ewma",
        objective: Objective = "clip",
        kl_coef: float = 1.0,
        kl_form: KlForm = "analytic",
        advantage_norm: AdvantageNorm = "iteration",
        adv_norm_decay: float = 0.0,
        staleness: int = 0,
        importance_cap: float = 100.0,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs | {"_init_setup_model": False})
        self.beta_prox = beta_prox
        self.proximal_policy = proximal_policy
        self.objective = objective
        self.kl_coef = kl_coef
        self.kl_form = kl_form
        self.advantage_norm = advantage_norm
        self.adv_norm_decay = adv_norm_decay
        self.staleness = staleness
        self.importance_cap = importance_cap
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def from_ppo(settings: Mapping[str, object], n_envs: int | None = None) -> Arguments:
        """Keyword arguments of PPO -> those of PPOEWMA with an average as old as PPO's proximal policy.

        The result can be rescaled to other numbers of environments (`isobatch.torch.rescaled`), where PPO's own
        settings cannot, since the policy that it holds on to is as old as an iteration. Advantages are normalized over
        the rollout in place of each minibatch, for the same reason. `n_envs` is that of the settings, or of their
        `env`, unless it is given.

        Example:
            >>> from isobatch.torch import PPOEWMA
            >>> PPOEWMA.from_ppo(dict(n_steps=128, batch_size=256, n_epochs=1), n_envs=8)["beta_prox"]
            0.6
        """
        return from_ppo(settings, n_envs)

    def _setup_model(self) -> None:
        self._check()
        super()._setup_model()
        beta = self.beta_prox
        if beta is None:
            beta = beta_of_ppo(self.n_steps, self.n_envs, self.batch_size, self.n_epochs)
        # A distribution holds on to the tensors it was last computed from: those are not copied.
        memo = {id(self.policy.optimizer): None, id(self.policy.action_dist): copy.copy(self.policy.action_dist)}
        self.proximal = Ewma(self.policy, beta, memo)
        self.advantage_moments = AdvantageMoments(self.adv_norm_decay if self.advantage_norm == "ewma" else 0.0)
        self._held: deque[RolloutBuffer] = deque()  # rollouts that are not due yet

    def _check(self) -> None:
        for name, kind in (
            ("proximal_policy", Proximal),
            ("objective", Objective),
            ("kl_form", KlForm),
            ("advantage_norm", AdvantageNorm),
        ):
            value = getattr(self, name)
            if value not in get_args(kind):
                raise UsageError(f"{name}={value!r} is unknown: use {', '.join(get_args(kind))}.")
        for name in ("beta_prox", "adv_norm_decay"):
            decay = getattr(self, name)
            if decay is not None and not 0 <= decay < 1:
                raise UsageError(f"{name}={decay} is not a decay: use a number from 0 up to, but not including, 1.")
        if self.importance_cap < 1 or self.staleness < 0 or self.kl_coef < 0:
            raise UsageError(
                f"importance_cap={self.importance_cap}, staleness={self.staleness}, kl_coef={self.kl_coef}: use at "
                "least 1, 0 and 0."
            )
        if self.staleness and self.proximal_policy == "behavior" and self._with_analytic_kl:
            raise UsageError(
                "kl_form='analytic' needs the whole distribution of the proximal policy, and of old rollouts only "
                "log-probabilities are kept: use kl_form='squared' or proximal_policy='recent' with staleness."
            )

    @property
    def averaged_policy(self) -> ActorCriticPolicy:
        """The policy with averaged weights."""
        return cast(ActorCriticPolicy, self.proximal.module)

    @property
    def _with_analytic_kl(self) -> bool:
        return self.objective == "kl" and self.kl_form == "analytic"

    def _take_due_rollout(self) -> bool:
        """Make the rollout that is due the one to learn from, and the newest one wait."""
        self._held.append(self.rollout_buffer)
        if len(self._held) <= self.staleness:
            self.rollout_buffer = copy.deepcopy(self.rollout_buffer)  # room for the next one
            return False
        self.rollout_buffer = self._held.popleft()
        return True

    def train(self) -> None:
        """Gradient steps on the rollout that is due; after each of them the average takes one too."""
        if not self._take_due_rollout():
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        progress, range_vf = self._current_progress_remaining, self.clip_range_vf
        clip_range = FloatSchedule(self.clip_range)(progress)
        clip_range_vf = None if range_vf is None else FloatSchedule(range_vf)(progress)
        losses = LossWithProximal(clip_range, self.kl_coef if self.objective == "kl" else None, self.importance_cap)
        self.advantage_moments.update(th.as_tensor(self.rollout_buffer.advantages))
        if self.proximal_policy != "ewma":
            self.proximal.restart(self.policy)
        metrics: defaultdict[str, list[float]] = defaultdict(list)
        with unchecked_distributions():  # they are checked when acting
            self._take_steps(losses, clip_range_vf, metrics)
        self._log(metrics, clip_range, clip_range_vf)

    def _take_steps(
        self, losses: LossWithProximal, clip_range_vf: float | None, metrics: defaultdict[str, list[float]]
    ) -> None:
        """Epochs of minibatches, unless the policy moves too far."""
        going_on = True
        for epoch in range(self.n_epochs):
            metrics["approx_kl"] = []  # of the last epoch, as in PPO
            for data in self.rollout_buffer.get(self.batch_size):
                loss = self._loss(data, losses, clip_range_vf, metrics)
                kl = metrics["approx_kl"][-1]
                if self.target_kl is not None and kl > 1.5 * self.target_kl:
                    going_on = False
                    if self.verbose >= 1:
                        print(f"Early stopping at step {epoch} due to reaching max kl: {kl:.2f}")
                    break
                self.policy.optimizer.zero_grad()
                loss.backward()
                th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
                if self.proximal_policy == "ewma":
                    self.proximal.update(self.policy)
            self._n_updates += 1
            if not going_on:
                break

    def _loss(
        self,
        data: RolloutBufferSamples,
        losses: LossWithProximal,
        clip_range_vf: float | None,
        metrics: defaultdict[str, list[float]],
    ) -> th.Tensor:
        """Policy loss + ent_coef x entropy loss + vf_coef x value loss of a minibatch."""
        discrete = isinstance(self.action_space, spaces.Discrete)
        actions = data.actions.long().flatten() if discrete else data.actions
        values, log_prob, entropy = self.policy.evaluate_actions(data.observations, actions)
        values = values.flatten()
        log_prox, kl = data.old_log_prob, None
        if self.proximal_policy != "behavior" or self._with_analytic_kl:
            with th.no_grad():
                proximal = self.averaged_policy.get_distribution(data.observations)
                log_prox = proximal.log_prob(actions) if self.proximal_policy != "behavior" else log_prox
            if self._with_analytic_kl:
                kl = kl_divergence(proximal, self.policy.action_dist)
                kl = sum_independent_dims(kl) if kl.dim() > 1 else kl
        policy_loss = losses(log_prob, log_prox, data.old_log_prob, self._normalized(data.advantages), kl).mean()
        if clip_range_vf is not None:
            values = data.old_values + th.clamp(values - data.old_values, -clip_range_vf, clip_range_vf)
        value_loss = functional.mse_loss(data.returns, values)
        entropy_loss = -th.mean(-log_prob if entropy is None else entropy)
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        with th.no_grad():
            log_ratio = log_prob - data.old_log_prob
            from_prox = th.abs(th.exp(log_prob - log_prox) - 1) > losses.clip_eps
            means = {
                "policy_gradient_loss": policy_loss,
                "value_loss": value_loss,
                "entropy_loss": entropy_loss,
                "loss": loss,
                "approx_kl": th.mean((th.exp(log_ratio) - 1) - log_ratio),
                "clip_fraction": th.mean(from_prox.float()),
            }
        for name, value in means.items():
            metrics[name].append(value.item())
        return loss

    def _normalized(self, advantages: th.Tensor) -> th.Tensor:
        if not self.normalize_advantage or self.advantage_norm == "none":
            return advantages
        if self.advantage_norm != "minibatch":
            return self.advantage_moments.normalize(advantages)
        if len(advantages) == 1:
            return advantages
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    def _log(self, metrics: Mapping[str, list[float]], clip_range: float, clip_range_vf: float | None) -> None:
        """PPO's metrics, and those of the average and of the advantages."""
        record = self.logger.record
        for name in ("entropy_loss", "policy_gradient_loss", "value_loss", "approx_kl", "clip_fraction"):
            record(f"train/{name}", np.mean(metrics[name]))
        record("train/loss", metrics["loss"][-1])
        buffer = self.rollout_buffer
        record("train/explained_variance", explained_variance(buffer.values.flatten(), buffer.returns.flatten()))
        if hasattr(self.policy, "log_std"):
            record("train/std", th.exp(self.policy.log_std).mean().item())
        record("train/n_updates", self._n_updates, exclude="tensorboard")
        record("train/clip_range", clip_range)
        if clip_range_vf is not None:
            record("train/clip_range_vf", clip_range_vf)
        record("train/advantage_std", self.advantage_moments.variance.item() ** 0.5)
        if self.proximal_policy == "ewma":
            record("train/proximal_age", self.proximal.age.item())

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "PPOEWMA",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_held"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, variables = super()._get_torch_save_params()
        return [*names, "proximal", "advantage_moments"], variables

    def set_parameters(
        self,
        load_path_or_dict: str | TensorDict,
        exact_match: bool = True,
        device: th.device | str = "auto",
    ) -> None:
        """As in PPO, whose parameters are taken too: the average then begins with them."""
        if isinstance(load_path_or_dict, dict):
            params = load_path_or_dict
        else:
            params = load_from_zip_file(load_path_or_dict, device=device, load_data=False)[1]
        of_ppo = set(params) == set(super()._get_torch_save_params()[0])
        added = {name: getattr(self, name).state_dict() for name in ("proximal", "advantage_moments") if of_ppo}
        super().set_parameters({**params, **added}, exact_match, device)
        if of_ppo:
            self.proximal.restart(self.policy)
