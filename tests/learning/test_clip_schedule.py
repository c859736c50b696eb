"""Clip ranges that fall over a run."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from test_policy_phase import DONE, TRUNCATED, make_config, make_learner, make_segment
from tiny import tiny

from isobatch.errors import UsageError
from isobatch.learning.iteration import Learned, policy_phase
from isobatch.learning.state import hypers_at
from isobatch.networks.moments import Moments
from isobatch.settings.config import Config
from isobatch.settings.in_use import idle_settings
from isobatch.training.trainer import train

pytestmark = pytest.mark.usefixtures("float64")
LINES = dict(clip_schedule="linear", value_clip_schedule="linear", clip_value_loss=True)


def test_ranges_go_in_a_line_to_their_end() -> None:
    """10 iterations: 0.2 -> 0.1 is at 0.2 in the first, 0.15 after half, 0.11 in the last; 0.05 rises to 0.095."""
    sizes = dict(num_envs=1, num_steps=4, num_minibatches=1, total_timesteps=40)
    config = Config.from_dict(sizes | LINES | dict(clip_eps=0.2, value_clip_eps=0.05, clip_eps_end=0.1))
    at = [hypers_at(config, config.hypers, jnp.int32(i)) for i in (0, 5, 9)]
    assert [float(h.clip_eps) for h in at] == pytest.approx([0.2, 0.15, 0.11])
    assert [float(h.value_clip_eps) for h in at] == pytest.approx([0.05, 0.075, 0.095])
    constant = config.replace(clip_schedule="constant", value_clip_schedule="constant")
    assert hypers_at(constant, constant.hypers, jnp.int32(5)) is constant.hypers  # the program is the old one
    to_zero = config.replace(clip_eps_end=0.0, clip_eps="inf")
    assert float(hypers_at(to_zero, to_zero.hypers, jnp.int32(9)).clip_eps) == np.inf


def learned(config: Config, iteration: int) -> tuple[np.ndarray, dict[str, Any]]:
    segment = make_segment(config, DONE, TRUNCATED)
    before = Learned(make_learner(config), None, Moments.empty(), jnp.zeros(segment.reward.shape))
    run = jax.jit(partial(policy_phase, config))
    after, metrics = run(before, segment, config.hypers, jnp.int32(iteration), jax.random.key(3))
    return np.asarray(ravel_pytree(after.learner.networks)[0]), metrics


def test_an_iteration_learns_with_the_range_that_it_has_come_to() -> None:
    """After 3 of 12 iterations three quarters of both ranges are left."""
    sizes = dict(update_epochs=3, num_minibatches=4, total_timesteps=24 * 12, learning_rate=0.05)
    config = make_config(clip_eps=0.2, value_clip_eps=0.4, **sizes, **LINES)
    falling, metrics = learned(config, 3)
    both = dict(clip_schedule="constant", value_clip_schedule="constant")
    same, plain = learned(config.replace(clip_eps=0.15, value_clip_eps=0.3, **both), 3)
    np.testing.assert_allclose(falling, same, rtol=1e-12)
    assert float(metrics["losses/clipfrac"]) == pytest.approx(float(plain["losses/clipfrac"]))
    assert {"charts/clip_eps", "charts/value_clip_eps"} == metrics.keys() - plain.keys()
    for other in (dict(clip_eps=0.2, value_clip_eps=0.3), dict(clip_eps=0.15, value_clip_eps=0.4)):
        assert not np.allclose(falling, learned(config.replace(**other, **both), 3)[0], rtol=1e-9)


def test_a_run_writes_down_its_range() -> None:
    metrics = train(tiny(clip_schedule="linear"), log_interval=1).metrics
    np.testing.assert_allclose(metrics["charts/clip_eps"], 0.2 * (1 - np.arange(12) / 12), rtol=1e-6)
    assert "charts/value_clip_eps" not in metrics


def test_which_of_the_settings_are_in_use() -> None:
    names = {"clip_schedule", "value_clip_schedule", "clip_eps_end"}
    assert idle_settings(tiny()) & names == {"value_clip_schedule", "clip_eps_end"}
    assert idle_settings(tiny(clip_schedule="linear")) & names == {"value_clip_schedule"}
    assert idle_settings(tiny(objective="kl", clip_schedule="linear")) & names == names
    assert idle_settings(tiny(clip_value_loss=True, value_clip_schedule="linear")) & names == set()
    with pytest.raises(UsageError, match="clip_schedule='cosine' is not"):
        tiny(clip_schedule="cosine")
