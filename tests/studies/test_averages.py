"""Normalized return averaged over environments, by hand; differences by environment, and Procgen's two halves."""

import dataclasses
import re

import made_up_study
import numpy as np
import pytest
from made_up_rows import made_up

from isobatch.settings.presets import preset
from isobatch.statistics.normalization import ReturnRange, halves
from isobatch.studies.averages import averages_of
from isobatch.studies.charts import pairs_of
from isobatch.studies.claims import STUDIES
from isobatch.studies.figures import draw_averages, draw_bars
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.html_data import averages_data, bars_data
from isobatch.training.metrics import RETURN, Table

RANGES = {"CartPole-v1": ReturnRange(0, 100), "Acrobot-v1": ReturnRange(-100, 0)}


def table(*seeds: list[float]) -> Table:
    """A value every ten steps, for each seed."""
    lines = [(10 * (i + 1), seed, value) for seed, values in enumerate(seeds) for i, value in enumerate(values)]
    steps, seed, returns = map(np.array, zip(*lines, strict=True))
    return {"env_steps": steps, "seed": seed, RETURN: returns}


def row(env: str, factors: dict[str, object], seed: int, diverged_at: int | None = None) -> Row:
    name = f"{env}-{'-'.join(map(str, factors.values()))}"
    lost = {"diverged": diverged_at is not None, "diverged_at": diverged_at}
    return {"cell": name, "env": env, "seed": seed, "env_steps": 40, **factors, **lost}


def study(**choices: object) -> Study:
    config = preset("ppo", "CartPole-v1")
    grid = Grid([Cell(config, {"old": 0, "way": "fresh"})], 2)
    return Study("one", "claim", lambda scale: grid, lambda rows: [], ranges=RANGES, **choices)  # type: ignore[arg-type]


def test_each_seed_is_averaged_over_environments_by_hand() -> None:
    """CartPole's range is 0 to 100, Acrobot's -100 to 0. Seed 0: (.1 + .5)/2, ...; seed 1 diverges on Acrobot at step
    30, from where it counts as 0: (.3 + 0)/2, (.4 + 0)/2. One treatment is on one environment only:
    it has no panel, where fresh data would be by itself."""
    fresh, late, alone = {"old": 0, "way": "fresh"}, {"old": 4, "way": "recent"}, {"old": 8, "way": "alone"}
    rows = [row(env, factors, seed) for env in RANGES for factors in (fresh, late) for seed in (0, 1)]
    rows += [row("CartPole-v1", alone, seed) for seed in (0, 1)]
    rows = [
        each | {"diverged": True, "diverged_at": 30} if each["cell"] == "Acrobot-v1-4-recent" and each["seed"] else each
        for each in rows
    ]
    curves = {
        "CartPole-v1-0-fresh": table([50.0] * 4, [50.0] * 4),
        "Acrobot-v1-0-fresh": table([-50.0] * 4, [-50.0] * 4),
        "CartPole-v1-4-recent": table([10.0, 20, 30, 40], [10.0, 20, 30, 40]),
        "Acrobot-v1-4-recent": table([-50.0, -50, -50, -50], [-50.0, -50]),
        "CartPole-v1-8-alone": table([0.0] * 4, [0.0] * 4),
    }
    found = averages_of(study(pictures="old", panels="way", everywhere={"old": 0}), rows, curves, ["old", "way"], 4)
    assert found is not None
    assert (found.envs, found.x_label, found.x.tolist()) == (list(RANGES), "environment steps", [10, 20, 30, 40])
    (panel,) = found.panels  # `fresh` has none of its own: it is in all the others
    assert panel.title == "recent"
    first, second = panel.lines
    assert [first.label, second.label] == ["old 0", "old 4"]
    np.testing.assert_allclose(first.mean, 0.5)
    np.testing.assert_allclose(second.mean, [0.3, 0.35, (0.4 + 0.15) / 2, (0.45 + 0.2) / 2])
    np.testing.assert_allclose(second.high - second.mean, [0, 0, (0.4 - 0.15) / 2, (0.45 - 0.2) / 2], atol=1e-12)


