"""The figures of a study show what was measured."""

import numpy as np
import pytest
from made_up_rows import at_shapes, made_up

from isobatch.studies.charts import gaps_of, seed_lines
from isobatch.studies.claims import STUDIES
from isobatch.studies.figures import draw_bars, draw_surface, draw_variance
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
    assert len(figure.axes[0].patches) == 8 * 4 + 3 * 2 + 1  # two variants more on three environments, and PPG's rule


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
