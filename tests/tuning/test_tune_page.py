"""The page of a search, of trials that nobody trained: what is in it, and what a browser draws."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser

from isobatch.settings.presets import preset
from isobatch.studies.rows import CURVES
from isobatch.training.metrics import EPISODES, RETURN, Table
from isobatch.tuning.directory import Confirmed
from isobatch.tuning.ranges import chosen_ranges, config_of, settings_of
from isobatch.tuning.report import axis_label, html_page
from isobatch.tuning.trials import LOST, Trial, ranked
from isobatch.tuning.tuned import Finalist, Tuned

pytestmark = pytest.mark.xdist_group("browser")
CONFIG = preset("ppo", "CartPole-v1")
RANGES = chosen_ranges(CONFIG, ["learning_rate", "num_minibatches", "ent_coef=0:0.01"], [], ())
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: `make setup-browser` installs it")
RATES = np.geomspace(1e-4, 1e-2, 12)


def made_up() -> Tuned:
    """Twelve trials, of which every third reached the end; one diverged."""
    start = Trial(0, settings_of(CONFIG, RANGES), (5.0,), 3, (5.0, 5.0), 4.0, 0, 1000)
    trials = [start]
    for number, rate in enumerate(RATES, 1):
        settings = {"learning_rate": float(rate), "num_minibatches": 4, "ent_coef": 0.01}
        scores = (10.0 * number,) * 3 if number % 3 == 0 else (10.0 * number,)
        trials.append(Trial(number, settings, scores, 3, (scores[-1],) * 2, 5.0 * number, 0, 1000 * len(scores)))
    trials[1] = Trial(1, trials[1].settings, (LOST,), 3, (None, None), None, 2, 1000)
    best = ranked(trials)
    final = [
        Finalist(each, config_of(CONFIG, each.settings), Confirmed([400.0, 500.0], 2000, 3.0, 1.0, "now"))
        for each in best[:3]
    ]
    return Tuned(Path("<search>"), CONFIG, RANGES, best, final, None, 50_000, 40_000, 60.0, 20.0)


def curves() -> dict[int, Table]:
    """A rising line of two seeds for each trial; that of trial 1 has none."""
    steps = np.repeat(np.arange(1, 41) * 1024, 2)
    table = {name: np.full(80, 0.5) for name in CURVES}
    table |= {"env_steps": steps, "seed": np.tile([0, 1], 40), RETURN: steps / 1000, EPISODES: np.ones(80)}
    return {number: table for number in range(13) if number != 1}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_page(made_up(), curves()))
    return path


def test_words_and_numbers_need_no_script(page: Path) -> None:
    text = page.read_text()
    assert "Trial 12 won: mean return 450.0 on 2 new seeds, 400.0 to 500.0." in text
    assert "Trial 0, the settings it started from: 5.00, stopped." in text
    assert "13 trials, 9 of them stopped early, 40,000 of 50,000 environment steps" in text
    assert "learning_rate: 0.01" in text
    assert "<code>isobatch train --algo ppo --env CartPole-v1 --learning-rate 0.01 " in text
    assert ">diverged, stopped<" in text
    assert "<search>" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1e-4, "1e-4"), (1e-3, "1e-3"), (0.01, "0.01"), (0.00316, "0.0032"), (0.945, "0.945"),
     (0.9995, "0.9995"), (12.5, "12.5"), (4096.0, "4096")],
)  # fmt: skip
def test_labels_of_axes_are_short(value: float, text: str) -> None:
    assert axis_label(value) == text


@pytest.fixture(scope="module")
def browser(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    browser.open(page)
    yield browser
    assert browser.problems == []
    assert browser.requests == [page.resolve().as_uri()]
    browser.close()


@needs_browser
def test_a_line_for_each_trial_and_a_bar_for_each_setting(browser: Browser) -> None:
    count = "document.querySelectorAll('{}').length"
    assert browser.run(count.format("#parallel-plot .trial")) == 13
    assert browser.run(count.format("#parallel-plot .trial.stopped")) == 9
    assert browser.run(count.format("#importance-plot .bar")) == len(RANGES)
    assert browser.run(count.format("#curves-plot .mean")) == 11  # the best ten, and where it started
    assert browser.run(count.format("#curves-plot .band")) == 0  # of so many lines they would hide each other


@needs_browser
def test_pointing_at_a_line_tells_its_settings(browser: Browser) -> None:
    browser.run(
        "document.querySelectorAll('#parallel-plot .near')[12]"
        ".dispatchEvent(new PointerEvent('pointerenter', {clientX: 300, clientY: 300}))"
    )
    tip = browser.run("document.querySelector('#parallel-plot .tip').textContent")
    assert tip.startswith("trial 12: 120.0")
    assert "learning_rate0.01" in tip
