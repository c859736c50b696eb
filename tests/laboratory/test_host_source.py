"""The laboratory on environments outside JAX: known answers, the same numbers as inside, no rows that are no steps."""

import json
import multiprocessing
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import host_envs  # registers its environments
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from later import GAMMA, LAMBDA, decided, exact
from needs import needs_envpool, needs_procgen, one_more_case
from tiny import tiny
from trained import as_if_trained, write_run

from isobatch.cli.main import main
from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.envs.watchdog import Watched
from isobatch.errors import RunError, UsageError
from isobatch.gradients.variance import direct
from isobatch.laboratory import host_source as outside
from isobatch.laboratory import per_sample
from isobatch.laboratory.batches import batch_products, samples_of
from isobatch.laboratory.chains import true_advantages
from isobatch.laboratory.diagnosis import Diagnosis, diagnose
from isobatch.laboratory.host_source import LONGEST_WAIT, HostSource
from isobatch.laboratory.inner_products import gram
from isobatch.laboratory.jax_source import JaxSource
from isobatch.laboratory.landscape import at_geometry, measure, weights_of
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.per_sample import vanilla
from isobatch.laboratory.sections import ALL
from isobatch.laboratory.sections.aggregations import Aggregations
from isobatch.laboratory.sections.geometries import Geometries
from isobatch.laboratory.sections.lags import lag_sums
from isobatch.laboratory.source import Source, draws
from isobatch.learning.state import TrainState, initial_state
from isobatch.settings.config import Config
from isobatch.studies.claims import STUDIES
from isobatch.studies.grid import Measurement, on_environments
from isobatch.studies.measurements import measure as measure_policies

pytestmark = pytest.mark.xdist_group("host laboratory")
MODES = ("disabled", "same-step", "next-step")
SMALL: dict[str, Any] = dict(chains=8, batches=4, geometries="8x4,4x8", lambdas=(0.0, 1.0))
WORDS = ["--chains", "8", "--batches", "4", "--geometries", "8x4,4x8", "--lambdas", "0,1", "--quiet"]


