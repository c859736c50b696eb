"""PPG's auxiliary phase: the joint loss against NumPy, one step by hand, the whole phase step by step."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.flatten_util import ravel_pytree
from made_up import OBS, make_actor_critic, make_config, make_learner, with_fields

from isobatch.envs.registry import make_env
from isobatch.errors import UsageError
from isobatch.learning.auxiliary_phase import AuxiliaryBatch, auxiliary_phase, auxiliary_step, joint_loss
from isobatch.learning.iteration import iterate
from isobatch.learning.minibatches import minibatch_indices
from isobatch.learning.policy_phase import prepare
from isobatch.learning.state import Phase, initial_state
from isobatch.rollouts.jax_rollout import collect
from isobatch.settings.config import Config

pytestmark = pytest.mark.usefixtures("float64")

CLOSE = dict(rtol=1e-6, atol=1e-6)
P, T, N = 2, 6, 4  # policy iterations per phase, steps, environments


def phasic_config(**settings) -> Config:
    defaults = dict(objective="kl", policy_iterations_per_phase=P, aux_minibatches=2, aux_epochs=2, beta_clone=0.7)
    return make_config(**(defaults | settings))


def make_batch(config: Config, size: int = 10) -> AuxiliaryBatch:
    """Observations, targets, and an old policy that is another one."""
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(size, OBS)))
    return AuxiliaryBatch(obs, jnp.asarray(rng.normal(size=size)), make_actor_critic(config, 9).policy(obs))


def make_phase() -> Phase:
    rng = np.random.default_rng(1)
    return Phase(jnp.asarray(rng.normal(size=(P, T, N, OBS))), jnp.asarray(rng.normal(size=(P, T, N))))


def joint_loss_by_hand(shapes: list[tuple[int, ...]], batch: AuxiliaryBatch, vector: np.ndarray) -> float:
    """From one flat vector of the parameters of dual networks with one hidden layer of tanh; beta_clone 0.7."""
    parts = [
        part.reshape(s)
        for part, s in zip(np.split(vector, np.cumsum([math.prod(s) for s in shapes])), shapes, strict=False)
    ]
    w1, b1, w2, b2, v1, c1, v2, c2, a, d = parts
    obs = np.asarray(batch.obs)
    features = np.tanh(obs @ w1 + b1)
    new = np.array([oracles.softmax(row) for row in features @ w2 + b2])
    old = np.array([oracles.softmax(row) for row in np.asarray(batch.old.logits)])
    value, aux_value = (np.tanh(obs @ v1 + c1) @ v2 + c2)[:, 0], (features @ a + d)[:, 0]
    return oracles.ppg_joint_loss(aux_value, value, np.asarray(batch.target), old, new, 0.7)


def test_joint_loss_and_its_gradient_agree_with_numpy():
    config = phasic_config()
    networks, batch = make_actor_critic(config, 0), make_batch(config)
    (ours, _), gradient = jax.value_and_grad(joint_loss, has_aux=True)(networks, batch, 0.7)
    leaves = jax.tree.leaves(networks)
    by_hand = partial(joint_loss_by_hand, [leaf.shape for leaf in leaves], batch)
    vector = np.concatenate([np.ravel(leaf) for leaf in leaves])
    np.testing.assert_allclose(ours, by_hand(vector), **CLOSE)
    np.testing.assert_allclose(ravel_pytree(gradient)[0], oracles.numerical_gradient(by_hand, vector), **CLOSE)


def test_metrics_are_the_three_parts():
    config = phasic_config()
    networks, batch = make_actor_critic(config, 0), make_batch(config)
    total, metrics = joint_loss(networks, batch, 0.7)
    assert float(total) == pytest.approx(
        float(metrics["aux/value_loss"] + 0.7 * metrics["aux/clone_kl"] + metrics["aux/true_value_loss"])
    )
    assert float(metrics["aux/clone_kl"]) == pytest.approx(float(jnp.mean(batch.old.kl(networks.policy(batch.obs)))))


def test_cloning_holds_on_to_the_old_policy():
    """KL[old, new] and not the reverse; zero, with a zero gradient, while nothing has moved."""
    config = phasic_config()
    networks = make_actor_critic(config, 0)
    batch = with_fields(make_batch(config), old=networks.policy(make_batch(config).obs))
    weak, strong = (jax.grad(lambda n: joint_loss(n, batch, b)[0])(networks) for b in (0.0, 100.0))  # noqa: B023
    for a, b in zip(jax.tree.leaves(weak), jax.tree.leaves(strong), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(weak.policy.head.weight, 0.0, atol=1e-12)  # nothing else trains the policy's head


def test_one_step_is_one_of_the_auxiliary_optimizer():
    """SGD at its own rate of 0.2, gradients clipped to a global norm of 0.5, whatever the policy phase's rate is."""
    config = phasic_config(optimizer="sgd", aux_learning_rate=0.2, learning_rate=77.0, max_grad_norm=0.5)
    learner, batch = make_learner(config), make_batch(config)
    gradient = jax.grad(lambda n: joint_loss(n, batch, 0.7)[0])(learner.networks)
    clipped = oracles.clip_global_norm(np.asarray(ravel_pytree(gradient)[0]), 0.5)
    after, _ = auxiliary_step(config, batch, learner, config.hypers)
    np.testing.assert_allclose(
        ravel_pytree(after.networks)[0], ravel_pytree(learner.networks)[0] - 0.2 * clipped, rtol=1e-9
    )


