"""A learning-rate schedule of your own: any function of the progress of a run, from 0 to 1.

It gives the factor of `learning_rate`, so that the rate itself can still be rescaled, swept and written in a file.

Run  python examples/own_schedule.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

import isobatch as ib


def warm_up(progress: jax.Array) -> jax.Array:
    """Up in the first tenth of the run, then down to 0."""
    return jnp.minimum(progress / 0.1, (1 - progress) / 0.9)


# A schedule of optax takes a number of steps. From 1 on, and with a whole run as one step, it is such a function.
cosine = optax.cosine_decay_schedule(1.0, decay_steps=1, alpha=0.1)


def main(total_timesteps: int = 100_000) -> ib.Result:
    config = ib.preset("ppo", "CartPole-v1", learning_rate=2.5e-3, total_timesteps=total_timesteps)
    result = ib.train(config, learning_rate_schedule=warm_up)
    print(result)
    ib.register_schedule("cosine", cosine)  # or under a name, as `constant` and `linear` are
    print(ib.train(config.replace(lr_schedule="cosine")))
    return result


if __name__ == "__main__":
    main()