class Forever(gymnasium.Env):
    """Pays 1 in every step and never ends by itself."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 1).astype(np.float32)

    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, False, False, {}


gymnasium.register("Forever-v0", Forever)
gymnasium.register("Five-v0", Forever, max_episode_steps=5)


def source_of(config: Config, state: TrainState | None = None) -> Source:
    env = environment_of(config)
    state = initial_state(config, env, 0) if state is None else state
    return HostSource(config, env, state, 60.0) if isinstance(env, HostEnvironment) else JaxSource(config, env, state)


@pytest.mark.parametrize("mode", MODES)
def test_every_quantity_of_the_landscape_agrees_with_enumeration(mode: str) -> None:
    """As `test_chains_and_landscape` has it for environments inside: every episode can be listed."""
    config = tiny("ppo", "later:Later-v0", gamma=GAMMA, gae_lambda=LAMBDA, autoreset=mode)
    state = decided(initial_state(config, environment_of(config), 3))
    source = source_of(config, state)
    chains = source.chains(256, 4, 0)
    products, _ = measure(config, state.networks.policy, chains, [(1, LAMBDA), (2, LAMBDA)])
    for steps in (1, 2):
        envs, truth = 8 // steps, exact(state.networks, steps)
        found = at_geometry(products[steps, LAMBDA], envs, (steps, LAMBDA), False, weights_of(chains.count))
        expected = {
            "signal": truth.signal,
            "squared_bias": truth.squared_bias,
            "individual": truth.sample / 8,
            "variance": truth.variance / envs + (1 - 1 / envs) * truth.shared,
        }
        for name, value in expected.items():
            values = getattr(found, name)
            assert abs(values[0] - value) < 4 * values[1:].std() + 1e-9, (name, steps)
        assert found.variance[0] > 4 * found.variance[1:].std()
    products = batch_products(config, state.networks.policy, source, 4, 2, 128, 1)
    several = [float(direct(products[i : i + 32, i : i + 32])(np.ones(32))) for i in range(0, 128, 32)]
    assert abs(np.mean(several) - truth.variance / 4) < 5 * np.std(several, ddof=1) / 2


CARTPOLES = ["CartPole-v1", "gymnasium/CartPole-v1", pytest.param("envpool/CartPole-v1", marks=needs_envpool)]


@cache
def cartpole(env: str) -> dict[str, np.ndarray]:
    """What one policy comes to, each as its value followed by resamples."""
    config = tiny("ppo", env, gamma=0.95, gae_lambda=1.0)
    state = as_if_trained(initial_state(config, environment_of(config), 0))
    policy = state.networks.policy
    chains = source_of(config, state).chains(96, 64, 0)
    weights = weights_of(96)
    products, _ = measure(config, policy, chains, [(64, 1.0)])
    point = at_geometry(products[64, 1.0], 2, (64, 1.0), False, weights)
    found = {name: getattr(point, name) for name in ("variance", "individual", "signal", "squared_bias")}
    found["signal to noise"] = point.signal / point.variance  # the inverse of the noise scale, which may be infinite
    correlation = lag_sums(config, policy, chains, 1.0).correlation(weights)
    return found | {f"correlation at {lag}": correlation[:, lag] for lag in (1, 4)}


@pytest.mark.parametrize("env", CARTPOLES[1:])
@one_more_case
def test_the_same_policy_on_the_same_task_measures_alike(env: str) -> None:
    inside, outside = cartpole("CartPole-v1"), cartpole(env)
    for name, there in inside.items():
        here = outside[name]
        spread = np.hypot(there[1:].std(), here[1:].std())
        assert abs(there[0] - here[0]) < 4 * spread, name
        if name in ("variance", "individual"):
            assert spread < 0.5 * there[0], name  # the comparison is worth something


@pytest.mark.parametrize("mode", MODES)
def test_columns_hold_real_steps_only(mode: str) -> None:
    """Clock's episodes last 3, 4, 5 steps in turn, every second one is cut off; rewards are of clock and action."""
    config = tiny("ppo", "host_envs:Clock-v0", autoreset=mode)
    state = as_if_trained(initial_state(config, environment_of(config), 0))
    segment = source_of(config, state).episodes(3, 40, 5)
    assert segment.valid is None
    clock, mark = np.asarray(segment.obs[..., 0]), np.asarray(segment.obs[..., 1])
    lengths = [host_envs.LENGTHS[k % 3] for k in range(12)]
    np.testing.assert_array_equal(clock, np.concatenate([np.arange(n) for n in lengths])[:40, None] * np.ones(3))
    episode = np.repeat(np.arange(12), lengths)[:40]
    np.testing.assert_allclose(mark - mark[0], 0.3 * episode[:, None] * np.ones(3), atol=1e-5)
    np.testing.assert_allclose(segment.reward, clock + 1 + 0.5 * (5 + segment.action), atol=1e-5)
    last = np.cumsum(lengths)[:10] - 1
    assert np.flatnonzero(segment.terminated[:, 0]).tolist() == [int(i) for i in last[::2]]
    assert np.flatnonzero(segment.truncated[:, 0]).tolist() == [int(i) for i in last[1::2]]
    # Behind a row is the next one, and at a time limit the observation that the episode ended with.
    value = state.networks.value
    for t in last[1::2]:
        final = jnp.asarray(np.stack([clock[t] + 1, mark[t]], axis=-1))
        np.testing.assert_allclose(segment.next_value[t], value(final), atol=1e-5)
    inner = np.setdiff1d(np.arange(39), last)
    np.testing.assert_allclose(segment.next_value[inner], segment.value[inner + 1], atol=1e-5)


def test_modes_of_resetting_show_the_same_steps() -> None:
    found = [source_of(tiny("ppo", "host_envs:Clock-v0", autoreset=mode)).episodes(3, 40, 5).obs for mode in MODES]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("mode", ["disabled", "next-step"])
def test_true_returns_play_on_and_stop_at_time_limits(mode: str) -> None:
    env = f"{__name__}:Forever-v0"
    config = tiny("ppo", env, gamma=GAMMA, autoreset=mode)
    source = source_of(config)
    assert (source.known_limit, source.time_limit) == (0, LONGEST_WAIT)
    chains = source.chains(4, LONGEST_WAIT, 0)
    returns = np.asarray(true_advantages(config, chains) + chains.segment.value)
    np.testing.assert_allclose(returns, 1 / (1 - GAMMA), rtol=0.03)  # of which 1 % is left to the value function

    config = tiny("ppo", f"{__name__}:Five-v0", gamma=GAMMA, autoreset=mode)
    chains = source_of(config).chains(4, 8, 0)
    segment = chains.segment
    returns = np.asarray(true_advantages(config, chains) + segment.value)
    cut = np.flatnonzero(segment.truncated[:, 0])
    assert len(cut)
    assert (np.diff(cut) == 5).all()
    for t in range(cut[-1] + 1):
        limit = cut[np.searchsorted(cut, t)]
        left = limit - t + 1
        expected = (1 - GAMMA**left) / (1 - GAMMA) + GAMMA**left * np.asarray(segment.next_value[limit])
        np.testing.assert_allclose(returns[t], expected, rtol=1e-4)

    without = config.replace(bootstrap=False)
    chains = source_of(without).chains(4, 8, 0)
    returns = np.asarray(true_advantages(without, chains) + chains.segment.value)
    cut = np.flatnonzero(chains.segment.truncated[:, 0])
    # Also behind the end of the chain: its episode is cut off there, five steps after the last one was.
    left = np.array([next(c for c in [*cut, cut[-1] + 5] if c >= t) - t + 1 for t in range(8)])
    np.testing.assert_allclose(returns, ((1 - GAMMA**left) / (1 - GAMMA))[:, None] * np.ones(4), rtol=1e-4)


