"""Sweep the learning rate in one compiled program: five rates, four seeds each, twenty runs at once.

`ib.make_train` gives a whole run as a pure function, which `jax.jit` and `jax.vmap` transform like any other.

Run  python examples/sweep_learning_rates.py
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

import isobatch as ib


def sweep(config: ib.Config, rates: jax.Array, seeds: range) -> jax.Array:
    """Episodic return [rates, seeds, iterations]."""
    init, run = ib.make_train(config)
    states = init(seeds)

    def run_all_seeds(rate: jax.Array) -> dict[str, jax.Array]:
        hypers = dataclasses.replace(config.hypers, learning_rate=rate)
        return jax.vmap(run, in_axes=(0, None))(states, hypers)[1]

    return jax.jit(jax.vmap(run_all_seeds))(rates)["charts/episodic_return"]


def main(total_timesteps: int = 50_000) -> None:
    rates = jnp.array([1e-4, 3e-4, 1e-3, 3e-3, 1e-2])
    returns = sweep(ib.preset("ppo", "CartPole-v1", total_timesteps=total_timesteps), rates, range(4))
    late = jnp.nanmean(returns[:, :, -max(1, returns.shape[2] // 10) :], axis=(1, 2))
    for rate, value in zip(rates, late, strict=True):
        print(f"learning rate {rate:.0e}: return {value:6.1f} in the last tenth of the run")


if __name__ == "__main__":
    main()
