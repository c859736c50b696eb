"""The frames of episodes."""

import numpy as np
import pytest
from trained import Runs

import isobatch as ib
from isobatch.rendering.open_scene import open_scene
from isobatch.rendering.scenes import frames
from isobatch.rollouts.evaluation import evaluate
from isobatch.training.loading import load_run

pytestmark = pytest.mark.xdist_group("trained")


def test_frames_are_whole_episodes(runs: Runs) -> None:
    """Each from its first state to its last; the same seed shows the same; returns agree with the evaluation's."""
    path = runs("CartPole-v1")
    agent = ib.load_agent(path)
    scene = open_scene(agent.learned.config)
    shown = list(frames(scene, agent, 2, deterministic=False, seed=3))
    again = list(frames(scene, agent, 2, deterministic=False, seed=3))
    assert [f.facts for f in shown] == [f.facts for f in again]
    assert [f.facts for f in shown] != [f.facts for f in frames(scene, agent, 2, deterministic=False, seed=4)]
    ends = [f for f in shown if f.over]
    assert [f.episode for f in ends] == [1, 2]
    assert len(shown) == sum(f.step for f in ends) + 2
    assert all(f.episode_return == f.step for f in shown)  # one for each step
    loaded = load_run(path)
    returns = evaluate(loaded.config, loaded.states, 30, True, 0).returns
    played = [f.episode_return for f in frames(scene, agent, 3, deterministic=True, seed=0) if f.over]
    assert returns[0].min() <= np.mean(played) <= returns[0].max()
