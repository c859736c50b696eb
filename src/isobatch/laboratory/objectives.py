"""Per-sample policy losses as the laboratory takes them: functions of a policy and samples [n, ...]."""

from __future__ import annotations

from jaxtyping import Array, Float

from isobatch.laboratory.layers import Losses
from isobatch.learning import losses
from isobatch.learning.policy_phase import Batch, policy_loss
from isobatch.networks.actor_critic import Policy
from isobatch.settings.config import Config, Hypers


def vanilla(policy: Policy, samples: tuple[Array, Array, Array]) -> Float[Array, " n"]:
    """-A log pi(a|s) of observations, actions and advantages: its gradients g_i are those of the policy gradient."""
    obs, action, advantage = samples
    return losses.policy_gradient(policy(obs).log_prob(action), advantage)


def full(config: Config, hypers: Hypers, averaged: Policy | None = None) -> Losses:
    """The objective of a run at any policy: ratios, clipping or KL penalty, around the proximal policy of its batch."""

    def of(policy: Policy, batch: Batch) -> Float[Array, " n"]:
        return policy_loss(config, batch, policy(batch.obs), averaged, hypers)[0]

    return of
