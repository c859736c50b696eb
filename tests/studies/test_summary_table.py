"""The table of a study."""

import numpy as np
import pytest
from made_up_rows import made_up

from isobatch.studies.summary_table import summarize_rows, variant_name


def test_summary_has_a_line_for_each_variant_and_for_all_environments() -> None:
    rows = made_up("ewma")
    lines = summarize_rows(rows, ["algo"])
    envs = {row["env"] for row in rows}
    assert len(lines) == 4 * len(envs) + 4
    assert {line["env"] for line in lines} == {*envs, "all environments"}
    first = lines[0]
    mean = np.mean([row["normalized_final"] for row in rows if (row["env"], row["algo"]) == (first["env"], "ppo")])
    assert first["normalized_final"]["value"] == pytest.approx(mean)
    assert first["normalized_final"]["low"] < mean < first["normalized_final"]["high"]
    assert variant_name({"rules": "all rules", "divisor": 4}, ["rules", "divisor"]) == "all rules, c = 4"
    assert variant_name({"adam_rule": "nothing to do", "divisor": 1}, ["adam_rule", "divisor"]) == "base, c = 1"
    assert variant_name({"divisor": 1}, ["divisor"]) == "c = 1 (base)"


def test_where_no_episode_ended_there_is_no_score() -> None:
    """Nor a mean over all environments, whether it counts as 0 or is left out of it."""
    rows = [
        row | {"final_return": None} if (row["env"], row["divisor"]) == ("Pendulum-v1", 1 / 16) else row
        for row in made_up("invariance")
    ]
    lines = [line for line in summarize_rows(rows, ["rules", "divisor"]) if line["variant"] == "all rules, c = 1/16"]
    assert "all environments" not in [line["env"] for line in lines]
    (silent,) = (line for line in lines if line["env"] == "Pendulum-v1")
    assert silent["cells"] == ["all rules, c = 1/16", "-", "-", "-", "-", "0.01", "0 of 4"]
    assert silent["normalized_final"] == {"value": None, "low": None, "high": None}


def test_variants_are_in_the_order_of_their_levels() -> None:
    lines = [line["variant"] for line in summarize_rows(made_up("newer-rules"), ["rules", "minibatch"])]
    assert lines[:5] == [f"paper, minibatch {size}" for size in (4, 16, 64, 256, 1024)]
