"""Ways to another number of environments, compared."""

from __future__ import annotations

import pytest

from isobatch.errors import UsageError
from isobatch.rescaling import rescale
from isobatch.rescaling.alternatives import alternatives
from isobatch.settings.config import ENDLESS, Config
from isobatch.settings.presets import preset

ZOO = Config(num_envs=16, num_steps=1024, num_minibatches=256, update_epochs=4, total_timesteps=491_520).replace(
    learning_rate=3e-4, advantage_norm="minibatch"
)
"""The sizes of rl-zoo3 on LunarLander: minibatches of 64, 30 iterations."""


def test_three_ways_to_64_environments_by_hand() -> None:
    """N T = 16,384. 64 x 256 keeps it; 64 x 1,024 is 65,536, with 1,024 minibatches of 64 or 256 of 256: lr sqrt(4)."""
    found = {other.keep: other.to_json() for other in alternatives(ZOO, 64)}
    rows = {
        "iteration-batch": (256, 256, 64, 3e-4, 4 / 64, 30, 16_384),
        "minibatch-size": (1024, 1024, 64, 3e-4, 4 / 64, 7, 65_536),
        "minibatch-count": (1024, 256, 256, 6e-4, 1 / 64, 7, 65_536),
    }
    names = (
        "num_steps",
        "num_minibatches",
        "optimization_batch",
        "learning_rate",
        "gradient_steps_per_env_step",
        "iterations",
        "samples_in_memory",
    )
    assert {keep: tuple(found[keep][name] for name in names) for keep in found} == {
        keep: pytest.approx(row) for keep, row in rows.items()
    }
    few = [any(w.startswith("iterations 30 -> 7") for w in found[keep]["warnings"]) for keep in rows]
    assert few == [False, True, True]


def test_settings_that_do_not_say_how_long_to_train_have_no_number_of_iterations() -> None:
    ways = alternatives(ZOO.replace(total_timesteps=ENDLESS), 64)
    assert [way.to_json()["iterations"] for way in ways] == [None] * 3


def test_keeping_the_iteration_batch_changes_nothing_else() -> None:
    after = rescale(ZOO, num_envs=4, keep="iteration-batch").after
    assert after == ZOO.replace(num_envs=4, num_steps=4096)
    assert rescale(after, num_envs=16, keep="iteration-batch").after == ZOO
    assert rescale(ZOO, factor=4, keep="iteration-batch").after == after
    assert rescale(ZOO, devices=2, keep="iteration-batch").after.num_steps == 512


def test_keeping_the_minibatch_size_is_the_rule_of_that_name() -> None:
    kept = rescale(ZOO, num_envs=32, keep="minibatch-size").after
    assert kept == rescale(ZOO, num_envs=32, use=["iteration-batch-only"]).after


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (dict(num_envs=3, keep="iteration-batch"), ["num_envs=3", "2 and 4"]),
        (dict(num_steps=8, keep="iteration-batch"), ["num_steps=8", "keep=iteration-batch"]),
        (dict(num_envs=8, keep="iteration"), ["keep='iteration'", "iteration-batch"]),
    ],
)
def test_what_cannot_be_kept_is_one_sentence(changes: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        rescale(ZOO, **changes)  # type: ignore[arg-type]
    assert all(part in str(caught.value) for part in parts)


def test_a_way_that_is_not_open_says_why() -> None:
    config = ZOO.replace(num_steps=5, num_minibatches=1, num_envs=8)
    other = next(other for other in alternatives(config, 64) if other.keep == "iteration-batch")
    assert other.result is None
    assert "40" in other.trouble
    assert other.cautions == []


def test_rules_that_were_named_hold_in_every_way() -> None:
    """4 times the environments: with linear-adam the rate is 4 times as large where the minibatch is."""
    rates = {other.keep: other.to_json()["learning_rate"] for other in alternatives(ZOO, 64, use=["linear-adam"])}
    assert rates == {"iteration-batch": 3e-4, "minibatch-size": 3e-4, "minibatch-count": pytest.approx(12e-4)}
    held = {other.keep: other.to_json()["learning_rate"] for other in alternatives(ZOO, 64, without=["adam-sqrt"])}
    assert set(held.values()) == {3e-4}
    assert rescale(ZOO, num_envs=64, use=["iteration-batch-only"]).keep == "minibatch-size"
    sizes = [other.to_json()["optimization_batch"] for other in alternatives(ZOO, 64, use=["iteration-batch-only"])]
    assert sorted(sizes) == [64, 64, 256]


def test_ways_in_which_whole_episodes_use_little_are_marked_and_last() -> None:
    """16 environments: 16 x 250 uses nothing for sure where episodes last 500 steps, 16 x 2,000 uses 1,501 of each."""
    ways = alternatives(preset("reinforce"), 16, time_limit=500)
    found = {way.keep: (way.samples_used, way.collapses) for way in ways if way.result}
    assert found == {"minibatch-count": (24_016, False), "iteration-batch": (0, True)}
    assert ways[-1].keep == "iteration-batch"
    assert (ways[-1].to_json()["samples_used"], ways[-1].to_json()["collapses"]) == (0, True)
    assert "samples_used" not in alternatives(ZOO, 64, time_limit=500)[0].to_json()
