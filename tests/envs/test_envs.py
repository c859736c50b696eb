"""Every environment of `isobatch envs`: compiled steps and resets, ends told from cuts, probes as described."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import one_more_case

from isobatch.envs.catalog import GYMNAX
from isobatch.envs.interface import Environment
from isobatch.envs.probes import PROBES
from isobatch.envs.registry import make_env
from isobatch.envs.spaces import Discrete
from isobatch.errors import UsageError

# Discrete and continuous actions; numbers, images and squares to observe; one that ends with every step.
UNLIKE = {"CartPole-v1", "Pendulum-v1", "Breakout-MinAtar", "Catch-bsuite", "FrozenLake-misc", "SimpleBandit-bsuite"}


def random_action(env: Environment, key: jax.Array) -> jax.Array:
    space = env.action_space
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.n)
    low, high = (jnp.array(bound).reshape(space.shape) for bound in (space.low, space.high))
    return jax.random.uniform(key, space.shape, minval=low, maxval=high)


@pytest.mark.parametrize("env_id", [pytest.param(i, marks=[one_more_case] * (i not in UNLIKE)) for i in GYMNAX])
def test_steps_and_resets_under_jit_and_vmap(env_id):
    """Three environments: at the start of an episode, in the middle, and one step before the time limit.

    Shapes and types stay what was promised; the step is gymnax's own, of which nothing is lost in conversion; and only
    the last environment is cut off, which is not the same as having ended.
    """
    env = make_env(env_id)
    raw, params = gymnax.make(env_id)

    def one(key: jax.Array, time: jax.Array):
        reset_key, action_key, step_key = jax.random.split(key, 3)
        state, obs = env.reset(reset_key)
        state = env.at_time(state, time)
        action = random_action(env, action_key)
        return obs, state, env.step(step_key, state, action), raw.step_env(step_key, state, action, params)

    times = jnp.array([0, env.max_steps // 2, env.max_steps - 1])
    obs, before, step, (raw_obs, raw_state, raw_reward, raw_end, _) = jax.jit(jax.vmap(one))(
        jax.random.split(jax.random.key(0), 3), times
    )
    assert obs.shape == step.obs.shape == (3, *env.obs_shape)
    assert obs.dtype == step.obs.dtype == env.obs_dtype
    assert np.isfinite(np.asarray(step.obs, float)).all()
    for old, new, theirs in zip(*map(jax.tree.leaves, (before, step.state, raw_state)), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)  # or a scan could not carry it
        np.testing.assert_allclose(np.asarray(new, float), np.asarray(theirs, float), rtol=1e-6)
    np.testing.assert_allclose(step.reward, np.asarray(raw_reward, float).reshape(3), rtol=1e-6)
    if raw_obs.shape == step.obs.shape:
        np.testing.assert_allclose(np.asarray(step.obs, float), np.asarray(raw_obs, float), rtol=1e-6)
    np.testing.assert_array_equal(step.terminated, np.asarray(raw_end, bool).reshape(3))
    np.testing.assert_array_equal(step.truncated, [False, False, True])
    assert not step.terminated[2] or env_id == "SimpleBandit-bsuite"  # whose every step ends an episode


def test_the_list_holds_every_gymnax_environment_that_works():
    assert UNLIKE < set(GYMNAX) == set(gymnax.registered_envs) - {"MNISTBandit-bsuite"}


@pytest.fixture(scope="module")
def episode():
    """From an id and an action: the flags of one episode of at most 250 steps, never reset."""

    def run(env_id: str, action: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        env = make_env(env_id)

        def step(state, key):
            after = env.step(key, state, action)
            return after.state, (after.terminated, after.truncated)

        keys = jax.random.split(jax.random.key(0), 250)
        return jax.tree.map(np.asarray, jax.jit(lambda: jax.lax.scan(step, env.reset(keys[0])[0], keys)[1])())

    return run


def test_pendulum_never_ends_and_is_cut_off_after_200_steps(episode):
    terminated, truncated = episode("Pendulum-v1", jnp.zeros(1))
    assert not terminated.any()
    assert np.argmax(truncated) == 199


def test_cartpole_ends_by_falling_and_that_is_no_cut(episode):
    """Pushed to the left for ever it falls within a dozen steps."""
    terminated, truncated = episode("CartPole-v1", jnp.int32(0))
    assert 5 <= np.argmax(terminated) < 15
    assert not truncated.any()


def test_discrete_observations_are_one_hot():
    """FrozenLake's observation is the number of one of 16 squares."""
    env = make_env("FrozenLake-misc")
    state, obs = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(obs, np.eye(16)[0])
    keys = jax.random.split(jax.random.key(0), 12)  # the ice is slippery: several squares are reached
    after = jax.vmap(lambda key: env.step(key, state, jnp.int32(2)))(keys)
    np.testing.assert_array_equal(after.obs, np.eye(16)[np.asarray(after.state.position)])
    assert len(np.unique(after.state.position)) > 1


def play(env_id: str, actions: list[float], sign: float = 1.0) -> list[tuple[float, float, bool, bool]]:
    """Observation, reward, terminated, truncated of each step of a probe, from a start with this sign."""
    env = PROBES[env_id]
    state, _ = env.reset(jax.random.key(0))
    state = state._replace(sign=jnp.asarray(sign, state.sign.dtype))
    out = []
    for action in actions:
        obs = float(env.observe(state))
        after = env.step(jax.random.key(0), state, jnp.asarray(action))
        out.append((obs, float(after.reward), bool(after.terminated), bool(after.truncated)))
        state = after.state
    return out


def test_probes_do_what_their_table_says():
    assert play("Probe-Constant", [0]) == [(0.0, 1.0, True, False)]
    for sign in (-1.0, 1.0):
        assert play("Probe-Observation", [0], sign) == [(sign, sign, True, False)]
        bit = (sign + 1) / 2
        for action in (0, 1):
            reward = 1.0 if action == bit else -1.0
            assert play("Probe-ActionObserved", [action], sign) == [(bit, reward, True, False)]
    assert play("Probe-Delay", [0, 0]) == [(0.0, 0.0, False, False), (1.0, 1.0, True, False)]
    assert [play("Probe-Action", [a])[0][1] for a in (0, 1)] == [-1.0, 1.0]
    assert play("Probe-Truncation", [0] * 5) == [(0.0, 1.0, False, False)] * 4 + [(0.0, 1.0, False, True)]
    assert play("Probe-Target", [0.25])[0][1] == pytest.approx(-0.0625)


@pytest.mark.parametrize("env_id", PROBES)
def test_probes_reset_and_step_under_jit_and_vmap(env_id):
    env = make_env(env_id)

    def one(key):
        state, obs = env.reset(key)
        return obs, env.step(key, state, random_action(env, key))

    obs, step = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 64))
    assert obs.shape == step.obs.shape == (64, 1)
    assert obs.dtype == step.obs.dtype == env.obs_dtype
    assert bool(jnp.all(step.terminated | step.truncated)) == (env.max_steps == 1)
    assert env_id not in ("Probe-Observation", "Probe-ActionObserved") or len(np.unique(obs)) == 2


def test_an_unknown_id_is_refused_with_near_ones():
    with pytest.raises(UsageError, match=r"env='Cartpole' is unknown.*CartPole-v1"):
        make_env("Cartpole")
    with pytest.raises(UsageError, match=r"MNISTBandit-bsuite.*downloads"):
        make_env("MNISTBandit-bsuite")


def test_one_object_per_id():
    """So that compiled programs are shared."""
    assert make_env("CartPole-v1") is make_env("CartPole-v1")
