"""The page of a study in a real browser: what is drawn, and what it does when it is used."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_up_study
import numpy as np
import pytest
from browser import CHROMIUM, Browser
from test_html_report import data_of, report

from isobatch.training.metrics import RETURN

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: `make setup-browser` installs it"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = made_up_study.write_study(tmp_path_factory.mktemp("page") / "made-up")
    report(path)
    return path


@pytest.fixture
def page(browser: Browser, made: Path) -> Iterator[Browser]:
    """The page, opened anew. Whatever a test does there, nothing complains and nothing is loaded."""
    browser.theme("light")
    browser.open(made / "report.html")
    yield browser
    assert browser.problems == []
    assert browser.requests == [(made / "report.html").resolve().as_uri()]


@pytest.fixture
def data(made: Path) -> dict[str, Any]:
    return data_of(made)


def choose(page: Browser, name: str, value: int) -> None:
    """As if chosen from a list."""
    page.run(f"(s => {{ s.value = {value}; s.dispatchEvent(new Event('change')) }})(document.getElementById('{name}'))")
    page.settle()


def click(page: Browser, selector: str, place: int = 0, times: int = 1) -> None:
    x, y, width, height = box(page, selector, place)
    page.click(x + width / 2, y + height / 2, times)
    page.settle()


def box(page: Browser, selector: str, place: int = 0) -> tuple[float, float, float, float]:
    """Left, top, width and height in the window, after scrolling there."""
    return page.run(
        f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const r = e.getBoundingClientRect();"
        f" return [r.left, r.top, r.width, r.height] }})(document.querySelectorAll({json.dumps(selector)})[{place}])"
    )


def lines(page: Browser, kind: str = "mean") -> dict[str, str]:
    """Label -> path of what is drawn."""
    return page.run(
        f"Object.fromEntries([...document.querySelectorAll('#curves-plot .{kind}')]"
        ".map(e => [e.dataset.series, e.getAttribute('d')]))"
    )


def steps(page: Browser) -> list[float]:
    """Where the x-axis begins and ends."""
    return page.run("(d => [Number(d.from), Number(d.to)])(document.querySelector('#curves-plot svg').dataset)")


def texts(page: Browser, selector: str) -> list[str]:
    return page.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")


def keys(page: Browser, table: int, column: int) -> list[str]:
    """What the rows of a table are sorted by, in their order."""
    rows = f"document.querySelectorAll('#tables table')[{table}].tBodies[0].rows"
    return page.run(f"[...{rows}].map(row => row.cells[{column}].dataset.sort)")


def mean_of(data: dict[str, Any], env: str, view: int, label: str, metric: str = RETURN) -> list[float]:
    """Mean over seeds, from the JSON of the page; not a number where no seed has a value."""
    cells = next(line["cells"] for line in data["views"][view]["lines"] if line["label"] == label)
    values = np.array(data["cells"][cells[env]]["lines"][metric], dtype=float)
    there = ~np.all(np.isnan(values), axis=0)
    found = np.full(values.shape[1], np.nan)
    found[there] = np.nanmean(values[:, there], axis=0)
    return found.tolist()


def test_charts_are_drawn(page: Browser, data: dict[str, Any]) -> None:
    assert list(lines(page)) == ["c = 1 (base)", "c = 4", "c = 16"]
    sizes = page.run(
        "[...document.querySelectorAll('#curves-plot .mean, #curves-plot .band')]"
        ".map(e => e.getBBox()).map(b => [b.width, b.height])"
    )
    assert len(sizes) == 6
    assert all(width > 400 and height > 100 for width, height in sizes)
    assert page.run("document.querySelectorAll('#scores-plot .point').length") == 2 * 8
    assert page.run("document.querySelectorAll('#scores-plot .dot').length") == 2 * 8 * 9
    assert page.run("document.querySelectorAll('#gaps-plot .bar').length") == len(data["gaps"]["bars"]) == 11
    assert page.run("document.querySelectorAll('.legend .entry').length") == 3 + 3 + 2 + 4


def test_the_mean_over_environments_has_a_panel_for_each_treatment(page: Browser, data: dict[str, Any]) -> None:
    """A label switched off leaves all panels; pointing at a panel shows its values at that place."""
    panels = data["averages"]["panels"]
    assert [len(panel["lines"]) for panel in panels] == [3, 3, 2, 3]
    count = "[...document.querySelectorAll('#averages-plot .mean')].map(p => p.dataset.panel)"
    assert page.run(count) == [str(i) for i, panel in enumerate(panels) for _ in panel["lines"]]
    x, y, width, height = box(page, "#averages-plot .hit")
    page.hover(x + width - 1, y + height / 2)
    shown = page.run("[...document.querySelectorAll('#averages-plot .tip .value')].map(v => Number(v.dataset.value))")
    assert shown == sorted((line["mean"][-1] for line in panels[0]["lines"]), reverse=True)
    click(page, "#averages-legend .entry", 2)
    assert page.run("document.querySelectorAll('#averages-plot .mean').length") == 8
    assert f"has them: c = 16 of {made_up_study.LONG}." in texts(page, "#averages-note")[0]


def test_a_reference_is_dashed_and_gray_in_every_chart(browser: Browser, tmp_path: Path) -> None:
    """And a level has the same color in all of them."""
    study = dataclasses.replace(made_up_study.STUDY, name="compared", everywhere={}, reference={"divisor": 1})
    path = made_up_study.write_study(tmp_path / "compared", study=study)
    report(path, study)
    browser.open(path / "report.html")
    style = "[...new Set([...document.querySelectorAll('{} .mean')].filter(e => e.dataset.series === '{}')"
    style += ".map(e => [e.style.stroke, e.getAttribute('stroke-dasharray')].join(' ')))]"
    for chart in ("#averages-plot", "#curves-plot"):
        assert browser.run(style.format(chart, "c = 1 (base)")) == ["var(--soft) 6 4"]
        assert browser.run(style.format(chart, "c = 16")) == ["var(--series-1) "]
    assert browser.problems == []


def test_every_choice_can_be_drawn(page: Browser, data: dict[str, Any]) -> None:
    """With bands, seeds and a logarithmic axis where there may be one: no number is missing in any attribute."""
    for name in ("curves-seeds", "curves-log"):
        click(page, f"#{name}")
    for env in range(len(data["environments"])):
        choose(page, "curves-environment", env)
        for view in range(len(data["views"])):
            choose(page, "curves-view", view)
            for metric in range(len(data["metrics"])):
                choose(page, "curves-metric", metric)
                drawn = page.run("document.getElementById('curves-plot').innerHTML")
                assert not re.search("NaN|undefined|Infinity|null", drawn)
                assert lines(page)


def test_names_switch_lines_off_and_on(page: Browser) -> None:
    before = lines(page)
    click(page, "#curves-legend .entry", 1)
    assert list(lines(page)) == list(lines(page, "band")) == ["c = 1 (base)", "c = 16"]
    pressed = "[...document.querySelectorAll('#curves-legend .entry')].map(e => e.getAttribute('aria-pressed'))"
    assert page.run(pressed) == ["true", "false", "true"]
    click(page, "#curves-legend .entry", 1)
    page.hover(1, 1)
    page.settle()
    assert lines(page).keys() == before.keys()
    click(page, "#curves-legend .all", 1)
    assert lines(page) == {}
    assert texts(page, "#curves-plot .empty") == ["All lines are switched off."]
    page.run("document.querySelector('#curves-legend .entry').focus()")
    page.press("Enter")
    page.settle()
    assert list(lines(page)) == ["c = 1 (base)"]
    click(page, "#curves-legend .all", 0)
    page.run("document.activeElement.blur()")
    page.settle()
    assert lines(page) == before


def test_the_environment_changes_the_data(page: Browser) -> None:
    before = lines(page)
    choose(page, "curves-environment", 2)
    after = lines(page)
    assert after.keys() == before.keys()
    assert all(after[label] != before[label] for label in before)
    assert "environment steps, Breakout-MinAtar" in texts(page, "#curves-plot text")


def test_bands_and_seeds(page: Browser) -> None:
    count = "document.querySelectorAll('#curves-plot .{}').length"
    assert (page.run(count.format("band")), page.run(count.format("seed"))) == (3, 0)
    click(page, "#curves-bands")
    click(page, "#curves-seeds")
    assert (page.run(count.format("band")), page.run(count.format("seed"))) == (0, 9)


def test_zoom_and_back(page: Browser) -> None:
    whole, ticks = steps(page), texts(page, "#curves-plot .x-tick")
    x, y, width, height = box(page, "#curves-plot .hit")
    for back in (lambda: click(page, "#curves-reset"), lambda: click(page, "#curves-plot .hit", times=2)):
        page.drag((x + 0.25 * width, y + height / 2), (x + 0.5 * width, y + height / 2))
        page.settle()
        assert steps(page) == pytest.approx([0.25 * whole[1], 0.5 * whole[1]], rel=0.02)
        assert texts(page, "#curves-plot .x-tick") != ticks
        assert not page.run("document.getElementById('curves-reset').disabled")
        back()
        assert steps(page) == whole
        assert texts(page, "#curves-plot .x-tick") == ticks
        assert page.run("document.getElementById('curves-reset').disabled")
        x, y, width, height = box(page, "#curves-plot .hit")


def test_the_crosshair_tells_the_values(page: Browser, data: dict[str, Any]) -> None:
    view = 1  # with runs that diverged
    choose(page, "curves-view", view)
    x, y, width, height = box(page, "#curves-plot .hit")
    for share in (0.1, 0.4, 0.9):
        page.hover(x + share * width, y + height / 2)
        page.settle()
        index = int(page.run("document.querySelector('#curves-plot .tip b').dataset.index"))
        end = data["environments"][0]["last"]
        assert end * (index + 1) / data["points"] == pytest.approx(share * steps(page)[1], abs=end / data["points"])
        found = dict(
            page.run(
                "[...document.querySelectorAll('#curves-plot .tip tr')].map(e => "
                "[e.querySelector('.label').textContent, Number(e.querySelector('.value').dataset.value)])"
            )
        )
        wanted = {label: mean_of(data, "CartPole-v1", view, label)[index] for label in lines(page)}
        assert found == pytest.approx(wanted)
        assert list(found.values()) == sorted(found.values(), reverse=True)
    assert "1 of 3 seeds" in "".join(texts(page, "#curves-plot .tip"))
    page.hover(1, 1)
    page.settle()
    assert page.run("document.querySelector('#curves-plot .tip').hidden")


def test_the_keyboard_reads_and_zooms(page: Browser) -> None:
    page.run("document.querySelector('#curves-plot svg').focus()")
    page.press("ArrowRight")
    first = int(page.run("document.querySelector('#curves-plot .tip b').dataset.index"))
    page.press("ArrowRight")
    assert int(page.run("document.querySelector('#curves-plot .tip b').dataset.index")) == first + 1
    whole = steps(page)
    page.press("+")
    page.settle()
    assert steps(page)[1] - steps(page)[0] == pytest.approx((whole[1] - whole[0]) / 2)
    page.press("0")
    page.settle()
    assert steps(page) == whole
    page.press("Escape")
    assert page.run("document.querySelector('#curves-plot .tip').hidden")


def test_runs_that_diverged_and_runs_without_an_episode(page: Browser) -> None:
    choose(page, "curves-view", 1)
    assert page.run("document.querySelectorAll('#curves-plot .lost').length") == 2
    assert "2 of 3 diverged" in "".join(texts(page, "#curves-legend .lost"))
    choose(page, "curves-environment", 1)
    choose(page, "curves-view", 2)
    assert lines(page)["c = 16"] == ""
    assert texts(page, "#curves-legend .lost") == ["no values"]
    for place in (0, 1):
        click(page, "#curves-legend .entry", place)
    assert texts(page, "#curves-plot .empty") == ["There are no values to draw."]


def test_normalized_and_logarithmic(page: Browser, data: dict[str, Any]) -> None:
    choose(page, "curves-metric", 1)
    box(page, "#curves-plot .hit")
    page.run("document.querySelector('#curves-plot svg').focus()")
    page.press("ArrowRight")
    index = int(page.run("document.querySelector('#curves-plot .tip b').dataset.index"))
    value = page.run("Number(document.querySelector('#curves-plot .tip .value').dataset.value)")
    low, high = data["environments"][0]["range"]
    wanted = [(mean_of(data, "CartPole-v1", 0, label)[index] - low) / (high - low) for label in lines(page)]
    assert value == pytest.approx(max(wanted))
    choose(page, "curves-metric", 3)  # KL
    before = lines(page)
    click(page, "#curves-log")
    assert lines(page) != before
    choose(page, "curves-environment", 1)
    choose(page, "curves-metric", 0)  # returns below zero
    assert page.run("document.getElementById('curves-log').disabled")


def test_scores_of_an_environment(page: Browser, data: dict[str, Any]) -> None:
    choose(page, "scores-environment", 1)
    own = [entry for entry in data["scores"] if entry["env"] == "CartPole-v1"]
    values = "[...document.querySelectorAll('#scores-plot .point')].map(e => Number(e.dataset.value))"
    wanted = [entry[column]["value"] for entry in own for column in ("normalized_final", "normalized_mean")]
    assert page.run(values) == wanted
    click(page, "#scores-legend .entry", 0)
    assert page.run(values) == wanted[1::2]
    x, y, width, height = box(page, "#scores-plot .row", 2)
    page.hover(x + width / 2, y + height / 2)
    page.settle()
    assert own[2]["variant"] in texts(page, "#scores-plot .tip")[0]
    choose(page, "scores-environment", 2)  # with a variant in which no episode ended
    assert page.run("document.querySelectorAll('#scores-plot .point').length") == 8
    assert texts(page, "#scores-plot .empty") == ["no episode ended"]


def test_gaps_are_on_a_square_root_axis(page: Browser, data: dict[str, Any]) -> None:
    bars = page.run(
        "[...document.querySelectorAll('#gaps-plot .bar')]"
        ".map(e => [Number(e.dataset.value), Number(e.getAttribute('height'))])"
    )
    assert sorted(value for value, _ in bars) == sorted(bar["value"] for bar in data["gaps"]["bars"])
    scale = [height / abs(value) ** 0.5 for value, height in bars if height > 2]
    assert scale == pytest.approx([scale[0]] * len(scale), rel=1e-3)
    click(page, "#gaps-legend .entry", 0)
    assert page.run("document.querySelectorAll('#gaps-plot .bar').length") == 8


def test_tables_sort(page: Browser) -> None:
    def column(place: int) -> list[str]:
        return keys(page, 1, place)

    original, head = column(1), "#tables h3:nth-of-type(2) + .scroll th button"
    click(page, head, 1)
    assert column(1) == sorted(original, key=float)
    assert page.run(f"document.querySelectorAll({head!r})[1].parentElement.ariaSort") == "ascending"
    click(page, head, 1)
    assert column(1) == sorted(original, key=float, reverse=True)
    click(page, head, 1)
    assert column(1) == original
    click(page, head, 0)
    names = column(0)
    assert names.index("all rules, c = 4") < names.index("all rules, c = 16"), "numbers in names count"


def test_what_is_missing_is_sorted_to_the_end(page: Browser) -> None:
    """On the second environment one variant never ended an episode, so it has no return."""
    head = "#tables h3:nth-of-type(3) + .scroll th button"
    for _ in ("ascending", "descending"):
        click(page, head, 4)
        *there, last = keys(page, 2, 4)
        assert last == ""
        assert "" not in there


@pytest.mark.parametrize("width", [340, 700, 1600])
def test_the_page_never_scrolls_sideways(page: Browser, width: int) -> None:
    page.size(width)
    page.settle()
    assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.run("document.querySelector('#curves-plot svg').getBoundingClientRect().width") > 0.55 * min(
        width, 1160
    )


def test_on_a_narrow_screen_names_are_free_of_lines_and_tables_show_that_they_scroll(page: Browser) -> None:
    """A strip without lines lies under each name, above the lines; a table that is cut off has a bar below it."""
    page.size(400)
    page.settle()
    parts = page.run(
        "[...document.querySelector('#scores-plot svg').children].map((e, i) => [e.getAttribute('class'), i, "
        "e.getBBox().y, e.getBBox().y + e.getBBox().height])"
    )
    last_line = max(place for kind, place, *_ in parts if kind == "axis")
    strips = [part for part in parts if part[0] == "row strip"]
    names = [part for part in parts if part[0] == "name"]
    assert len(strips) == len(names) == 8
    for (_, over, top, bottom), (_, _, begin, end) in zip(strips, names, strict=True):
        assert over > last_line
        assert top <= begin < end <= bottom
    bars = page.run(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        ".map(e => e.offsetHeight - e.clientHeight - 2)"
    )
    assert bars
    assert set(bars) == {10}


def test_dark_and_print(page: Browser) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.run(paper) == "rgb(255, 255, 255)"
    page.theme("dark")
    assert page.run(paper) == "rgb(20, 23, 27)"
    page.theme("dark", "print")
    assert page.run(paper) == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('.controls')).display") == "none"


def test_half_a_study(browser: Browser, tmp_path: Path) -> None:
    path = made_up_study.write_study(tmp_path / "half", without=8)
    report(path)
    browser.open(path / "report.html")
    assert "Not finished." in texts(browser, ".banner")[-1]
    assert browser.run("document.getElementById('gaps').hidden")
    assert browser.problems == []