def test_a_band_ends_where_returns_do() -> None:
    """CartPole returns 0 to 500, which is 0 to 5 in these ranges, Acrobot -500 to 0, which is -4 to 1: 3 at the most in
    the mean, and -2 at the least. Of the seeds one is 1 away from that."""
    factors, worse = {"old": 0, "way": "fresh"}, {"old": 4, "way": "fresh"}
    rows = [row(env, each, seed) for env in RANGES for each in (factors, worse) for seed in (0, 1, 2)]
    curves = {
        "CartPole-v1-0-fresh": table([500.0] * 4, [500.0] * 4, [300.0] * 4),
        "Acrobot-v1-0-fresh": table([0.0] * 4, [0.0] * 4, [0.0] * 4),
        "CartPole-v1-4-fresh": table([0.0] * 4, [0.0] * 4, [200.0] * 4),
        "Acrobot-v1-4-fresh": table([-500.0] * 4, [-500.0] * 4, [-500.0] * 4),
    }
    found = averages_of(study(), rows, curves, ["old", "way"], 4)
    assert found is not None
    high, low = found.panels[0].lines
    deviation = 2**0.5 / 3  # of 1, 0, 0
    np.testing.assert_allclose(high.mean, (3 + 3 + 2) / 3)
    np.testing.assert_allclose(high.high, 3)
    np.testing.assert_allclose(high.low, high.mean - deviation)
    np.testing.assert_allclose(low.mean, (-2 - 2 - 1) / 3)
    np.testing.assert_allclose(low.low, -2)
    np.testing.assert_allclose(low.high, low.mean + deviation)


def test_runs_of_unequal_length_meet_at_equal_shares_and_references_are_told() -> None:
    factors = {"old": 0, "way": "fresh"}
    weak = {"old": 0, "way": "weak"}
    rows = [row(env, each, seed) for env in RANGES for each in (factors, weak) for seed in (0, 1)]
    rows = [r | {"env_steps": 80} if r["env"] == "Acrobot-v1" else r for r in rows]
    curves = {r["cell"]: table([50.0] * 8, [50.0] * 8) for r in rows}
    found = averages_of(study(pictures="way", reference={"way": "weak"}), rows, curves, ["old", "way"], 4)
    assert found is not None
    assert (found.x_label, found.x.tolist()) == ("share of the run", [0.25, 0.5, 0.75, 1.0])
    assert [(line.label, line.color) for line in found.panels[0].lines] == [("old 0", 0), ("weak", None)]
    assert [line["place"] for line in averages_data(found)["panels"][0]["lines"]] == [0, None]  # type: ignore[index]


def test_the_picture_has_a_panel_for_each_treatment() -> None:
    from matplotlib import pyplot

    rows, curves = [], {}
    for cell in made_up_study.STUDY.grid("quick").cells:
        outcome = made_up_study.outcome_of(cell)
        curves[cell.name] = outcome.table
        for seed in range(made_up_study.SEEDS):
            lost = outcome.diverged.get(seed)
            rows.append(
                row(cell.config.env, cell.factors, seed, lost.env_steps if lost else None) | {"cell": cell.name}
            )
            rows[-1]["env_steps"] = cell.config.env_steps
    found = averages_of(made_up_study.STUDY, rows, curves, ["rules", "divisor"], 62)
    assert found is not None
    figure = draw_averages(found, "made-up", made_up_study.SEEDS)
    pyplot.close(figure)
    assert [axes.get_title() for axes in figure.axes] == list(made_up_study.RULES)
    assert [len(axes.lines) for axes in figure.axes] == [3, 3, 2, 3]  # one was silent on an environment
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert [text.get_text() for text in figure.legends[0].texts] == ["c = 1 (base)", "c = 4", "c = 16"]
    assert found.left_out == [f"c = 16 of {made_up_study.LONG}"]
    assert figure.get_supxlabel() == f"Left out, since not every environment has them: {found.left_out[0]}."


def test_an_environment_without_a_range_has_no_average() -> None:
    rows = [row("Probe-Delay", {"old": 0, "way": "fresh"}, seed) for seed in (0, 1)]
    curves = {rows[0]["cell"]: table([1.0], [1.0])}
    assert averages_of(study(), rows, curves, ["old", "way"], 4) is None


