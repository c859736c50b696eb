"""The geometry of a run in characters."""

from __future__ import annotations

import re

import pytest
from rollout_settings import BASE, PPG

from isobatch.advice.geometry_text import diagram
from isobatch.settings.presets import ALGORITHMS, preset


def test_diagram_shows_every_number() -> None:
    text = diagram(BASE.replace(update_epochs=2, total_timesteps=8192 * 10, proximal_policy="ewma"))
    for part in ("env 64", "T = 128", "64 x 128 = 8,192", "32 minibatches of 256", "x 2 epochs", "64 gradient steps"):
        assert part in text, part
    for part in (
        "x 10 iterations",
        "640 gradient steps in all",
        "81,920 environment steps",
        "1,024 environment steps old",
    ):
        assert part in text, part
    assert max(map(len, text.splitlines())) <= 100


def test_iterations_that_only_collect_have_no_gradient_steps() -> None:
    text = diagram(BASE.replace(total_timesteps=8192 * 10, staleness=4))
    assert "x 10 iterations, the first 4 of which only collect" in text
    assert "192 gradient steps in all" in text  # 6 x 32


def test_diagram_of_phases_and_rows() -> None:
    text = diagram(PPG)
    assert "every 4 iterations: phase batch = 32,768" in text
    assert "of 64 minibatches of 512" in text
    rows = diagram(BASE.replace(num_envs=2, num_minibatches=2, minibatch_scheme="envs"))
    assert "████  ▓▓▓▓" in rows
    assert "whole environment rows" in rows


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_can_be_drawn(algo: str) -> None:
    config = preset(algo, **(dict(num_steps=500) if algo == "reinforce" else {}))
    assert f"{config.geometry.gradient_steps} gradient step" in diagram(config)
    assert (re.search("up to [0-9]+ new samples each", diagram(config)) is not None) == config.complete_episodes


def test_whole_episodes_are_counted_by_what_is_used() -> None:
    """Of two rows of 2,000 steps at least 1,501 each, where episodes last up to 500."""
    config = preset("reinforce", advantage_norm="iteration")
    text = diagram(config, time_limit=500)
    for part in (
        "2 x 2,000 = 4,000\n",
        "whole episodes use at least 3,002 (75%)\n",
        "1 minibatch of at least 3,002\n",
        "at least 3002 new samples each",
        "1 iteration = at least 3,002 samples",
    ):
        assert part in text, part
    assert "whole episodes use up to 4,000\n" in diagram(config)
    assert "at least 0 (0%)" in diagram(config, time_limit=2001)