def test_the_auxiliary_optimizer_has_moments_of_its_own():
    """Adam's state of the policy phase, here of 5 steps, neither changes an auxiliary step nor is changed by it."""
    config = phasic_config(optimizer="adam")
    learner, batch = make_learner(config), make_batch(config)
    busy = with_fields(learner, optimizer=jax.tree.map(lambda leaf: leaf + 5, learner.optimizer))
    (after, _), (expected, _) = (auxiliary_step(config, batch, one, config.hypers) for one in (busy, learner))
    jax.tree.map(np.testing.assert_array_equal, after.networks, expected.networks)
    jax.tree.map(np.testing.assert_array_equal, after.optimizer, busy.optimizer)


@pytest.mark.parametrize("scheme", ["shuffle", "envs"])
def test_a_phase_is_its_steps_one_after_the_other(scheme):
    """E_aux = 2 epochs of N_pi x 2 minibatches over all N_pi x T x N samples; pi_old is the policy before the phase."""
    config = phasic_config(minibatch_scheme=scheme, proximal_policy="ewma")
    learner, phase, key = make_learner(config), make_phase(), jax.random.key(4)
    after, metrics = jax.jit(partial(auxiliary_phase, config))(learner, phase, config.hypers, key)

    old, step = learner.networks.policy, jax.jit(partial(auxiliary_step, config))
    expected, seen, visits = learner, [], np.zeros((P, T, N), int)
    for epoch_key in jax.random.split(key, 2):
        for part in np.asarray(minibatch_indices(epoch_key, P * N, T, 2 * P, scheme)):
            t, row = part // (P * N), part % (P * N)  # a row is one environment of one iteration
            sample = (row // N, t, row % N)
            np.add.at(visits, sample, 1)
            obs = phase.obs[sample]
            expected, one = step(AuxiliaryBatch(obs, phase.target[sample], old(obs)), expected, config.hypers)
            seen.append(one)
    np.testing.assert_array_equal(visits, 2)
    np.testing.assert_allclose(
        ravel_pytree(after.networks)[0], ravel_pytree(expected.networks)[0], rtol=1e-9, atol=1e-12
    )
    for name in seen[0]:
        assert float(metrics[name]) == pytest.approx(np.mean([float(one[name]) for one in seen]))


def test_the_average_starts_anew_after_the_phase():
    """As by an update with beta = 0: the current weights, weight 1, age 0 (paper, section 4; reference code)."""
    config = phasic_config(proximal_policy="ewma", aux_learning_rate=0.1)
    learner = make_learner(config)
    after, _ = jax.jit(partial(auxiliary_phase, config))(learner, make_phase(), config.hypers, jax.random.key(4))
    jax.tree.map(np.testing.assert_array_equal, after.proximal.params, after.networks.policy)
    assert (float(after.proximal.weight), float(after.proximal.age)) == (1.0, 0.0)
    assert not np.allclose(after.networks.policy.head.weight, learner.networks.policy.head.weight)
    jax.tree.map(np.testing.assert_array_equal, after.optimizer, learner.optimizer)


def test_the_phase_holds_what_its_iterations_saw_and_ends_with_the_last_of_them():
    """N_pi = 2, data one iteration old: updates 0, 1 | 2, 3 happen in iterations 1, 2 | 3, 4. The observations
    are those of the rollouts in use, the targets theirs; the auxiliary phase follows updates 1 and 3."""
    config = phasic_config(env="Probe-ActionObserved", staleness=1, total_timesteps=120, num_minibatches=2)
    env = make_env(config.env)
    state, states, metrics = initial_state(config, env, 0), [], []
    step = jax.jit(partial(iterate, config, env))
    for i in range(5):
        states.append(state)
        state, one, _ = step(state, config.hypers, jnp.int32(i))
        metrics.append(one)
    assert [float(one["aux/value_loss"]) > 0 for one in metrics] == [False, False, True, False, True]
    for slot, iteration in enumerate((2, 3)):  # in the phase of iterations 3 and 4: rollouts collected in 2 and 3
        then = states[iteration]
        key = jax.random.split(then.key, 5)[2]
        _, segment, _, _ = collect(env, then.networks, then.envs, None, 10.0, T, key)
        np.testing.assert_array_equal(state.learning.phase.obs[slot], segment.obs)
        now = states[iteration + 1]
        batch, *_ = prepare(config, segment, now.networks.policy, None, now.learning.advantage_moments, config.hypers)
        np.testing.assert_allclose(state.learning.phase.target[slot], batch.target, rtol=1e-9)


def test_without_an_average_there_is_none_to_reset():
    config = phasic_config()
    after, _ = auxiliary_phase(config, make_learner(config), make_phase(), config.hypers, jax.random.key(4))
    assert after.proximal is None


def test_a_phase_teaches_the_policy_s_features_the_value_and_keeps_the_policy():
    """Targets that are a function of the observation: the auxiliary value learns them, the policy stays close."""
    config = phasic_config(aux_epochs=60, aux_learning_rate=3e-2, beta_clone=10.0)
    learner, phase = make_learner(config), make_phase()
    phase = Phase(phase.obs, jnp.tanh(phase.obs[..., 0]))
    after, _ = jax.jit(partial(auxiliary_phase, config))(learner, phase, config.hypers, jax.random.key(0))

    def losses(networks):
        flat = AuxiliaryBatch(phase.obs, phase.target, learner.networks.policy(phase.obs))
        return joint_loss(networks, flat, 1.0)[1]

    before, now = losses(learner.networks), losses(after.networks)
    assert now["aux/value_loss"] < 0.1 * before["aux/value_loss"]
    assert now["aux/true_value_loss"] < 0.1 * before["aux/true_value_loss"]
    assert now["aux/clone_kl"] < 0.01


def test_minibatches_that_do_not_fit_are_refused():
    """4 environments x 6 steps: 3 divides 24 samples evenly, but makes no whole rows and no equal chunks of one."""
    assert phasic_config(aux_minibatches=3).aux_minibatches == 3
    with pytest.raises(UsageError, match=r"aux_minibatches=3 .*use 1 or 2 or 4 or 8"):
        phasic_config(aux_minibatches=3, minibatch_scheme="envs")
    with pytest.raises(UsageError, match=r"aux_minibatches=5 .*use 2 or 3 or 4 or 6"):
        phasic_config(aux_minibatches=5)
