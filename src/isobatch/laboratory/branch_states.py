"""What a branch starts from: all that was learned so far, in the state of a run with another batch size.

| of the checkpoint                             | in the branch                                                    |
|-----------------------------------------------|------------------------------------------------------------------|
| networks, moments of observations and rewards | as they are                                                      |
| averaged (proximal) policy                    | as it is, with its age in environment steps: see `aged`          |
| moments of advantages                         | as they are, with a weight for the new size                      |
| step size that follows the KL                 | by the rule of the learning rate                                 |
| optimizer's moments                           | measured anew, see below                                         |
| environments, stale data, phases, random keys | begun anew                                                       |

The squares that Adam and RMSProp divide by are those of gradients of a certain batch size. They would forget the old
one after some 1 / (1 - beta2) = 1,000 steps, and a large batch has a few dozen in a branch. No formula says what they
are at another size, since noise, signal and clipping have parts in it. So every branch, that of the run's own size too,
begins with some iterations whose step size is 0: they change the optimizer's moments, begun at nothing, and no weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from optax import OptState

from isobatch.learning.proximal import Ewma
from isobatch.learning.state import TrainState
from isobatch.networks.moments import Moments
from isobatch.rescaling.rules import advantage_decay
from isobatch.rollouts.host_rollout import replaced
from isobatch.settings.config import Config, Hypers

T = TypeVar("T")


def planted(before: Config, after: Config, trained: TrainState, fresh: TrainState) -> TrainState:
    """`fresh`, stacked states of `after`, with what one state of `before` had learned but for its optimizer."""
    lanes, old = fresh.iteration.shape[0], trained.learning
    learner, scale = old.learner, old.reward_scale
    average = None if learner.proximal is None else aged(before, after, learner.proximal)
    rate = after.hypers.learning_rate / before.hypers.learning_rate
    weight = weight_of_advantages(after) / weight_of_advantages(before)

    def put(states: TrainState, where: Callable[[TrainState], object], value: T | None) -> TrainState:
        """The same for every lane; what the run does not have stays away."""
        if value is None:
            return states
        planted: TrainState = eqx.tree_at(
            where, states, jax.tree.map(lambda leaf: jnp.repeat(leaf[None], lanes, axis=0), value)
        )
        return planted

    states = put(fresh, lambda s: s.learning.learner.networks, learner.networks)
    states = put(states, lambda s: s.learning.learner.proximal, average)
    states = put(states, lambda s: s.learning.learner.rate, None if learner.rate is None else learner.rate * rate)
    states = put(states, lambda s: s.learning.advantage_moments, weighted(old.advantage_moments, weight))
    states = put(states, _reward_moments, None if scale is None else scale.moments)
    return put(states, lambda s: s.obs_moments, trained.obs_moments)


def _reward_moments(states: TrainState) -> Moments:
    assert states.learning.reward_scale is not None
    return states.learning.reward_scale.moments


def aged(before: Config, after: Config, average: Ewma) -> Ewma:
    """w' = w (1 - beta) / (1 - beta'): as near to its value in a long run, 1 / (1 - beta), as it was."""
    weight = average.weight * (1 - before.hypers.beta_prox) / (1 - after.hypers.beta_prox)
    steps = before.geometry.env_steps_per_gradient_step / after.geometry.env_steps_per_gradient_step
    return Ewma(average.params, weight, average.age * steps)


def weighted(moments: Moments, factor: float) -> Moments:
    return Moments(moments.mean, moments.variance, moments.weight * factor)


def weight_of_advantages(config: Config) -> float:
    """What the weight of their moments comes to in a long run: n + decay n + decay^2 n + ... samples."""
    return config.geometry.iteration_batch / (1 - advantage_decay(config))


def without_steps(states: TrainState, hypers: Hypers) -> tuple[TrainState, Hypers]:
    """With step sizes of 0: an iteration then changes everything but the networks."""
    if states.learning.learner.rate is not None:  # 0 is one that has not begun, and begins with that of the hypers
        states = eqx.tree_at(lambda s: s.learning.learner.rate, states, replace_fn=jnp.zeros_like)
    nothing = jnp.zeros_like(hypers.learning_rate)
    return states, replaced(hypers, learning_rate=nothing, aux_learning_rate=nothing)


def measured_moments(config: Config, states: TrainState, updates: int) -> TrainState:
    """The optimizers' moments after so many updates from nothing, ready for use.

    Adam divides by 1 - beta^n itself. RMSProp does not, so its average of n squares is divided by it here.
    """
    if config.optimizer != "rmsprop":
        return states
    phase = max(1, config.policy_iterations_per_phase)
    learner, steps = states.learning.learner, config.geometry.gradient_steps
    auxiliary = updates // phase * phase * config.aux_epochs * config.aux_minibatches
    changed = replaced(
        learner,
        optimizer=_debiased(config, learner.optimizer, updates * steps),
        value_optimizer=_debiased(
            config, learner.value_optimizer, updates * config.value_epochs * config.num_minibatches
        ),
        aux_optimizer=_debiased(config, learner.aux_optimizer, auxiliary),
    )
    ready: TrainState = eqx.tree_at(lambda s: s.learning.learner, states, changed)
    return ready


def _debiased(config: Config, optimizer: OptState | None, count: int) -> OptState | None:
    """After `count` gradients; none where there is no such optimizer."""
    if optimizer is None or not count:
        return optimizer
    squares = optax.tree.get(optimizer, "nu") / (1 - config.hypers.beta2**count)
    return optax.tree.set(optimizer, nu=squares)
