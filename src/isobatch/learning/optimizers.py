"""The optimizers by name, with every constant a hyperparameter that may be traced."""

from __future__ import annotations

import optax

from isobatch.settings.config import Config, Hypers


def make_optimizer(config: Config, hypers: Hypers) -> optax.GradientTransformation:
    """Clip by global norm, then precondition. The caller scales by the learning rate of the iteration.

    One flat vector instead of a tree: a small network's update is dominated by the number of operations.
    """
    match config.optimizer:
        case "adam":
            precondition = optax.scale_by_adam(b1=hypers.beta1, b2=hypers.beta2, eps=hypers.optimizer_eps)
        case "rmsprop":
            precondition = optax.scale_by_rms(decay=hypers.beta2, eps=hypers.optimizer_eps, eps_in_sqrt=False)
        case "sgd":
            precondition = optax.identity()
    return optax.flatten(optax.chain(optax.clip_by_global_norm(hypers.max_grad_norm), precondition))
