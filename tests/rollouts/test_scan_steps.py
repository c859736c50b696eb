"""Environments that are stepped from inside a compiled program: as Python steps them, also when one fails."""

import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback
from needs import needs_envpool
from tiny import tiny

from isobatch.envs.envpool_backend import EnvPoolVector
from isobatch.envs.host_interface import XlaStepper
from isobatch.envs.registry import environment_of, make_env
from isobatch.errors import RunError
from isobatch.rollouts import scan_steps
from isobatch.settings.config import Config
from isobatch.training.checkpoints import flatten
from isobatch.training.host_program import HostProgram
from isobatch.training.loading import load_run
from isobatch.training.program import Supervision
from isobatch.training.programs import initial_states, stack_hypers
from isobatch.training.trainer import train

pytestmark = [needs_envpool, pytest.mark.xdist_group("envpool")]


def test_scans_are_equal_parts_of_a_rollout():
    lengths = {steps: scan_steps.scan_length(steps) for steps in (1, 8, 64, 100, 127, 128)}
    assert lengths == {1: 1, 8: 8, 64: 64, 100: 50, 127: 1, 128: 64}


@pytest.mark.parametrize(
    ("env_id", "inside"),
    [
        ("CartPole-v1", True),
        ("Pendulum-v1", True),
        ("HalfCheetah-v4", False),  # 64 bits
        ("FrozenLake-v1", False),  # seen one-hot
        ("Pong-v5", False),  # images
    ],
)
def test_who_is_stepped_from_inside(env_id: str, inside: bool):
    vector = make_env(f"envpool/{env_id}").open([1, 2])
    assert (vector.xla_stepper() is not None) == inside
    vector.close()


def advanced(config: Config, seeds: list[int]) -> tuple[dict[str, np.ndarray], bool]:
    """The states after one iteration, and whether it was run in scans."""
    states = initial_states(config, seeds)
    hypers = stack_hypers([config.hypers] * states.iteration.shape[0])
    program = HostProgram(config, environment_of(config), states, hypers, 1)
    try:
        chunk = program(program.begin(states, 0, Supervision(lambda sentence: None, 60.0)), hypers, 0, 1)
    finally:
        program.end()
    assert program.backend is not None
    return flatten(chunk.states), program.backend.steps_at_once > 1


@pytest.mark.parametrize(
    ("algo", "env", "changes", "seeds"),
    [
        ("ppo", "CartPole-v1", {}, [0, 1]),
        ("ppo", "Pendulum-v1", dict(num_envs=3, num_minibatches=1, rescale_actions=True), [0]),  # one half
        ("reinforce", "CartPole-v1", dict(env_kwargs={"max_episode_steps": 3}), [0]),  # a reset before each rollout
    ],
)
def test_scans_do_what_python_does(
    algo: str, env: str, changes: dict, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout of four scans, but for how two programs round."""
    monkeypatch.setattr(scan_steps, "LONGEST", 2)
    config = tiny(algo, f"envpool/{env}", normalize_observations=algo == "ppo", **changes)
    found, in_scans = advanced(config, seeds)
    assert in_scans
    monkeypatch.setattr(EnvPoolVector, "xla_stepper", lambda vector: None)
    oracle, in_scans = advanced(config, seeds)
    assert not in_scans
    shown = {name: leaf for name, leaf in oracle.items() if not name.startswith("learning/learner/")}
    assert {"envs/obs", "envs/episodes/total", "learning/advantage_moments/mean"} <= set(shown)
    for name, leaf in shown.items():
        np.testing.assert_allclose(found[name], leaf, rtol=1e-4, atol=1e-5, err_msg=name)


def misbehaving(monkeypatch: pytest.MonkeyPatch, deed: Any) -> None:
    """Each time that actions are sent, do this before."""
    inside = EnvPoolVector.xla_stepper

    def changed(vector: EnvPoolVector) -> XlaStepper | None:
        found = inside(vector)
        assert found is not None

        def send(handle: Any, actions: Any) -> Any:
            kind = jax.ShapeDtypeStruct(handle.shape, handle.dtype)
            return found.send(io_callback(deed, kind, handle), actions)

        return found._replace(send=send)

    monkeypatch.setattr(EnvPoolVector, "xla_stepper", changed)


@pytest.mark.parametrize("deed", ["hangs", "raises"])
def test_a_failure_inside_names_the_steps_and_loses_nothing(
    deed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("ppo", "envpool/CartPole-v1")
    calls, over = iter(range(10**6)), threading.Event()

    def fail(handle: np.ndarray) -> np.ndarray:
        if next(calls) >= 2 * 8 * 2:  # after two iterations of eight steps of two halves
            if deed == "raises":
                raise ValueError("no more")
            over.wait()
        return handle

    says = r"did not answer within 2 seconds \(env_timeout\)" if deed == "hangs" else "raised JaxRuntimeError: "
    with monkeypatch.context() as patch:
        misbehaving(patch, fail)
        with pytest.raises(
            RunError, match=rf"an environment \(envpool/CartPole-v1\) {says}.*, in its steps 16 to 23\."
        ):
            train(config, run_dir=tmp_path / "run", env_timeout=2.0)
        over.set()
    assert load_run(tmp_path / "run").iteration == 2
    train(config, run_dir=tmp_path / "run", resume=True)
    assert load_run(tmp_path / "run").iteration == config.num_iterations
