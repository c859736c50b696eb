"""A user's own environment, networks and schedule: by object or by name, compiled for each, and missed when missing."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_envs import Clock
from needs import one_more_case
from tiny import tiny

import isobatch as ib
from isobatch.envs import registry
from isobatch.networks import custom_networks
from isobatch.settings import schedules
from isobatch.training import compiled_program
from isobatch.training.custom_parts import with_custom_parts


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a test registers are gone after it."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    monkeypatch.setattr(custom_networks, "_REGISTERED", {})
    monkeypatch.setattr(schedules, "_REGISTERED", {})
    registry.make_env.cache_clear()


class Bandit(ib.JaxEnvironment):
    """One step; the reward is the number of the action, times a factor."""

    obs_shape, action_space, max_steps = (1,), ib.Discrete(2), 1

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> ib.Step:
        return ib.Step(state + 1, jnp.zeros(1), self.factor * action, jnp.array(True), jnp.array(False))


@dataclass(frozen=True)
class EqualBandit(Bandit):
    factor: float = 1.0


def returns(result: ib.Result) -> np.ndarray:
    return result.metrics["charts/episodic_return"]


def test_objects_of_one_class_are_told_apart() -> None:
    """Each result means its own environment, also after another one of the class was trained."""
    one, ten = ib.train(tiny(), env=Bandit(1.0)), ib.train(tiny(), env=Bandit(10.0))
    assert (one.config.env, ten.config.env) == ("Bandit", "Bandit-2")
    np.testing.assert_allclose(returns(ten)[0], 10 * returns(one)[0])
    assert ib.evaluate(one, 4).returns.max() <= 1
    assert ib.evaluate(ten, 4, deterministic=False).returns.max() == 10


def test_equal_objects_share_their_name_and_program() -> None:
    ib.train(tiny(), env=EqualBandit(2.0))
    programs = len(compiled_program._PROGRAMS)
    assert ib.train(tiny(), env=EqualBandit(2.0)).config.env == "EqualBandit"
    assert len(compiled_program._PROGRAMS) == programs


def test_a_name_that_means_another_environment_now_is_compiled_again() -> None:
    ib.register_env("Mine", Bandit(1.0))
    one = ib.train(tiny(env="Mine"))
    ib.register_env("Mine", Bandit(10.0))
    np.testing.assert_allclose(returns(ib.train(tiny(env="Mine")))[0], 10 * returns(one)[0])


def test_objects_of_gymnax() -> None:
    env, _ = gymnax.make("CartPole-v1")
    config = tiny(num_envs=4, num_steps=8)
    same = ib.train(config.replace(env="CartPole-v1"))
    np.testing.assert_array_equal(returns(ib.train(config, env=env)), returns(same))


class Renamed(Clock):
    """Has no id."""


@pytest.mark.parametrize("env", [Renamed, Renamed(), lambda **kwargs: Renamed(**kwargs)], ids=["class", "object", "fn"])
def test_environments_of_gymnasium(env: Any) -> None:
    result = ib.train(tiny(), env=env)
    assert result.env_steps == result.config.env_steps
    assert ib.evaluate(result.agent(), 2).returns.shape == (1, 2)


def test_wrappers_without_an_id_are_copied() -> None:
    wrapped = gymnasium.wrappers.TimeLimit(Renamed(), max_episode_steps=3)
    result = ib.train(tiny(), env=wrapped)
    assert result.config.env == "Renamed"
    assert np.nanmax(result.metrics["charts/episodic_length"]) == 3


class NoStep(Bandit):
    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> Any:
        return state, jnp.zeros(1)


class OtherShape(Bandit):
    obs_shape = (2,)


@dataclass
class Unhashable(Bandit):
    factor: float = 1.0


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        (NoStep(), "env='NoStep' gives a tuple from step: use isobatch.Step."),
        (OtherShape(), r"shows observations float32\[1\] in reset: obs_shape and obs_dtype say float32\[2\]"),
        (Unhashable(), r"cannot be hashed: use a plain class or @dataclass\(frozen=True\)"),
        (Bandit, r"env=Bandit is a class: use an object of it, Bandit\(\)"),
        ("CartPole-v1", "is no environment: use an object of isobatch.JaxEnvironment, .* an id goes into the config"),
        (object(), "is no environment"),
    ],
)
def test_what_is_wrong_with_an_environment_is_named(env: Any, complaint: str) -> None:
    with pytest.raises(ib.UsageError, match=complaint):
        ib.train(tiny(), env=env)


def test_staggered_resets_need_a_clock() -> None:
    with pytest.raises(ib.UsageError, match=r"Bandit has no at_time\(state, time\): write it, or drop the setting"):
        ib.train(tiny(staggered_resets=True), env=Bandit())


class Lines(ib.Networks):
    """Linear policy and value."""

    policy: "Line"
    weights: jax.Array

    def value(self, obs: jax.Array) -> jax.Array:
        return obs @ self.weights


class Line(eqx.Module):
    weights: jax.Array
    activation: Any = jnp.tanh

    def __call__(self, obs: jax.Array) -> ib.Categorical:
        return ib.Categorical(self.activation(obs @ self.weights))


def lines(config: ib.Config, obs_shape: tuple[int, ...], action_space: Any, seed: int) -> Lines:
    rng = np.random.default_rng(seed)
    weights = [jnp.asarray(rng.normal(size=(obs_shape[0], n)), jnp.float32) for n in (action_space.n, 1)]
    return Lines(Line(weights[0], lambda x: jnp.tanh(x)), weights[1][:, 0])  # a new lambda for each seed


UNLIKE = {("ppo-ewma", "Probe-ActionObserved"), ("reinforce", "host_envs:Clock-v0")}


@pytest.mark.parametrize(
    ("algo", "env"),
    [
        pytest.param(algo, env, marks=[] if (algo, env) in UNLIKE else one_more_case)
        for algo in ("a2c", "ppo", "ppo-ewma", "reinforce")
        for env in ("Probe-ActionObserved", "host_envs:Clock-v0")
    ],
)
def test_custom_networks_train(algo: str, env: str) -> None:
    config = tiny(algo, env="host_envs:Short-v0" if algo == "reinforce" and "host" in env else env)
    result = ib.train(config, networks=lines, num_seeds=2)
    before = lines(config, (1,), ib.Discrete(2), 0).policy.weights
    after = result.states.networks.policy.weights
    assert result.config.networks == "lines"
    assert np.isfinite(after).all()
    assert before.size != after[0].size or not np.array_equal(after[0], before)
    assert result.agent(seed=1).learned.seed == 1


def test_custom_networks_start_where_the_factory_says_and_are_the_same_again(tmp_path: Path) -> None:
    config = tiny()
    whole = ib.train(config, networks=lines, run_dir=tmp_path / "run", checkpoint_interval=4)
    (tmp_path / "run" / "checkpoints" / "000000012.checkpoint").unlink()
    again = ib.train(config, networks=lines, run_dir=tmp_path / "run", resume=True, checkpoint_interval=4)
    np.testing.assert_array_equal(again.states.networks.weights, whole.states.networks.weights)
    assert ib.load_agent(tmp_path / "run").predict(np.zeros(1))[0] in (0, 1)


def test_what_custom_networks_cannot_do_is_one_sentence(tmp_path: Path) -> None:
    needs = "needs the layers of the networks of this package, and these are Lines: use networks='standard'"
    with pytest.raises(ib.UsageError, match=rf"an auxiliary phase \(ppg\) {needs}"):
        ib.train(tiny("ppg"), networks=lines)
    ib.train(tiny(), networks=lines, run_dir=tmp_path / "run")
    with pytest.raises(ib.UsageError, match=f"a diagnosis {needs}"):
        ib.diagnose(tmp_path / "run", ib.LabOptions(sections="cosines"))


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        (lambda *_: eqx.nn.Identity(), "made a Identity: derive it from isobatch.Networks"),
        (
            lambda *_: Lines(Line(jnp.zeros((1, 2), int)), jnp.zeros(1)),
            "networks has policy.weights=.* cannot be",
        ),
    ],
)
def test_what_is_wrong_with_networks_is_named(factory: Any, complaint: str) -> None:
    with pytest.raises(ib.UsageError, match=complaint):
        ib.train(tiny(), networks=factory)


@pytest.mark.parametrize("env", [pytest.param("Probe-ActionObserved", marks=one_more_case), "host_envs:Clock-v0"])
def test_schedules_of_one_name_are_compiled_each(env: str) -> None:
    def halves(power: int) -> Any:
        def fall(progress: jax.Array) -> jax.Array:
            return 0.5**power * (1 - progress)

        return fall

    config, rates = tiny(env=env, learning_rate=1.0, max_grad_norm=1e-3), []
    for power in (1, 2):
        result = ib.train(config, learning_rate_schedule=halves(power))
        rates.append(result.metrics["charts/learning_rate"])
        assert result.config.lr_schedule == ("fall" if power == 1 else "fall-2")
    np.testing.assert_allclose(rates[0], 0.5 * (1 - np.arange(12) / 12), rtol=1e-5)
    np.testing.assert_allclose(rates[1], rates[0] / 2, rtol=1e-5)


def test_a_schedule_gives_one_number() -> None:
    with pytest.raises(ib.UsageError, match=r"gives an array of shape \(2,\): use one number"):
        ib.train(tiny(), learning_rate_schedule=lambda progress: jnp.ones(2) * progress)
    with pytest.raises(ib.UsageError, match="name='linear' is the schedule of this package"):
        ib.register_schedule("linear", lambda progress: 1.0)


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        (dict(env=Bandit()), "env='Bandit' is unknown.*isobatch.register_env"),
        (dict(networks=lines), "networks='lines' is not registered .* isobatch.register_networks"),
        (
            dict(learning_rate_schedule=lambda p: 1 - p),
            "lr_schedule='lambda' is not valid: .*isobatch.register_schedule",
        ),
    ],
)
def test_a_run_whose_parts_are_missing_says_so(part: Any, complaint: str, tmp_path: Path) -> None:
    """As in a process that has not registered them."""
    ib.train(tiny(), run_dir=tmp_path / "run", **part)
    for place in (registry._REGISTERED, custom_networks._REGISTERED, schedules._REGISTERED):
        place.clear()
    registry.make_env.cache_clear()
    with pytest.raises(ib.UsageError, match=complaint):
        ib.load_agent(tmp_path / "run")
    again = ib.train(tiny(), run_dir=tmp_path / "run", resume=True, **part)
    assert again.iteration == 12


class Seen(Bandit):
    """Shows something that weights can be multiplied with."""

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.int32(0), jnp.ones(1)


def falling(progress: jax.Array) -> jax.Array:
    return 1 - progress**2


@cache
def pure_run() -> tuple[Lines, Lines, dict[str, np.ndarray]]:
    """`make_train` with all three: the networks before and after, and the metrics."""
    config = tiny(learning_rate=0.5)
    init, run = ib.make_train(config, env=Seen(10.0), networks=lines, learning_rate_schedule=falling)
    before = init(3)
    after, metrics = jax.jit(run)(before, config.hypers)
    return before.networks, after.networks, jax.tree.map(np.asarray, metrics)


def test_a_pure_run_of_an_environment_of_ones_own() -> None:
    """Every step is an episode, and its return 0 or 10."""
    _, _, metrics = pure_run()
    np.testing.assert_array_equal(metrics["charts/episodes"], 32)
    np.testing.assert_array_equal(metrics["charts/episodic_length"], 1)
    tens = metrics["charts/episodic_return"] * 32 / 10
    np.testing.assert_allclose(tens, np.round(tens), atol=1e-4)
    assert 0 < tens[0] < tens[-1] <= 32


def test_a_pure_run_of_networks_of_ones_own() -> None:
    before, after, _ = pure_run()
    np.testing.assert_array_equal(before.policy.weights, lines(tiny(), (1,), ib.Discrete(2), 3).policy.weights)
    assert (np.asarray(after.policy.weights) != before.policy.weights).all()


def test_a_pure_run_with_a_schedule_of_ones_own() -> None:
    _, _, metrics = pure_run()
    np.testing.assert_allclose(metrics["charts/learning_rate"], 0.5 * (1 - (np.arange(12) / 12) ** 2), rtol=1e-5)


def test_a_config_without_custom_parts_stays_as_it_is() -> None:
    config = tiny()
    assert with_custom_parts(config) is config
