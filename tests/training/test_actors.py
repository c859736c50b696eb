"""Runs with actors: what collecting and learning at once may change, and what it may not."""

import shutil
import signal
from pathlib import Path
from typing import Any

import host_envs
import jax
import numpy as np
import pytest
from needs import needs_envpool, needs_ray, one_more_case
from tiny import tiny

import isobatch as ib
from isobatch.cli.main import main
from isobatch.envs.registry import environment_of
from isobatch.rollouts.actors.ledger import LedgerEntry
from isobatch.rollouts.actors.state import ActorsState
from isobatch.rollouts.host_rollout import replaced
from isobatch.settings.config import Config
from isobatch.training.async_program import AsyncProgram
from isobatch.training.checkpoints import flatten
from isobatch.training.host_program import HostProgram
from isobatch.training.metrics import read_metrics
from isobatch.training.program import Supervision
from isobatch.training.programs import initial_states, stack_hypers
from isobatch.training.schedule_file import entries_of
from isobatch.training.trainer import train
from isobatch.training.verification import first_difference

pytestmark = pytest.mark.xdist_group("actors")
WALK = "host_envs:Walk-v0"
ITERATIONS = 6
OPTIONS: dict[str, Any] = dict(checkpoint_interval=1, keep_checkpoints=ITERATIONS, log_interval=1, actor_kind="thread")


def walk(env: str = WALK, **settings: Any) -> Config:
    """Steps of random duration, and normalizers, which depend on the order of the data."""
    lag: dict[str, Any] = dict(actors=2, max_lag="2i") if "actors" not in settings else {}
    kwargs = {} if env != WALK else dict(env_kwargs={"naps": 0.002})
    return tiny("ppo", env, **(dict(total_timesteps=32 * ITERATIONS, normalize_observations=True,
                normalize_rewards=True) | kwargs | lag | settings))  # fmt: skip


def bits(states: Any) -> dict[str, bytes]:
    return {name: leaf.tobytes() for name, leaf in flatten(states).items() if not name.startswith("actors")}


def ran(program: Any, states: Any, hypers: Any) -> tuple[dict[str, bytes], np.ndarray]:
    try:
        chunk = program(program.begin(states, 0, Supervision(print, 60.0, actor_kind="thread")), hypers, 0, ITERATIONS)
    finally:
        program.end()
    return bits(chunk.states), np.asarray(chunk.table)


def assert_actors_without_lag_are_the_run_by_turns(config: Config) -> None:
    """The same bits, through all of the machinery: weights, optimizer, normalizers, environments and metrics."""
    states = initial_states(config, [0, 1])
    hypers = stack_hypers([config.hypers] * 2)
    expected, table = ran(HostProgram(config, environment_of(config), states, hypers, 1), states, hypers)
    actors = jax.vmap(lambda key, policy: ActorsState.start(config.actors, 0, key, policy))(
        states.key, (states.networks, states.obs_moments)
    )
    states = replaced(states, actors=actors)
    program = AsyncProgram(config, environment_of(config), states, hypers, 1)
    found, other = ran(program, states, hypers)
    older = {"envs/state/actions"} if config.actors > 1 else set()  # they keep some of episodes before, or zeros
    assert {name for name in expected if expected[name] != found[name]} <= older
    columns = [program.names.index(name) for name in program.names if not name.startswith("staleness/")]
    np.testing.assert_array_equal(table[:, :, : len(columns)], other[:, :, columns])


@pytest.mark.parametrize("env", [WALK, pytest.param("envpool/CartPole-v1", marks=needs_envpool)])
def test_an_actor_without_lag_is_the_run_by_turns(env: str):
    assert_actors_without_lag_are_the_run_by_turns(walk(env, actors=1, max_lag=0))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(dict(vectorization="async"), marks=one_more_case),
        pytest.param(dict(env="envpool/CartPole-v1"), marks=needs_envpool),
    ],
    ids=["processes", "EnvPool"],
)
def test_two_halves_are_two_actors_without_lag(kind: dict[str, Any]):
    """The halves that step by turns in a run without actors: three environments each, which make one group. Without
    normalizers, whose sums over all environments have another order where two rollouts are joined."""
    halves = dict(num_envs=6, total_timesteps=48 * ITERATIONS, actors=2, max_lag=0, schedule="fixed")
    plain = dict(normalize_observations=False, normalize_rewards=False)
    assert_actors_without_lag_are_the_run_by_turns(walk(**(kind | halves | plain)))


