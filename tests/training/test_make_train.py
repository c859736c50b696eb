"""A run as a pure function: the numbers of `train`, under jit and vmap, traced once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case
from tiny import ALGOS, tiny

import isobatch as ib


@pytest.mark.parametrize(
    "algo", [pytest.param(a, marks=[one_more_case] * (a not in ("ppg-ewma", "reinforce"))) for a in ALGOS]
)
def test_metrics_are_those_of_train(algo: str) -> None:
    config = tiny(algo)
    init, run = ib.make_train(config)
    _, metrics = jax.jit(jax.vmap(run, in_axes=(0, None)))(init([0, 3]), config.hypers)
    result = ib.train(config, seed=0, log_interval=1)
    assert metrics.keys() == result.metrics.keys() - {"iteration", "env_steps", "seed"}
    for name, values in metrics.items():
        assert values.shape == (2, config.num_iterations)
        np.testing.assert_allclose(values[0], result.metrics[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_stale_data_is_only_collected_at_first() -> None:
    config = tiny("ppo", staleness=3)
    init, run = ib.make_train(config)
    _, metrics = jax.jit(run)(init(0), config.hypers)
    np.testing.assert_array_equal(np.isnan(metrics["losses/entropy"]), np.arange(12) < 3)


def test_a_grid_of_hypers_is_traced_once() -> None:
    config, traces = tiny("ppo-ewma"), []
    init, run = ib.make_train(config)
    state = init(0)

    @jax.jit
    def sweep(rates: jax.Array, decays: jax.Array) -> jax.Array:
        traces.append(1)

        def one(rate: jax.Array, decay: jax.Array) -> jax.Array:
            hypers = dataclasses.replace(config.hypers, learning_rate=rate, beta_prox=decay)
            return run(state, hypers)[1]["losses/entropy"]

        return jax.vmap(one)(rates, decays)

    first = sweep(jnp.array([1e-3, 1e-1]), jnp.array([0.5, 0.9]))
    assert sweep(jnp.array([1e-2, 1e-2]), jnp.array([0.1, 0.2])).shape == (2, 12)
    assert len(traces) == 1
    assert not np.allclose(first[0], first[1])


def test_environments_outside_jax_are_refused() -> None:
    with pytest.raises(ib.UsageError, match=r"steps outside JAX and cannot be compiled: use isobatch\.train"):
        ib.make_train(tiny(env="host_envs:Clock-v0"))
