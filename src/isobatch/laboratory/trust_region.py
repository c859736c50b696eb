"""What the trust region (clipping, or the KL penalty) does to the gradient as the policy moves away.

After e epochs on a batch, at theta_e: the gradient of the policy loss over the whole batch, with the trust region and
without it (clip_eps = inf, kl_coef = 0); their cosine, the ratio of their lengths, and how many samples are clipped.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from isobatch.laboratory.objectives import full
from isobatch.laboratory.per_sample import mean_gradient
from isobatch.learning.policy_phase import Batch, optimize, policy_loss, prepare
from isobatch.learning.state import Learner, TrainState
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config

QUANTITIES = ("cosine", "length_ratio", "clip_fraction", "kl")


@partial(jax.jit, static_argnums=0)
def effect_by_epoch(config: Config, state: TrainState, segment: Segment, key: Key[Array, ""]) -> Float[Array, "E Q"]:
    """QUANTITIES of a batch before the first and after each of the epochs."""
    config = dataclasses.replace(config, staleness=0, noise_scale=False)
    one_epoch = dataclasses.replace(config, update_epochs=1, value_epochs=min(config.value_epochs, 1))
    rate = jnp.asarray(config.hypers.learning_rate)  # before its schedule: at the end of a run that would be nothing
    recent = state.networks.policy
    batch, _, _, _ = prepare(config, segment, recent, None, state.learning.advantage_moments, config.hypers)
    learner = state.learning.learner
    rows = [_quantities(config, batch, learner)]
    for epoch_key in jax.random.split(key, config.update_epochs):
        learner, _ = optimize(one_epoch, batch, learner, config.hypers, rate, epoch_key)
        rows.append(_quantities(config, batch, learner))
    return jnp.stack(rows)


def _quantities(config: Config, batch: Batch, learner: Learner) -> Float[Array, " Q"]:
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)
    policy, averaged = learner.networks.policy, None if learner.proximal is None else learner.proximal.params
    free = dataclasses.replace(config.hypers, clip_eps=math.inf, kl_coef=0.0)
    with_it, without = (mean_gradient(full(config, h, averaged), policy, flat) for h in (config.hypers, free))
    lengths = jnp.linalg.norm(with_it), jnp.linalg.norm(without)
    cosine = with_it @ without / jnp.maximum(lengths[0] * lengths[1], 1e-30)
    metrics = policy_loss(config, flat, policy(flat.obs), averaged, config.hypers)[1]
    return jnp.stack([cosine, lengths[0] / lengths[1], metrics["losses/clipfrac"], metrics["losses/approx_kl"]])