def test_batches_are_of_environments_of_their_age() -> None:
    """Five-v0 is at step `age` mod 5 where nothing is reset in a step of its own."""
    source = source_of(tiny("ppo", f"{__name__}:Five-v0"))
    drawn = draws(7, 0)
    segments = list(source.batches(2, 5, drawn))
    for age, segment in zip(np.asarray(drawn.age), segments, strict=True):
        assert segment.reward.shape == (5, 2)
        begin = int(age * 5) % 5
        np.testing.assert_array_equal(np.flatnonzero(segment.truncated[:, 0]), [4 - begin])


def without_time(result: Diagnosis) -> str:
    """All numbers but the seconds, and what follows from them."""
    found = result.to_json()
    del found["sentences"]
    for row in found["geometries"]["rows"]:
        assert row.pop("seconds_per_batch") > 0
    return json.dumps(found)


def no_processes() -> bool:
    """Those that were killed need a moment to end."""
    until = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < until:
        time.sleep(0.05)
    return not multiprocessing.active_children()


def test_every_section_and_the_same_seed_gives_the_same_numbers(tmp_path: Path) -> None:
    settings: dict[str, Any] = dict(autoreset="next-step", normalize_observations=True, normalize_rewards=True)
    write_run(tmp_path / "run", tiny("ppo", "host_envs:Walk-v0", **settings))
    first, second = (
        diagnose(tmp_path / "run", LabOptions(**SMALL, sections=sections), out=tmp_path / sections)[0]
        for sections in ("all", "geometries,aggregations")  # chains and batches; whole episodes
    )
    assert tuple(first.sections) == ALL
    for row in first.get(Geometries).rows:
        assert row.variance.low <= row.variance.value <= row.variance.high
        assert row.measured_variance is not None
    assert first.get(Aggregations).episodes > 4
    again, before = json.loads(without_time(second)), json.loads(without_time(first))
    assert again == {name: before[name] for name in again}


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        pytest.param("host_envs:Walk-v0", dict(vectorization="async"), marks=one_more_case),
        pytest.param("envpool/Acrobot-v1", {}, marks=needs_envpool),
    ],
)
def test_who_is_faster_decides_nothing(env: str, settings: dict[str, Any]) -> None:
    source = source_of(tiny("ppo", env, **settings))
    for first, second in [
        [source.chains(20, 100, 3) for _ in range(2)],
        [list(source.batches(2, 4, draws(2, 0))) for _ in range(2)],
    ]:
        for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
            np.testing.assert_array_equal(one, other)
    assert no_processes()


def test_a_long_collection_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "SILENCE", 0.0)
    monkeypatch.setattr(outside, "ROWS", 2)
    write_run(tmp_path / "run", tiny("ppo", f"{__name__}:Five-v0"))
    sentences: list[str] = []
    shares: list[float] = []

    def watch(what: str, done: float) -> None:
        sentences.append(what)
        shares.append(done)

    diagnose(tmp_path / "run", LabOptions(**SMALL, sections="lags,geometries"), watch=watch)
    assert shares == sorted(shares)  # a bar that never goes back
    how_far = [
        re.fullmatch(r".*: lags, environments 1 to (\d+) of (\d+), step (\d+) of at most (\d+)", s) for s in sentences
    ]
    steps = [(int(m[3]), int(m[4])) for m in how_far if m]
    assert len(steps) > 2
    assert all(step <= most for step, most in steps)
    assert steps == sorted(steps)  # one collection, which several sections share


def test_the_command_says_what_cannot_be_seen(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path / "run", tiny("ppo", f"{__name__}:Five-v0"))
    words = ["diagnose", str(tmp_path / "run"), *WORDS, "--sections", "geometries"]
    assert main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The value function stands in for what would follow the" in out
    assert "--staggered-resets" not in out
    assert main([*words, "--staggered-resets", "true"]) == 2
    assert "staggered_resets=True sets the clock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("deed", "vectorization", "says"),
    [
        ("raise", "sync", r"environment 0 \(host_envs:Evil-v0\) raised ZeroDivisionError in step\(\): the cart"),
        ("nan-observation", "sync", r"environment 0 .* showed an observation that is not a finite number"),
        ("die", "async", r"environment \d .* died: its process ended with code 3"),
        ("hang", "async", r"environment \d .* did not answer within 2 seconds"),
    ],
)
def test_what_an_environment_does_wrong_is_said_and_processes_end(
    deed: str, vectorization: str, says: str, tmp_path: Path
) -> None:
    kwargs = {"deed": deed, "once": str(tmp_path / "once")}
    config = tiny("ppo", "host_envs:Evil-v0", env_kwargs=kwargs, vectorization=vectorization)
    write_run(tmp_path / "run", config)
    with pytest.raises(RunError, match=says + r".*, at its step 29\."):
        diagnose(tmp_path / "run", LabOptions(**SMALL), env_timeout=2.0 if deed == "hang" else 60.0)
    assert no_processes()


