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
    assert variant_name({"rules": "all rules", "divisor": 4}, ["rules", "divisor"]) == "all rules, divisor 4"
