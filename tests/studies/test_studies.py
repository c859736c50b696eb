"""Studies: what is trained, kept, said and drawn, and how they fail."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fake_study
import jax
import numpy as np
import pytest
from tiny import tiny

from isobatch.cli.main import main
from isobatch.errors import RunError, UsageError
from isobatch.settings.config import Config
from isobatch.statistics.normalization import range_of
from isobatch.studies import engine, store
from isobatch.studies import measurements as laboratory
from isobatch.studies.claims import STUDIES, study_of
from isobatch.studies.claims.prox_grid import slopes
from isobatch.studies.engine import parts_of, run_study
from isobatch.studies.figures import draw_gaps, draw_surface, draw_variance
from isobatch.studies.grid import PRESETS, Cell, Grid, Measurement, Row
from isobatch.studies.lanes import train_cells
from isobatch.studies.report import make_report
from isobatch.studies.rows import Diverged, Outcome, mean_return, rows_of_cell
from isobatch.studies.store import Results, typed
from isobatch.studies.summary import summarise_rows, variant_name
from isobatch.studies.views import gaps_of, seed_lines
from isobatch.training.metrics import RETURN
from isobatch.training.trainer import train

pytestmark = pytest.mark.xdist_group("studies")
FAKE = fake_study.STUDY
RESULTS = ("rows.csv", "curves.csv.gz", "study.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("studies") / "fake"
    run_study(FAKE, "quick", path)
    return path


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "fake", FAKE)


def same_files(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in RESULTS)


def test_a_row_for_each_cell_and_seed_with_every_setting(finished: Path) -> None:
    rows = Results.read(finished).rows()
    grid = FAKE.grid("quick")
    assert len(rows) == len(grid.cells) * 2
    assert {(row["cell"], row["seed"]) for row in rows} == {(cell.name, seed) for cell in grid.cells for seed in (0, 1)}
    settings = {cell.name: cell.config.to_dict() for cell in grid.cells}
    for row in rows:
        assert set(settings[row["cell"]]) <= set(row)
        assert row["gamma"] == settings[row["cell"]]["gamma"]
        assert row["env_steps"] == 384
        assert row["version"] == store.version()
        scale = range_of(row["env"], fake_study.RANGES)
        assert row["normalized_final"] == pytest.approx((row["final_return"] - scale.low) / (scale.high - scale.low))
        assert not row["diverged"]


def test_pandas_reads_rows_and_curves_in_one_call(finished: Path) -> None:
    pandas = pytest.importorskip("pandas")
    assert len(pandas.read_csv(finished / "rows.csv")) == 10
    curves = pandas.read_csv(finished / "curves.csv.gz")
    assert set(curves["cell"]) == {cell.name for cell in FAKE.grid("quick").cells}


def test_the_same_study_twice_gives_the_same_files(finished: Path, tmp_path: Path) -> None:
    run_study(FAKE, "quick", tmp_path / "again")
    assert same_files(finished, tmp_path / "again")


def test_nothing_is_run_twice_and_a_kill_leaves_no_trace(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if killed while a part was written: its rows are missing, half a file lies about."""
    path = tmp_path / "fake"
    shutil.copytree(finished, path)
    calls: list[list[Cell]] = []

    def counted(cells: list[Cell], *rest: Any) -> Any:
        calls.append(cells)
        return train_cells(cells, *rest)

    monkeypatch.setattr(engine, "train_cells", counted)
    run_study(FAKE, "quick", path)
    assert calls == []
    results, parts = Results.read(path), parts_of(FAKE.grid("quick"))
    results.part(parts[1], ".json").unlink()
    half = results.part(parts[1], ".csv.gz")
    half.write_bytes(half.read_bytes()[:20])
    half.with_name(half.name + ".new").write_bytes(b"half")
    (path / "rows.csv").unlink()
    run_study(FAKE, "quick", path)
    assert calls == [parts[1]]
    assert same_files(finished, path)