def test_an_interrupt_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run", tiny("ppo", "host_envs:Walk-v0", vectorization="async"))
    calls, wait = [], Watched.wait

    def interrupted(self: Watched) -> Any:
        calls.append(self)
        if len(calls) == 2:  # the first call starts the environments
            raise KeyboardInterrupt
        return wait(self)

    monkeypatch.setattr(Watched, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        diagnose(tmp_path / "run", LabOptions(**SMALL))
    assert no_processes()


IMPALA: dict[str, Any] = dict(encoder="impala", arrangement="shared", channels=(2, 2, 2))


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        pytest.param("host_envs:Pixels-v0", 40, marks=one_more_case),
        pytest.param("envpool/CoinrunEasy-v0", 1000, marks=needs_procgen),
    ],
)
def test_images_stay_bytes_and_their_gradients_have_inner_products(env: str, limit: int, tmp_path: Path) -> None:
    config = tiny("ppo", env, **IMPALA)
    source = source_of(config)
    assert (source.known_limit, source.time_limit) == (limit, min(limit, LONGEST_WAIT))
    segment = source.episodes(4, 8, 0)
    assert segment.obs.dtype == jnp.uint8
    assert source.obs_bytes == 2 * segment.obs[0, 0].size
    policy = initial_state(config, environment_of(config), 0).networks.policy
    samples = samples_of(config, segment)
    gradients = np.asarray(per_sample.per_sample_gradients(vanilla, policy, samples, microbatch=8), float)
    products = gradients @ gradients.T
    np.testing.assert_allclose(gram(vanilla, policy, samples), products, rtol=1e-3, atol=1e-4 * np.abs(products).max())


def test_a_gradient_of_large_samples_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny("ppo", "host_envs:Walk-v0")
    policy = as_if_trained(initial_state(config, environment_of(config), 0)).networks.policy
    rng = np.random.default_rng(0)
    samples = (
        jnp.asarray(rng.normal(size=(23, 2))),
        jnp.asarray(rng.integers(0, 2, 23)),
        jnp.asarray(rng.normal(size=23)),
    )
    whole = per_sample.mean_gradient(vanilla, policy, samples)
    monkeypatch.setattr(per_sample, "MOST_NUMBERS", 4 * 5)
    assert per_sample.at_once(samples) == 5
    np.testing.assert_allclose(per_sample.mean_gradient(vanilla, policy, samples), whole, rtol=1e-5, atol=1e-7)


@one_more_case
def test_studies_measure_policies_outside(tmp_path: Path) -> None:
    config = tiny("ppo", "host_envs:Walk-v0")
    rows = measure_policies(Measurement(config, ((8, 4), (4, 8))), tmp_path / "lab", lambda done: None)
    assert [(row["num_envs"], row["num_steps"]) for row in rows] == [(8, 4), (4, 8)] * 3
    assert all(row["variance_low"] <= row["variance"] <= row["variance_high"] for row in rows)


def test_a_study_on_another_backend() -> None:
    study = STUDIES["geometry"]
    moved = on_environments(study, ["gymnasium/CartPole-v1", "CartPole-v1"])
    own, both = study.grid("laptop"), moved.grid("laptop")
    cartpoles = [cell for cell in own.cells if cell.config.env == "CartPole-v1"]
    for env in ("gymnasium/CartPole-v1", "CartPole-v1"):
        there = [cell for cell in both.cells if cell.config.env == env]
        assert [cell.factors for cell in there] == [cell.factors for cell in cartpoles]
        assert [cell.config.replace(env="CartPole-v1") for cell in there] == [cell.config for cell in cartpoles]
    assert len(both.cells) == 2 * len(cartpoles)
    assert [each.config.env for each in moved.laboratory("laptop")] == ["gymnasium/CartPole-v1", "CartPole-v1"]
    with pytest.raises(
        UsageError, match="envs='LunarLander-v3' is not in this study at scale 'quick': use CartPole-v1"
    ):
        on_environments(study, ["LunarLander-v3"]).grid("quick")