def test_max_lag_0_is_the_run_by_turns(tmp_path: Path):
    options = OPTIONS | {"actor_kind": "auto"}
    one = train(walk(actors=0), run_dir=tmp_path / "a", **options)
    two = train(walk(actors=2, max_lag=0), run_dir=tmp_path / "b", **options)
    assert bits(one.states) == bits(two.states)
    assert (tmp_path / "a" / "metrics.csv").read_bytes() == (tmp_path / "b" / "metrics.csv").read_bytes()


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose order is a function of its settings."""
    path = tmp_path_factory.mktemp("fixed") / "run"
    train(walk(schedule="fixed"), run_dir=path, **OPTIONS)
    return path


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose order time decided."""
    path = tmp_path_factory.mktemp("free") / "run"
    train(walk(), run_dir=path, **OPTIONS)
    return path


def assert_same_run(one: Path, other: Path) -> None:
    assert (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()
    assert entries_of(one) == entries_of(other)
    assert first_difference(one, other) is None


def test_the_fixed_schedule_is_the_same_in_every_run_and_in_processes(fixed: Path, tmp_path: Path):
    expected = [LedgerEntry(u, actor, u, max(0, u - 2)) for u in range(ITERATIONS) for actor in range(2)]
    assert entries_of(fixed) == expected
    train(walk(schedule="fixed"), run_dir=tmp_path / "processes", **(OPTIONS | {"actor_kind": "process"}))
    assert_same_run(fixed, tmp_path / "processes")


def test_the_data_is_as_old_as_the_schedule_says(fixed: Path):
    table = read_metrics(fixed)
    ages = np.minimum(np.arange(ITERATIONS), 2)
    np.testing.assert_array_equal(table["staleness/iterations"], ages)
    for name in ("env_steps", "env_steps_p95", "env_steps_max"):
        np.testing.assert_array_equal(table[f"staleness/{name}"], 32 * ages)


def test_any_run_can_be_had_again(free: Path, tmp_path: Path):
    entries = entries_of(free)
    assert max(entry.update - entry.version for entry in entries) <= 2
    train(walk(), run_dir=tmp_path / "again", replay=str(free), **OPTIONS)
    assert_same_run(free, tmp_path / "again")


def test_the_command_repeats_seeds_and_lines_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`--replay RUN` alone is that run, not one of its settings with the first seed."""
    run, again = tmp_path / "run", tmp_path / "again"
    train(walk(), run_dir=run, **(OPTIONS | dict(seed=3, num_seeds=2, log_interval=2)))
    words = ["train", "--replay", str(run), "--run-dir", str(again), "--actor-kind", "thread", "--quiet"]
    assert main(words) == 0, capsys.readouterr().err
    assert (run / "metrics.csv").read_bytes() == (again / "metrics.csv").read_bytes()


def test_a_replay_of_another_run_is_refused(free: Path, tmp_path: Path):
    with pytest.raises(ib.UsageError, match=r"gamma=0.5 is 0.99 in the run .*: use the same"):
        train(walk(gamma=0.5), run_dir=tmp_path / "a", replay=str(free), **OPTIONS)
    with pytest.raises(
        ib.UsageError, match=r"total_timesteps=640 are 20 updates, and the run .* made 6: use at most 192"
    ):
        train(walk(total_timesteps=640), run_dir=tmp_path / "b", replay=str(free), **OPTIONS)
    with pytest.raises(ib.UsageError, match=r"seed=3 is 0 in the run .*: use the same"):
        train(walk(), run_dir=tmp_path / "d", replay=str(free), seed=3, **OPTIONS)
    with pytest.raises(ib.UsageError, match=r"init_from='.*' is None in the run .*: use the same"):
        train(walk(), run_dir=tmp_path / "e", replay=str(free), init_from=free, **OPTIONS)
    with pytest.raises(ib.UsageError, match=r"has no schedule.csv: name the directory of a run with actors"):
        train(walk(), run_dir=tmp_path / "c", replay=str(tmp_path), **OPTIONS)


def forget_after(run: Path, iteration: int) -> None:
    """As if the run had been killed soon after that iteration."""
    for path in (run / "checkpoints").glob("*.checkpoint"):
        if int(path.stem) > iteration:
            path.unlink()


@pytest.mark.parametrize("after", [1, 4])
def test_resumed_it_is_the_run_that_was_left_alone(fixed: Path, tmp_path: Path, after: int):
    """Also in the middle of what was collected and not used yet: it is collected again, by the same policies."""
    run = Path(shutil.copytree(fixed, tmp_path / "run"))
    forget_after(run, after)
    result = train(walk(schedule="fixed"), run_dir=run, resume=True, **OPTIONS)
    assert result.env_steps == 32 * ITERATIONS
    assert_same_run(fixed, run)


def test_after_resume_the_lag_is_bounded_and_the_whole_can_be_replayed(free: Path, tmp_path: Path):
    """Data that was collected and not used before the stop is not used after it either."""
    run = Path(shutil.copytree(free, tmp_path / "run"))
    forget_after(run, 2)
    train(walk(), run_dir=run, resume=True, **OPTIONS)
    entries = entries_of(run)
    assert [entry.update for entry in entries] == [u for u in range(ITERATIONS) for _ in range(2)]
    assert max(entry.update - entry.version for entry in entries) <= 2
    train(walk(), run_dir=tmp_path / "again", replay=str(run), **OPTIONS)
    assert_same_run(run, tmp_path / "again")


def evil(deed: str, once: Path) -> Config:
    return walk("host_envs:Evil-v0", env_kwargs={"deed": deed, "once": str(once)}, total_timesteps=32 * 8)


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        ("raise", "thread"),
        ("hang", "thread"),
        pytest.param("die", "process", marks=one_more_case),
        pytest.param("nan-reward", "thread", marks=one_more_case),
        pytest.param("hang", "process", marks=one_more_case),
        pytest.param("raise", "process", marks=one_more_case),
    ],
)
def test_an_actor_that_fails_is_replaced_and_the_run_goes_on(deed: str, kind: str, tmp_path: Path):
    """One line says so; and the run can be had again, with the same new episodes in the same places."""
    said: list[str] = []
    options = OPTIONS | dict(actor_kind=kind, env_timeout=2.0 if deed == "hang" else 60.0)
    result = train(evil(deed, tmp_path / "once"), run_dir=tmp_path / "run", say=said.append, **options)
    assert result.env_steps == 32 * 8
    replaced_lines = [line for line in said if "is replaced, and its 2 environments start new episodes: " in line]
    assert len(replaced_lines) == 1
    entries = entries_of(tmp_path / "run")
    restarts = sum(entry.restarts for entry in entries)
    assert restarts == 1 or kind == "process"  # until a new one has started, the other may have done all that is left
    assert max(entry.update - entry.version for entry in entries) <= 2
    # The deed is done, so nothing fails now.
    train(evil(deed, tmp_path / "once"), run_dir=tmp_path / "again", replay=str(tmp_path / "run"), **options)
    assert_same_run(tmp_path / "run", tmp_path / "again")


def test_a_slow_environment_breaks_no_bound_and_is_not_given_up(tmp_path: Path):
    """From its 30th step on one copy takes a twentieth of a second for a step, which is within the time limit."""
    said: list[str] = []
    config = evil("slow", tmp_path / "once").replace(total_timesteps=32 * 16)
    result = train(config, run_dir=tmp_path / "run", say=said.append, **OPTIONS)
    assert (tmp_path / "once").exists()
    assert result.env_steps == 32 * 16
    assert not [line for line in said if "is replaced" in line]
    entries = entries_of(tmp_path / "run")
    assert max(entry.update - entry.version for entry in entries) <= 2
    train(config, run_dir=tmp_path / "again", replay=str(tmp_path / "run"), **OPTIONS)
    assert_same_run(tmp_path / "run", tmp_path / "again")


def test_an_actor_that_always_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_envs.os.path, "exists", lambda path: False)  # so that the deed is done again and again
    with pytest.raises(ib.RunError, match=r"actor \d failed \d times in a row.*the cart has left the universe"):
        train(evil("raise", tmp_path / "once").replace(num_steps=32, max_lag="2i", total_timesteps=128 * 4), **OPTIONS)


def test_a_killed_actor_is_replaced(tmp_path: Path):
    """SIGKILL of a process that collects. SIGTERM and SIGHUP, which all processes of a group get, it leaves to the
    learner."""
    said: list[str] = []
    killed: list[int] = []

    def watch(progress: Any) -> None:
        if not killed:
            children = Path("/proc/self/task").glob("*/children")
            pids = [int(pid) for path in children for pid in path.read_text().split()]
            mine = [pid for pid in pids if b"actors.processes" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            killed.append(mine[0])
            for pid in mine:
                host_envs.os.kill(pid, signal.SIGTERM)
                host_envs.os.kill(pid, signal.SIGHUP)
            host_envs.os.kill(mine[0], signal.SIGKILL)

    config = walk(total_timesteps=32 * 40)
    options = OPTIONS | dict(actor_kind="process", checkpoint_interval=40)
    result = train(config, run_dir=tmp_path / "run", say=said.append, watch=watch, **options)
    assert killed
    assert result.env_steps == 32 * 40
    assert any("ended with code -9" in line for line in said)
    assert not any(f"ended with code {code}." in line for line in said for code in (-15, -1))
    assert max(entry.update - entry.version for entry in entries_of(tmp_path / "run")) <= 2


@needs_ray
@one_more_case
@pytest.mark.filterwarnings("ignore:os.fork")  # of Ray, which starts its processes at once
def test_actors_of_a_ray_cluster(fixed: Path, tmp_path: Path):
    train(walk(schedule="fixed"), run_dir=tmp_path / "ray", **(OPTIONS | {"actor_kind": "ray"}))
    assert_same_run(fixed, tmp_path / "ray")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(actors=3), r"actors=3 does not divide num_envs=4 into equal groups: use actors=2, or num_envs=6"),
        (dict(actors=2, max_lag="1.5i"), r"max_lag='1.5i' is not valid: use whole iterations, as in 2i, or whole env"),
        (dict(actors=2, max_lag=5), r"max_lag=5 is less than one iteration of 32 environment steps.* use at least 32"),
        (dict(actors=0, max_lag=32), r"max_lag=32 is about data of actors, and there are none: use actors=2"),
        (dict(actors=2, staleness=1), r"staleness=1 holds back rollouts to imitate what actors=2 really do"),
        (dict(actors=2, num_shards=2), r"actors=2 and num_shards=2 both cut the environments"),
        (dict(actors=2, max_lag="twice"), r"max_lag='twice'"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict, words: str):
    with pytest.raises(ib.UsageError, match=words):
        walk(**settings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(actor_kind="process"), r"actor_kind='process' says where actors run, and this run has none"),
        (dict(actor_kind="auto", address="head:6379"), r"address='head:6379' is that of a Ray cluster"),
        (dict(actor_kind="auto", replay="nowhere"), r"replay='nowhere' has no schedule.csv"),
    ],
)
def test_options_of_actors_that_a_run_does_not_have(options: dict, words: str, tmp_path: Path):
    """Refused before anything is written."""
    with pytest.raises(ib.UsageError, match=words):
        train(walk(actors=0), run_dir=tmp_path / "run", **(OPTIONS | options))
    assert not (tmp_path / "run").exists()


def test_where_actors_collect_is_not_said_of_a_run_by_turns(tmp_path: Path):
    with pytest.raises(
        ib.UsageError, match=r"actor_kind='thread'.*with max_lag=0 they take turns.*: use actors=2 alone"
    ):
        train(walk(actors=2, max_lag=0), run_dir=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_environments_in_jax_have_no_actors():
    with pytest.raises(ib.UsageError, match=r"Probe-ActionObserved is compiled together with the learner.*staleness"):
        train(tiny("ppo", actors=2), **OPTIONS)


def test_the_lag_can_be_given_in_iterations_and_stands_in_steps():
    assert walk(actors=2, max_lag="3i").max_lag == 96
    assert walk(actors=2, max_lag="3 iterations").max_lag == 96
    assert walk(actors=2).max_lag == 32  # one iteration, if nothing is said
    assert walk(actors=2, max_lag=100).lag_iterations == 3
