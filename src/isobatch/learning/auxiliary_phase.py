"""The auxiliary phase of PPG (Cobbe 2020): distil the value function into the policy's features.

Joint loss over all samples of the phase, E_aux times:
    1/2 (V_aux - target)^2 + beta_clone KL[pi_old, pi] + 1/2 (V - target)^2,
with pi_old the policy at the start of the auxiliary phase. Value targets are those of the policy phase.
"""

from __future__ import annotations

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from isobatch.learning import losses
from isobatch.learning.micro_batches import Metrics, gradient_of
from isobatch.learning.minibatches import minibatch_indices
from isobatch.learning.optimizers import updated
from isobatch.learning.proximal import Ewma
from isobatch.learning.state import Learner, Phase
from isobatch.networks.actor_critic import ActorCritic
from isobatch.networks.distributions import Distribution
from isobatch.networks.shards import axes_of, mean, shard_key
from isobatch.settings.config import Config, Hypers


class AuxiliaryBatch(eqx.Module):
    obs: Array
    target: Float[Array, "*B"]
    old: Distribution  # before the auxiliary phase
    share: Float[Array, "*B"] | None = None  # of the sample in a mean; 0 where a row is no step


def auxiliary_phase(
    config: Config, learner: Learner, phase: Phase, hypers: Hypers, key: Key[Array, ""]
) -> tuple[Learner, Metrics]:
    """E_aux epochs over the phase, after which an averaged proximal policy starts anew from the current weights."""
    iterations, steps, envs = phase.target.shape
    across = axes_of(config.num_shards)
    old = jax.lax.map(learner.networks.policy, phase.obs)  # iteration by iteration, to bound the memory
    share = None if phase.valid is None else phase.valid / mean(jnp.mean(phase.valid), across)
    # [N_pi, T, N] as [T, N_pi N]: rows of the phase are the environments of all its iterations.
    flat = jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, 1).reshape(steps * iterations * envs, *x.shape[3:]),
        AuxiliaryBatch(phase.obs, phase.target, old, share),
    )
    count = config.aux_minibatches * iterations

    def epoch(learner: Learner, key: Key[Array, ""]) -> tuple[Learner, dict[str, Array]]:
        indices = minibatch_indices(shard_key(key, across), iterations * envs, steps, count, config.minibatch_scheme)

        def step(learner: Learner, index: Array) -> tuple[Learner, Metrics]:
            return auxiliary_step(config, jax.tree.map(lambda x: x[index], flat), learner, hypers)

        return jax.lax.scan(step, learner, indices)

    learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, config.aux_epochs))
    if learner.proximal is not None:
        learner = eqx.tree_at(lambda l: l.proximal, learner, Ewma.start(learner.networks.policy))
    return learner, {name: jnp.mean(value) for name, value in metrics.items()}


def auxiliary_step(config: Config, batch: AuxiliaryBatch, learner: Learner, hypers: Hypers) -> tuple[Learner, Metrics]:
    """One step of the auxiliary optimizer."""

    def loss(networks: ActorCritic, samples: AuxiliaryBatch) -> tuple[Float[Array, ""], Metrics]:
        return joint_loss(networks, samples, hypers.beta_clone)

    networks = cast(ActorCritic, learner.networks)  # `initial_states` requires it of a run with phases
    gradient, metrics = mean(gradient_of(config, loss, networks, batch), axes_of(config.num_shards))
    updates, state = updated(config, hypers, gradient, learner.aux_optimizer, networks)
    after = jax.tree.map(lambda p, u: p - hypers.aux_learning_rate * u, networks, updates)
    return eqx.tree_at(lambda l: (l.networks, l.aux_optimizer), learner, (after, state)), metrics


def joint_loss(
    networks: ActorCritic, batch: AuxiliaryBatch, beta_clone: Float[Array, ""] | float
) -> tuple[Float[Array, ""], Metrics]:
    current, value, aux_value = networks.for_auxiliary_phase(batch.obs)
    parts = {
        "aux/value_loss": losses.value_loss(aux_value, batch.target),
        "aux/clone_kl": batch.old.kl(current),
        "aux/true_value_loss": losses.value_loss(value, batch.target),
    }
    metrics = {name: jnp.mean(part if batch.share is None else batch.share * part) for name, part in parts.items()}
    return (
        metrics["aux/value_loss"] + beta_clone * metrics["aux/clone_kl"] + metrics["aux/true_value_loss"],
        metrics,
    )
