"""One run on several devices: the same numbers, up to the rounding of sums, wherever its shards are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case
from tiny import tiny

from isobatch.errors import UsageError
from isobatch.learning.aggregation import sample_weights
from isobatch.networks.moments import Moments
from isobatch.networks.shards import SHARDED
from isobatch.rollouts.jax_rollout import step_keys
from isobatch.settings.config import Config
from isobatch.settings.presets import preset
from isobatch.training.make_train import make_train
from isobatch.training.programs import initial_states
from isobatch.training.result import Result
from isobatch.training.sharding import WHOLE, env_axes, on_one_device
from isobatch.training.trainer import train

CASES: dict[str, dict[str, Any]] = {
    "ppo": {"normalize_observations": True, "normalize_rewards": True, "noise_scale": True},
    "ppo-ewma": {"staleness": 1, "advantage_norm": "minibatch"},
    "ppg-ewma": {"staleness": 1, "policy_iterations_per_phase": 2, "aux_minibatches": 2, "aux_epochs": 2},
    "reinforce": {"num_envs": 8, "num_steps": 8},
}


def sharded(algo: str, shards: int = 4, **settings: Any) -> Config:
    env = "Probe-Truncation" if algo == "reinforce" else "CartPole-v1"
    sizes = {"num_envs": 8, "num_steps": 8, "hidden_sizes": (8,), "num_shards": shards, "lr_schedule": "constant"}
    config = preset(
        algo, env, **(sizes | CASES[algo] | {"total_timesteps": 4096} | settings | {"policy_iterations_per_phase": 0})
    )
    config = config.replace(total_timesteps=(4 + config.staleness) * config.geometry.iteration_batch)
    phase = (CASES[algo] | settings).get("policy_iterations_per_phase", 0)
    return config.replace(policy_iterations_per_phase=phase)


@pytest.fixture
def exact() -> Iterator[None]:
    """In double precision what is left of a difference is far below what a wrong sum would make."""
    with jax.enable_x64(True):
        yield


def weights(result: Result) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(result.states.networks)])


def assert_same(one: Result, other: Result) -> None:
    np.testing.assert_allclose(weights(other), weights(one), rtol=1e-9, atol=1e-12)
    for name, values in one.metrics.items():
        np.testing.assert_allclose(other.metrics[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
    "algo", [name if name == "ppg-ewma" else pytest.param(name, marks=one_more_case) for name in CASES]
)
def test_the_numbers_do_not_depend_on_the_devices(algo: str) -> None:
    one, two = (train(sharded(algo, shards=2), devices=devices) for devices in (1, 2))  # both here, and one on each
    assert_same(one, two)


@one_more_case
@pytest.mark.usefixtures("exact")
def test_seeds_and_shards_share_the_devices(tmp_path: Path) -> None:
    config = sharded("ppo", shards=2)
    together = train(config, num_seeds=2, devices=1)
    second = np.concatenate([np.asarray(leaf)[1].ravel() for leaf in jax.tree.leaves(together.states.networks)])
    np.testing.assert_allclose(second, weights(train(config, seed=1, devices=2)), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("exact")
@one_more_case
def test_a_run_goes_on_with_another_number_of_devices(tmp_path: Path) -> None:
    config = sharded("ppg-ewma")
    whole = train(config, devices=2)
    half = config.replace(total_timesteps=3 * config.geometry.iteration_batch)
    train(half, run_dir=tmp_path / "run", devices=2)
    assert_same(whole, train(config, run_dir=tmp_path / "run", resume=True, devices=1))


def test_large_arrays_are_cut_and_the_learner_is_not() -> None:
    config = sharded("ppg-ewma", staleness=2, policy_iterations_per_phase=2, normalize_rewards=True)
    states = train(config, devices=2).states
    on_first = {
        jax.tree_util.keystr(path): leaf.addressable_shards[0].data.size / leaf.size
        for path, leaf in jax.tree_util.tree_leaves_with_path(states)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    }
    cut = {name for name, part in on_first.items() if part == 0.5}
    assert {name for name in on_first if name.startswith((".envs", ".queue", ".learning.phase"))} <= cut
    assert ".learning.reward_scale.discounted_return" in cut
    assert not any(name.startswith(".learning.learner") for name in cut)


def test_an_environment_meets_the_same_wherever_it_is() -> None:
    """Its random numbers belong to its number in the run."""
    key, names = jax.random.key(3), ("actions", "steps", "resets")

    def drawn(first: int, count: int) -> dict[str, np.ndarray]:
        keys = jax.random.key_data(step_keys(key, 5, count, jnp.int32(first)))
        return dict(zip(names, np.split(np.asarray(keys), 3, axis=1), strict=True))

    whole, part = drawn(0, 8), drawn(6, 2)
    for name in names:
        np.testing.assert_array_equal(part[name], whole[name][:, 6:])
    assert len(np.unique(np.concatenate(list(whole.values())).reshape(-1, 2), axis=0)) == 3 * 5 * 8


@pytest.mark.usefixtures("exact")
@one_more_case
def test_a_function_of_ones_own_program_has_the_same_shards() -> None:
    config = sharded("ppo")
    init, run = make_train(config)
    state, _ = jax.jit(run)(init(0), config.hypers)
    own = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state.networks)])
    np.testing.assert_allclose(own, weights(train(config, devices=2)), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("exact")
def test_moments_and_weights_are_those_of_all_shards() -> None:
    rng = np.random.default_rng(0)
    sample, lengths = jnp.asarray(rng.normal(5, 2, (6, 8))), jnp.asarray(rng.integers(1, 9, (6, 8)).astype(float))
    used = jnp.asarray(rng.random((6, 8)) < 0.6).at[:, 2:4].set(False)  # a shard has none

    def of_shard(sample: Any, used: Any, lengths: Any) -> tuple[Any, ...]:
        before = Moments(jnp.asarray(1.0), jnp.asarray(2.0), jnp.asarray(3.0))
        weight = sample_weights("trajectory-mean", lengths, used, 1.0, SHARDED)
        return before.update(sample, 0.5, used, SHARDED), before.update(sample, 0.5, across=SHARDED), weight

    moments, of_every_sample, weight = on_one_device(of_shard, (1, 1, 1), (WHOLE, WHOLE, 1), 4)(sample, used, lengths)
    before = Moments(jnp.asarray(1.0), jnp.asarray(2.0), jnp.asarray(3.0))
    for ours, whole in ((moments, before.update(sample, 0.5, used)), (of_every_sample, before.update(sample, 0.5))):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(whole), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(weight, sample_weights("trajectory-mean", lengths, used, 1.0), rtol=1e-12)


def test_every_axis_of_environments_is_known() -> None:
    sizes: dict[str, Any] = {
        "num_envs": 12,
        "num_steps": 6,
        "hidden_sizes": (7,),
        "num_minibatches": 2,
    }
    config = sharded("ppg-ewma", staleness=2, normalize_rewards=True, normalize_observations=True, **sizes)
    one = jax.tree.map(lambda leaf: leaf[0], initial_states(config, [0]))
    for axis, leaf in zip(jax.tree.leaves(env_axes(one)), jax.tree.leaves(one), strict=True):
        assert leaf.shape[axis] == 12 if axis != WHOLE else 12 not in leaf.shape


@pytest.mark.parametrize(
    ("settings", "options", "sentence"),
    [
        ({"num_shards": 3}, {}, "num_shards=3 does not divide num_envs=8 into equal groups: use num_envs=9"),
        ({"num_shards": 2, "minibatch_scheme": "shuffle"}, {}, "use minibatch_scheme=stratified"),
        ({"num_shards": 4, "num_minibatches": 64}, {}, "does not evenly divide the 16 samples of each of 4 shards"),
        ({"num_shards": 2}, {"devices": 64}, "devices=64: JAX has 2 here"),
        ({"num_shards": 4}, {"devices": 3}, "JAX has 2 here"),
        ({"num_shards": 1, "num_envs": 8}, {"devices": 3}, "num_shards=3 does not divide num_envs=8"),
        ({"num_shards": 8, "num_envs": 8}, {"devices": 0}, ""),
    ],
)
def test_what_does_not_divide_is_refused(settings: Any, options: Any, sentence: str) -> None:
    def start() -> Any:
        config = tiny(**({"num_envs": 8, "num_steps": 8, "total_timesteps": 128} | settings))
        return train(config, **options)

    if not sentence:
        start()
        return
    with pytest.raises(UsageError, match=sentence):
        start()


def test_devices_of_a_new_run_are_its_shards(tmp_path: Path) -> None:
    result = train(tiny(num_envs=8, num_steps=8, total_timesteps=128), run_dir=tmp_path / "run", devices=2)
    assert (result.config.num_shards, result.config.minibatch_scheme) == (2, "stratified")