def test_pairs_by_environment_are_those_of_the_rows() -> None:
    found = pairs_of(STUDIES["ewma"], made_up("ewma", {"algo": "ppg-ewma"}))
    assert found is not None
    assert found.variants == ["ppo-ewma minus ppo", "ppg-ewma minus ppg"]
    values = {
        variant: [found.differences[variant, env].value.value for env in found.envs] for variant in found.variants
    }
    assert values["ppo-ewma minus ppo"] == pytest.approx([0.0] * 8, abs=0.03)
    assert values["ppg-ewma minus ppg"] == pytest.approx([0.4] * 8, abs=0.03)
    assert pairs_of(STUDIES["epochs"], made_up("epochs")) is None


def test_procgen_has_two_halves() -> None:
    """The paper tuned on the first eight games: bars are apart, and the verdict counts them apart."""
    from matplotlib import pyplot

    cells = STUDIES["ewma"].grid("paper").cells
    rng = np.random.default_rng(0)
    rows = []
    for cell in cells:
        late = cell.config.env in halves(dict.fromkeys(c.config.env for c in cells))["last eight games"]
        for seed in range(4):
            value = 0.5 + (0.1 if late and cell.factors["algo"] == "ppo-ewma" else 0.0) + 0.001 * rng.normal()
            rows.append({"cell": cell.name, "seed": seed, "env": cell.config.env, **cell.factors})
            rows[-1] |= {"normalized_final": value, "normalized_mean": value, "final_return": value}
    lines = [line for line in STUDIES["ewma"].verdict(rows) if line.startswith("On the last eight games, ppo")]
    assert lines == [
        "On the last eight games, ppo-ewma minus ppo, in normalized final return: 0.10 [0.10, 0.10], above 0 on 8 of 8."
    ]
    found = pairs_of(STUDIES["ewma"], rows)
    assert found is not None
    drawn = bars_data(found)
    assert drawn is not None
    assert drawn["sides"] == [{"name": "first eight games", "count": 8}, {"name": "last eight games", "count": 8}]
    figure = draw_bars(found, "ewma")
    pyplot.close(figure)
    assert figure.axes[0].get_yscale() == "linear"
    assert [text.get_text() for text in figure.axes[0].texts] == ["first eight games", "last eight games"]
    some = dataclasses.replace(found, envs=found.envs[:3])
    assert halves(some.envs) == {}


def test_differences_are_given_without_an_outlier() -> None:
    """Seven environments with equal differences but for one: the eighth stands apart, and three are too few."""
    rows = made_up("staleness")
    envs = sorted({row["env"] for row in rows})
    apart = envs[0]
    spoiled = [
        row | {"normalized_final": row["normalized_final"] - 5.0}
        if (row["env"], row["treatment"], row["staleness"]) == (apart, "recent", 8)
        else row
        for row in rows
    ]
    begin = "Staleness 8: decoupled minus recent, in normalized final return"
    line = next(line for line in STUDIES["staleness"].verdict(spoiled) if line.startswith(begin))
    assert re.search(rf"{apart} \+5\.0.*; without {apart}, an outlier, -?0\.0", line)
    few = [row for row in spoiled if row["env"] in envs[:3]]
    assert "an outlier" not in " ".join(STUDIES["staleness"].verdict(few))


def test_the_gap_is_given_without_an_outlier() -> None:
    """As the paper has it without Heist: one of five environments, whose smallest batch fails, stands apart."""
    rows = made_up("invariance")
    other = [row | {"env": "Heist", "cell": f"Heist{row['cell']}"} for row in rows if row["env"] == "Acrobot-v1"]
    worse = [
        row | {"normalized_final": 0.1} if (row["rules"], row["divisor"]) == ("all rules", 64) else row for row in other
    ]
    line = next(line for line in STUDIES["invariance"].verdict([*rows, *worse]) if "outlier" in line)
    assert re.match(r"Without the outlier: -?0\.0", line)
    assert "Heist is farthest from the median" in line
    none = next(line for line in STUDIES["invariance"].verdict(rows) if "outlier" in line)
    assert none.startswith("No environment is an outlier: ")
