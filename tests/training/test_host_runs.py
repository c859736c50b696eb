"""Runs of environments outside JAX: the same bits whoever is faster, and what resuming keeps of them."""

import shutil
from pathlib import Path
from typing import Any

import host_envs  # noqa: F401  registers its environments
import numpy as np
import pytest
from needs import needs_envpool
from tiny import tiny

from isobatch.envs.registry import environment_of
from isobatch.settings.config import Config
from isobatch.training.checkpoints import flatten
from isobatch.training.host_program import HostProgram
from isobatch.training.loading import load_run
from isobatch.training.metrics import METRICS
from isobatch.training.program import Supervision
from isobatch.training.programs import initial_states, stack_hypers
from isobatch.training.trainer import train
from isobatch.training.verification import first_difference

pytestmark = pytest.mark.xdist_group("host runs")
ENVPOOL = pytest.param("envpool", marks=needs_envpool)
WALK = dict(env="host_envs:Walk-v0", env_kwargs={"naps": 0.003})  # steps of random duration
KINDS: dict[str, Any] = {
    "async": dict(WALK, vectorization="async"),
    "same-step": dict(WALK, autoreset="same-step"),
    "next-step": dict(WALK, autoreset="next-step"),
    "envpool": dict(env="envpool/CartPole-v1"),  # stepped from inside a compiled program
    "pools": dict(env="envpool/FrozenLake-v1"),  # from Python
}
ITERATIONS, RESUMED = 5, 2
OPTIONS: dict[str, Any] = dict(checkpoint_interval=1, keep_checkpoints=ITERATIONS, log_interval=1)


def config_of(kind: str) -> Config:
    """Stale data, so that learning and collecting overlap too."""
    return tiny("ppo", staleness=1, total_timesteps=32 * ITERATIONS, normalize_observations=True,
                normalize_rewards=True, **KINDS[kind])  # fmt: skip


def advanced(config: Config, overlap: bool) -> tuple[dict[str, bytes], np.ndarray]:
    """The bits of a whole run, with or without anything happening at once, and its metrics."""
    states = initial_states(config, [0])
    hypers = stack_hypers([config.hypers] * states.iteration.shape[0])
    program = HostProgram(config, environment_of(config), states, hypers, 1, overlap)
    try:
        chunk = program(program.begin(states, 0, Supervision(print, 60.0)), hypers, 0, ITERATIONS)
    finally:
        program.end()
    return {name: leaf.tobytes() for name, leaf in flatten(chunk.states).items()}, np.asarray(chunk.table)


@pytest.mark.parametrize("kind", ["async", ENVPOOL, pytest.param("pools", marks=needs_envpool)])
def test_what_happens_at_once_changes_no_bit(kind: str):
    """Two halves step by turns while the policy acts, and learning goes on meanwhile; or one thing after another."""
    config = config_of(kind)
    bits, table = advanced(config, overlap=True)
    for overlap in (True, False):
        others, other_table = advanced(config, overlap)
        assert {name for name in bits if bits[name] != others[name]} == set()
        np.testing.assert_array_equal(table, other_table)


def stopped_early(whole: Path, copy: Path) -> Path:
    """A copy of a run as it was after two of its iterations."""
    shutil.copytree(whole, copy)
    for iteration in range(RESUMED + 1, ITERATIONS + 1):
        (copy / "checkpoints" / f"{iteration:09d}.checkpoint").unlink(missing_ok=True)
    return copy


def test_in_processes_of_their_own_resumed_bit_for_bit(tmp_path: Path):
    said: list[str] = []
    config, options = config_of("async"), dict(OPTIONS, say=said.append)
    train(config, run_dir=tmp_path / "whole", **options)
    run = stopped_early(tmp_path / "whole", tmp_path / "run")
    train(config, run_dir=run, resume=True, **options)
    assert not [sentence for sentence in said if "new episodes" in sentence]
    assert first_difference(tmp_path / "whole", run) is None


def test_where_episodes_go_another_way_it_is_said(tmp_path: Path):
    """Noise that no seed decides: played again, the episodes do not come back to where they stood."""
    said: list[str] = []
    config = config_of("async").replace(env_kwargs={"noise": "wild"})
    train(config, run_dir=tmp_path / "whole", **OPTIONS)
    run = stopped_early(tmp_path / "whole", tmp_path / "run")
    train(config, run_dir=run, resume=True, say=said.append, **OPTIONS)
    assert [sentence for sentence in said if "did not come back to where they stood and start new episodes" in sentence]
    assert load_run(run).iteration == ITERATIONS


@pytest.mark.parametrize("kind", ["same-step", "next-step", ENVPOOL])
def test_where_episodes_begin_anew_all_else_is_exact(kind: str, tmp_path: Path):
    """It is said when the run begins. Learning, normalizers, queue and counters are those of the checkpoint."""
    said: list[str] = []
    config = config_of(kind)
    train(config, run_dir=tmp_path / "whole", say=said.append, **OPTIONS)
    promise = "starts new episodes; weights, optimizer, normalizers and counters are exact"
    assert [sentence for sentence in said if promise in sentence]

    run = stopped_early(tmp_path / "whole", tmp_path / "run")
    loaded = load_run(run, str(RESUMED))
    begun = restarted(config, loaded.states)
    kept, now = flatten(loaded.states), flatten(begun)
    assert {name for name in kept if kept[name].tobytes() != now[name].tobytes() and "envs/" not in name} == set()
    assert not now["envs/episodes/total"].any()
    assert not now["envs/episodes/length"].any()
    assert not np.array_equal(kept["envs/obs"], now["envs/obs"])

    again = shutil.copytree(run, tmp_path / "again")
    for directory in (run, again):
        train(config, run_dir=directory, resume=True, **OPTIONS)
        assert load_run(directory).iteration == ITERATIONS
    assert first_difference(run, again) is None
    lines = [(path / METRICS).read_text().splitlines() for path in (run, tmp_path / "whole")]
    assert lines[0][: RESUMED + 1] == lines[1][: RESUMED + 1]
    assert [line.split(",")[:2] for line in lines[0]] == [line.split(",")[:2] for line in lines[1]]


def restarted(config: Config, states: Any) -> Any:
    """The states with which a resumed run begins."""
    hypers = stack_hypers([config.hypers])
    program = HostProgram(config, environment_of(config), states, hypers, 1)
    try:
        return program.begin(states, RESUMED, Supervision(print, 60.0))
    finally:
        program.end()
