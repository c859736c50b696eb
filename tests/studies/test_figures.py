"""The figures of a study show what was measured."""

import numpy as np
import pytest
from made_up_rows import at_shapes, made_up

from isobatch.studies.charts import colors_of, gaps_of, seed_lines, views_of
from isobatch.studies.claims import STUDIES
from isobatch.studies.figures import draw_bars, draw_curves, draw_scores, draw_surface, draw_variance, look
from isobatch.training.metrics import RETURN


def test_the_picture_of_gaps_has_a_bar_for_each_environment_and_variant() -> None:
    from matplotlib import pyplot

    rows = made_up("invariance", {"rules": "no Adam rule", "divisor": 64})
    found = gaps_of(STUDIES["invariance"], rows)
    assert found is not None
    figure = draw_bars(found, "invariance")
    heights = {
        bar.get_label(): [patch.get_height() for patch in bar] for bar in figure.axes[0].containers if len(bar) == 1
    }
    pyplot.close(figure)
    assert heights["no Adam rule"] == [pytest.approx(-0.4, abs=0.03)]
    assert heights["all rules"] == [pytest.approx(0, abs=0.03)]
    assert (found.title, figure.axes[0].get_yscale()) == ("the base's batch minus 1/64 of it", "function")
    for place, env in enumerate(found.envs):  # bars stand in the middle of their environment, however many
        centers = [patch.get_x() + patch.get_width() / 2 for patch in figure.axes[0].patches]
        own = [x for x in centers if abs(x - place) < 0.5]
        assert len(own) == len(found.variants_on(env))
        assert np.mean(own) == pytest.approx(place)
    assert len(figure.axes[0].patches) == 8 * 4 + 3 * 2 + 1  # two variants more on three environments, and PPG's rule


def test_a_level_has_one_color_in_all_views_and_the_reference_none() -> None:
    study, rows = STUDIES["invariance"], made_up("invariance")
    views = views_of(study, rows, ["rules", "divisor"], study.pictures)
    labels = ["c = 1/16", "c = 1/4", "c = 1 (base)", "c = 4", "c = 16", "c = 64", "no EWMA, weak KL penalty"]
    places = dict(zip(labels, (1, 2, 0, 3, 4, 5, None), strict=True))
    assert [list(view.colors.items()) for view in views] == [list(places.items())] * len(views)
    assert [view.title for view in views][:2] == ["all rules", "no Adam rule"]
    assert {views[1].labels[row["cell"]] for row in views[1].rows} == {labels[2], labels[5], labels[6]}
    assert look(places["no EWMA, weak KL penalty"]) == ("--", "0.45")


def test_colors_repeat_only_where_lines_do_not_meet() -> None:
    assert colors_of([["base", "a", "b"], ["base", "c", "b"]]) == {"base": 0, "a": 1, "b": 2, "c": 1}


def test_a_panel_of_scores_has_the_variants_of_its_environment() -> None:
    from matplotlib import pyplot

    rows = [
        row | {"final_return": None} if (row["env"], row["staleness"]) == ("Acrobot-v1", 0) else row
        for row in made_up("staleness")
    ]
    figure = draw_scores(rows, ["staleness", "treatment"], "staleness")
    named = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes[:4]]
    pyplot.close(figure)
    assert [len(labels) for labels in named] == [13, 7, 7, 7]
    assert [any(labels) for labels in named] == [True, True, False, True]  # of the third they are those of the second
    assert [text.get_text() for text in figure.axes[1].texts] == ["no episode ended"]


def test_bands_end_where_episodes_do() -> None:
    """One failed seed of six on Acrobot, -500 beside -85: mean and deviation reach above 0, which no episode does."""
    from matplotlib import pyplot

    study = STUDIES["sgd-rule"]
    rows = [row for row in made_up("sgd-rule") if row["env"] == "Acrobot-v1"]
    view = views_of(study, rows, ["sgd_rule", "divisor"], study.pictures)[0]
    seeds, steps = np.repeat(np.arange(6), 20), np.tile(np.arange(1, 21), 6)
    table = {"env_steps": steps, "seed": seeds, RETURN: np.where(seeds == 5, -500.0, -85.0)}
    figure = draw_curves(view, {row["cell"]: table for row in rows}, ["Acrobot-v1"], "title")
    ends = figure.axes[0].collections[0].get_paths()[0].get_extents()
    pyplot.close(figure)
    assert (ends.y0, ends.y1) == (pytest.approx(-154.17 - 154.66, abs=0.1), 0)


def test_the_curve_of_a_run_that_diverged_ends_there() -> None:
    table = {
        "env_steps": np.array([10, 10, 20, 30, 40]),
        "seed": np.array([0, 1, 0, 0, 0]),
        RETURN: np.array([1.0, 5.0, 2.0, 3.0, 4.0]),
    }
    x, lines = seed_lines(table, RETURN, points=4)
    assert x.tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(lines, [[1, 2, 3, 4], [5, np.nan, np.nan, np.nan]])


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
    sentences = STUDIES["geometry"].reading(made_up("geometry"), at_shapes())
    assert "128 x 8 1.00 [0.50, 2.00], 32 x 32 2.00 [1.00, 4.00]" in sentences[0]
    assert sentences[1].startswith("CartPole-v1: the gradient is least noisy at 128 x 8 and noisiest at 32 x 32")