def test_lanes_agree_with_training_alone() -> None:
    """Not bit for bit: the width of a vmap changes low-order bits."""
    cells = [cell for cell in FAKE.grid("quick").cells if cell.factors["num_steps"] == 4]
    for cell, outcome in zip(cells, train_cells(cells, [0, 1]), strict=True):
        alone = train(cell.config, num_seeds=2, log_interval=1).metrics
        assert list(outcome.table) == list(alone)
        for name, values in alone.items():
            np.testing.assert_allclose(outcome.table[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


def test_cells_of_equal_shape_are_parts_of_equal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny()
    cells = [Cell(config.replace(gamma=0.9 + i / 100), {"gamma": 0.9 + i / 100}) for i in range(7)]
    assert [len(part) for part in parts_of(Grid(cells, 2))] == [7]
    monkeypatch.setattr(engine, "LANES", 8)
    assert [len(part) for part in parts_of(Grid(cells, 2))] == [4, 3]
    monkeypatch.setattr(engine, "LANES", 1)
    assert [len(part) for part in parts_of(Grid(cells, 2))] == [1] * 7


def test_a_lane_that_diverges_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    def grid(preset: str) -> Grid:
        rates = (1e-3, fake_study.HUGE)
        # Without a clipped gradient and a bounded step the weights overflow.
        configs = [tiny(learning_rate=rate, num_steps=4, optimizer="sgd", max_grad_norm="inf") for rate in rates]
        return Grid([Cell(config, {"learning_rate": config.hypers.learning_rate}) for config in configs], 2)

    study = dataclasses.replace(FAKE, grid=grid, pictures="", everywhere={})
    rows = run_study(study, "quick", tmp_path / "out").rows()
    good, bad = rows[:2], rows[2:]
    assert [row["diverged"] for row in rows] == [False, False, True, True]
    for row in bad:
        assert 0 < row["diverged_at"] <= 384
        assert "/" in row["diverged_metric"]
        assert row["final_return"] is None
        assert row["normalized_final"] == row["normalized_mean"] == 0
    alone = train(grid("").cells[0].config, num_seeds=2, log_interval=1)
    assert [row["final_return"] for row in good] == pytest.approx(alone.final_return, rel=1e-3)
    curves = Results.read(tmp_path / "out").curves()
    assert all(np.isfinite(table[RETURN]).all() for table in curves.values())


def test_a_parameter_that_is_not_finite_at_the_end_counts_too() -> None:
    from isobatch.studies.lanes import outcome

    class Fake:
        names = ("losses/x", "episodes/count", "episodes/return_sum", "episodes/length_sum")

        def present(self, config: Config, begin: int, end: int) -> list[bool]:
            return [True] * 4

    cell = FAKE.grid("quick").cells[0]
    table = np.ones((2, 3, 4), np.float32)
    found = outcome(cell, [0, 1], Fake(), table, np.array([True, False]), [1, 2, 3])  # type: ignore[arg-type]
    assert found.diverged == {1: Diverged(3 * 32, "a network parameter")}
    assert found.table["seed"].tolist() == [0, 1, 0, 1, 0]


def test_scores_of_a_run() -> None:
    cell = FAKE.grid("quick").cells[0]
    table = {
        "iteration": np.arange(1, 5),
        "env_steps": np.arange(1, 5) * 96,
        "seed": np.zeros(4, int),
        RETURN: np.array([-1.0, np.nan, np.nan, 1.0]),
        "charts/episodic_length": np.ones(4),
        "charts/episodes": np.array([9, 0, 0, 1]),
    }
    # The curve is interpolated between the first and the last line: -1, -1/3, 1/3, 1, and its mean is 0.
    assert mean_return(table) == pytest.approx(0)
    (row,) = rows_of_cell(cell, Outcome(table, {}), [0], fake_study.RANGES)
    assert (row["final_return"], row["normalized_final"], row["normalized_mean"]) == (1.0, 1.0, pytest.approx(0.5))
    nothing = {name: values[:0] for name, values in table.items()}
    (row,) = rows_of_cell(cell, Outcome(nothing, {}), [0], fake_study.RANGES)
    assert (row["final_return"], row["normalized_final"], row["diverged"]) == (None, 0.0, False)


def test_the_laboratory_measures_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a kill that left a run half made."""
    config = tiny(total_timesteps=96)
    monkeypatch.setattr(laboratory, "CHECKPOINTS", 1)
    study = dataclasses.replace(
        FAKE,
        grid=lambda preset: Grid(FAKE.grid(preset).cells[:2], 2),
        laboratory=lambda preset: [Measurement(config, ((4, 8),))],
        reading=lambda rows, measured: [f"{len(measured)} measurements."],
    )
    monkeypatch.setitem(STUDIES, "fake", study)
    Results.begin(tmp_path / "out", "fake", "quick", study.grid("quick"))
    (tmp_path / "out" / "laboratory" / config.env).mkdir(parents=True)
    measured = run_study(study, "quick", tmp_path / "out").measured()
    (row,) = measured
    assert (row["env_steps"], row["num_envs"], row["num_steps"]) == (96, 4, 8)
    assert 0 < row["variance_low"] <= row["variance"] <= row["variance_high"]
    monkeypatch.setattr(engine, "measure", None)
    run_study(study, "quick", tmp_path / "out")
    assert make_report(tmp_path / "out")["verdict"][-1] == "1 measurements."


@pytest.mark.parametrize("value", [None, True, False, 3, 2.5, -1e-30, "word", "8,8"])
def test_values_survive_a_csv_file(value: Any) -> None:
    assert typed("" if value is None else str(value)) == value


def test_other_results_are_refused(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"holds other results: study \(fake there, other now\); name another folder"):
        run_study(dataclasses.replace(FAKE, name="other"), "quick", finished)
    with pytest.raises(UsageError, match=r"preset \(quick there, laptop now\)"):
        run_study(FAKE, "laptop", finished)
    longer = dataclasses.replace(FAKE, grid=fake_study.long_grid)
    with pytest.raises(UsageError, match=r"holds other results: grid \("):
        run_study(longer, "quick", finished)
    monkeypatch.setattr(store, "version", lambda: "9.9")
    with pytest.raises(UsageError, match=r"version \(.* there, 9.9 now\)"):
        run_study(FAKE, "quick", finished)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not empty and holds no study"):
        run_study(FAKE, "quick", tmp_path)
    (tmp_path / "study.json").write_text('{"study": ')
    with pytest.raises(UsageError, match=r"damaged study\.json"):
        run_study(FAKE, "quick", tmp_path)


def test_paper_presets_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isobatch.envs.envpool_backend.is_installed", lambda: False)
    with pytest.raises(UsageError, match="backend 'envpool' is not installed: make setup-envpool"):
        run_study(study_of("invariance"), "paper", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_that_step_outside_are_trained_one_at_a_time() -> None:
    parts = parts_of(study_of("adam-rule").grid("paper"))
    assert {len(part) for part in parts} == {1}


def test_a_full_disk_stops_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full when the second part's rows are written: the first part stays, nothing is half-written."""
    true, times = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal times
        times += 1
        if times == 8:  # study.json, two files of a part, three made of all parts, and the next part's curves
            raise OSError(28, "No space left on device")
        true(descriptor)

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(RunError, match=r"No space left on device.*what was finished is kept"):
        run_study(FAKE, "quick", tmp_path / "out")
    assert [path.suffix for path in sorted((tmp_path / "out" / "parts").iterdir())].count(".json") == 1
    assert not list((tmp_path / "out").rglob("*.new*"))
    monkeypatch.setattr(store.os, "fsync", true)
    run_study(FAKE, "quick", tmp_path / "out")
    assert len(Results.read(tmp_path / "out").rows()) == 10


def test_the_catalogue_is_complete() -> None:
    assert set(STUDIES) == {
        *("staleness", "invariance", "adam-rule", "ewma", "prox-grid", "epochs", "geometry", "aggregation"),
    }
    with pytest.raises(UsageError, match=r"study 'stalenes' is unknown; did you mean staleness\?"):
        study_of("stalenes")


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", PRESETS)
def test_every_grid_builds(name: str, scale: str) -> None:
    study = STUDIES[name]
    grid = study.grid(scale)
    sizes = grid.sizes()
    assert len(sizes["environments"]) == {"quick": 1, "paper": 16}.get(scale, len(sizes["environments"]))
    assert scale != "laptop" or len(sizes["environments"]) >= 2
    assert grid.num_seeds >= 3
    assert not study.pictures or study.pictures in sizes["factors"]
    assert set(study.everywhere) <= set(sizes["factors"])
    names = [tuple(cell.factors.items()) for cell in grid.cells if cell.config.env == sizes["environments"][0]]
    assert len(set(names)) == len(names)
    for cell in grid.cells:
        range_of(cell.config.env)
        steps = [other.config.env_steps for other in grid.cells if other.config.env == cell.config.env]
        assert min(steps) > 0.9 * max(steps), "compared at equal data"


def made_up(name: str, good: dict[str, Any] | None = None) -> list[Row]:
    """Rows of a quick grid: 0.5 with some noise, 0.9 for cells with the factors `good`."""
    rng = np.random.default_rng(0)
    rows = []
    for cell in STUDIES[name].grid("laptop").cells:
        better = good is not None and all(cell.factors.get(k) == v for k, v in good.items())
        for seed in range(4):
            value = (0.9 if better else 0.5) + 0.01 * rng.normal()
            row = {"cell": cell.name, "seed": seed, "env": cell.config.env, **cell.factors}
            row |= {"normalized_final": value, "normalized_mean": value, "final_return": 1.0, "diverged": False}
            rows.append(row | {"approx_kl": 0.01})
    return rows


@pytest.mark.parametrize("name", STUDIES)
def test_verdicts_are_sentences(name: str) -> None:
    found = STUDIES[name].verdict(made_up(name))
    assert found
    assert all(sentence.endswith(".") and "nan" not in sentence for sentence in found)


def test_verdicts_follow_the_numbers() -> None:
    def sentence(name: str, good: dict[str, Any] | None, begin: str) -> str:
        return next(line for line in STUDIES[name].verdict(made_up(name, good)) if line.startswith(begin))

    begin = "At c = 64, no Adam rule less all rules, in normalized final return"
    assert "which cannot be told from 0" in sentence("invariance", None, begin)
    assert "which is above 0" in sentence("invariance", {"rules": "no Adam rule"}, begin)
    gap = "All rules, normalized final return:"
    assert "gap between best and worst of c = 1, 4, 16, 64 is 0.0" in sentence("invariance", None, gap)
    assert "is 0.4" in sentence("invariance", {"divisor": 64}, gap)
    assert "smallest: -0.39" in sentence("invariance", {"divisor": 64}, "All rules, normalized final return,")
    stands = sentence("invariance", {"rules": "no Adam rule"}, "Of 13 tests")
    assert "these stand at the paper's 0.1%: 2 (At c = 64, no Adam rule" in stands
    assert "at the paper's 0.1%: 0; and at 5 % besides: 0." in sentence("invariance", None, "Of 13 tests")
    decoupled = {"treatment": "decoupled", "staleness": 8}
    assert "which is above 0" in sentence("staleness", decoupled, "Staleness 8: decoupled less recent")
    assert "cannot be told" in sentence("staleness", decoupled, "Staleness 4: decoupled less recent")
    assert "0.40" in sentence("ewma", {"algo": "ppo-ewma"}, "ppo-ewma less ppo")
    assert "probability 1.00" in sentence("ewma", {"algo": "ppo-ewma"}, "A run of ppo-ewma")
    assert "best 0.90 at 32 x 4" in sentence("prox-grid", {"center_of_mass": 32, "kl_coef": 4.0}, "Normalized")
    several = {"update_epochs": 4, "divisor": 16}
    assert "final return: c = 1: 0.50, c = 16: 0.90; a gap of 0.4" in sentence("epochs", several, "E = 4")
    assert "a gap of 0.0" in sentence("epochs", several, "E = 1")
    assert "c = 16: 0.90" in sentence("adam-rule", {"adam_rule": "linear", "divisor": 16}, "CartPole-v1, linear")
    assert "32 x 32: 0.90" in sentence("geometry", {"shape": "32 x 32"}, "N x T")
    assert "which is above 0" in sentence("aggregation", {"aggregation": "timestep"}, "timestep less trajectory")


def test_summary_has_a_line_for_each_variant_and_for_all_environments() -> None:
    rows = made_up("ewma")
    lines = summarise_rows(rows, ["algo"])
    envs = {row["env"] for row in rows}
    assert len(lines) == 4 * len(envs) + 4
    assert {line["env"] for line in lines} == {*envs, "all environments"}
    first = lines[0]
    mean = np.mean([row["normalized_final"] for row in rows if (row["env"], row["algo"]) == (first["env"], "ppo")])
    assert first["normalized_final"]["value"] == pytest.approx(mean)
    assert first["normalized_final"]["low"] < mean < first["normalized_final"]["high"]
    assert variant_name({"rules": "all rules", "divisor": 4}, ["rules", "divisor"]) == "all rules, divisor 4"


def test_the_picture_of_gaps_has_a_bar_for_each_environment_and_variant() -> None:
    from matplotlib import pyplot

    rows = made_up("invariance", {"rules": "no Adam rule", "divisor": 64})
    found = gaps_of(STUDIES["invariance"], rows)
    assert found is not None
    figure = draw_gaps(found, "invariance")
    heights = {
        bar.get_label(): [patch.get_height() for patch in bar] for bar in figure.axes[0].containers if len(bar) == 1
    }
    pyplot.close(figure)
    assert heights["no Adam rule"] == [pytest.approx(-0.4, abs=0.03)]
    assert heights["all rules"] == [pytest.approx(0, abs=0.03)]
    assert len(figure.axes[0].patches) == 4 * 6 + 1  # PPG has a rule more


def test_the_curve_of_a_run_that_diverged_ends_there() -> None:
    table = {
        "env_steps": np.array([10, 10, 20, 30, 40]),
        "seed": np.array([0, 1, 0, 0, 0]),
        RETURN: np.array([1.0, 5.0, 2.0, 3.0, 4.0]),
    }
    x, lines = seed_lines(table, RETURN, points=4)
    assert x.tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(lines, [[1, 2, 3, 4], [5, np.nan, np.nan, np.nan]])


def test_versions_of_a_study_that_went_on_with_others_are_all_noted(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fake"
    shutil.copytree(finished, path)
    before = Results.read(path).about["versions"]
    assert before["jax"] == [jax.__version__]
    assert {"python", "isobatch", "numpy"} <= before.keys()
    parts = parts_of(FAKE.grid("quick"))
    Results.read(path).part(parts[2], ".json").unlink()
    monkeypatch.setattr(store, "versions", lambda: {name: found[0] for name, found in before.items()} | {"jax": "99"})
    run_study(FAKE, "quick", path)
    assert Results.read(path).about["versions"] == before | {"jax": [jax.__version__, "99"]}
    assert (path / "rows.csv").read_bytes() == (finished / "rows.csv").read_bytes()


def test_the_surface_shows_the_score_of_every_pair() -> None:
    from matplotlib import pyplot

    rows = made_up("prox-grid", {"center_of_mass": 32, "kl_coef": 4.0})
    figure = draw_surface(rows, ("center_of_mass", "kl_coef"), "title")
    first = figure.axes[0]
    pyplot.close(figure)
    values = first.images[0].get_array()
    assert values.shape == (5, 5)
    assert values[4, 4] == pytest.approx(0.9, abs=0.03)
    assert len(first.texts) == 25


def test_the_variance_is_drawn_for_every_shape_and_checkpoint() -> None:
    from matplotlib import pyplot

    measured = [
        {"env": env, "env_steps": steps, "num_envs": n, "num_steps": 8 // n}
        | {"variance": n, "variance_low": n / 2, "variance_high": 2 * n}
        for env in ("a", "b")
        for steps in (50, 100)
        for n in (4, 2)
    ]
    figure = draw_variance(measured, "title")
    pyplot.close(figure)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    assert [line.get_ydata().tolist() for line in lines] == [[4, 2], [4, 2]]
    assert [text.get_text() for text in figure.legends[0].texts] == ["1/2 of the run", "2/2 of the run"]
    told = STUDIES["geometry"].reading(made_up("geometry"), at_shapes())
    assert "128 x 8 1.00 [0.50, 2.00], 32 x 32 2.00 [1.00, 4.00]" in told[0]
    assert told[1].startswith("CartPole-v1: the gradient is least noisy at 128 x 8 and noisiest at 32 x 32")


def at_shapes() -> list[Row]:
    """As the laboratory leaves them: the variance doubles from 128 x 8 to 32 x 32."""
    shapes = {(128, 8): 3.0, (32, 32): 6.0}
    return [
        {"env": "CartPole-v1", "env_steps": 100, "num_envs": n, "num_steps": t}
        | {"variance": v, "variance_low": v / 2, "variance_high": 2 * v}
        | {"critical_batch": 1000.0, "critical_batch_low": 900.0, "critical_batch_high": 1200.0}
        for (n, t), v in shapes.items()
    ]


def test_invariance_names_the_critical_batch_size() -> None:
    rows = [row | {"num_envs": 64, "num_steps": 32, "num_minibatches": 16} for row in made_up("invariance")]
    assert STUDIES["invariance"].reading(rows, at_shapes()[:1]) == [
        "CartPole-v1: optimization batches of 128 to 2 samples; critical batch size by the laboratory: "
        "1,000 [900, 1,200] after 100 steps."
    ]


def test_what_doubling_does_is_found() -> None:
    """KL = center^-1 x coefficient^-1/2, exactly."""
    rows = [
        row | {"approx_kl": row["center_of_mass"] ** -1.0 * row["kl_coef"] ** -0.5, "normalized_mean": 0.5}
        for row in made_up("prox-grid")
    ]
    found = slopes([row for row in rows if row["env"] == "CartPole-v1"], "approx_kl")
    np.testing.assert_allclose(found, np.array([[-1.0], [-0.5], [-0.5]]) * np.ones(4), atol=1e-9)
    np.testing.assert_allclose(slopes(rows, "normalized_mean"), 0, atol=1e-9)
    assert any("they differ (-0.50" in sentence for sentence in STUDIES["prox-grid"].verdict(rows))


def test_list_needs_no_jax() -> None:
    code = "import sys; from isobatch.cli.main import main; main(['study', 'list']); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert all(name in done.stdout for name in STUDIES)


@pytest.mark.usefixtures("registered")
def test_the_command_runs_reports_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "fake"
    assert main(["study", "run", "fake", "--out", str(out)]) == 0
    printed, progress = capsys.readouterr()
    assert "What it shows" in printed
    assert "Fast less slow" in printed
    assert "Probe-Delay" in printed
    assert "part 3 of 3" in progress
    assert f"Report, to open in a browser: {out / 'report.html'}" in printed.replace("\n", "")
    pictures = sorted(path.name for path in out.glob("*.png"))
    assert pictures == ["curves-4.png", "curves-8.png", "scores.png"]
    assert {path.with_suffix(".svg") for path in out.glob("*.png")} == set(out.glob("*.svg"))
    for path in (*out.glob("*.png"), *out.glob("*.svg")):
        path.unlink()
    assert main(["study", "report", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finished"]
    assert found["study"] == "fake"
    assert len(found["table"]) == 5 + 1
    assert all(Path(path).stat().st_size > 5000 for path in found["pictures"])
    assert Path(found["page"]) == out / "report.html"
    assert main(["study", "list", "--json"]) == 0
    assert {study["name"] for study in json.loads(capsys.readouterr().out)["studies"]} == {*STUDIES, "pendulum-post"}


@pytest.mark.usefixtures("registered")
def test_a_report_on_half_a_study(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "fake"
    shutil.copytree(finished, path)
    results, parts = Results.read(path), parts_of(FAKE.grid("quick"))
    results.part(parts[2], ".json").unlink()
    results.collect(parts)
    found = make_report(path)
    assert found["verdict"] == ["4 of 5 settings are finished: run the study again to go on, then there is a verdict."]
    assert len(found["table"]) == 4
    (path / "rows.csv").unlink()
    with pytest.raises(RunError, match="has no finished part yet"):
        make_report(path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "stalenes"], "study 'stalenes' is unknown; did you mean staleness?"),
        (["run", "staleness", "--preset", "labtop"], "preset='labtop' is unknown; did you mean laptop?"),
        (["run"], "needs the name of a study"),
        (["report"], "needs the directory of a study"),
        (["report", "/nowhere"], "holds no study"),
        (["list", "ewma"], "takes no name"),
        (["rum", "ewma"], "action 'rum' is unknown; did you mean run?"),
    ],
)
def test_bad_usage(words: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["study", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_an_interrupted_study_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "run_study", interrupt)
    assert main(["study", "run", "ewma", "--out", str(tmp_path / "out")]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err


def test_killed_for_real_and_run_again(tmp_path: Path) -> None:
    """SIGKILL in the middle of the first part and of the second; then it ends with the files of an undisturbed run."""

    def start(out: Path) -> subprocess.Popen:
        words = [sys.executable, str(Path(fake_study.__file__)), "study", "run", "fake", "--quiet", "--json"]
        return subprocess.Popen([*words, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    out = tmp_path / "killed"
    for seen in ("study.json", "parts/*.json"):
        process, end = start(out), time.monotonic() + 120
        while not list(out.glob(seen)) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert not (out / "scores.svg").exists()
    for path in (out, tmp_path / "undisturbed"):
        process = start(path)
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    assert same_files(out, tmp_path / "undisturbed")


def test_settings_of_the_paper() -> None:
    """FACTS section 4: invariance with PPG-EWMA at 256 to 1 environments, three seeds."""
    grid = STUDIES["invariance"].grid("paper")
    own = [
        cell
        for cell in grid.cells
        if cell.config.env == "envpool/BigfishHard-v0" and cell.factors["rules"] == "all rules"
    ]
    assert [cell.config.num_envs for cell in own] == [256, 64, 16, 4, 1]
    assert [cell.config.policy_iterations_per_phase for cell in own] == [32, 128, 512, 2048, 8192]
    assert [round(cell.config.hypers.beta_prox, 6) for cell in own] == [
        0.888889,
        0.969697,
        0.992248,
        0.998051,
        0.999512,
    ]
    assert own[0].config.hypers.learning_rate == 5e-4
    assert grid.num_seeds == 3
