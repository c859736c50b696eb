"""The page of a search: what won, parallel coordinates of all trials, importance, curves of the best, tables."""

from __future__ import annotations

from html import escape
from string import Template

import numpy as np

from isobatch.settings.command import train_command
from isobatch.settings.files import dump_settings
from isobatch.settings.parsing import plain_json
from isobatch.statistics.normalization import bounds_of
from isobatch.studies.charts import WINDOW, seed_lines
from isobatch.studies.html_data import METRICS, NORMALIZED, longest_run, short
from isobatch.studies.report import asset, curve_controls, duration, json_text, style, table
from isobatch.studies.result_files import write
from isobatch.training.curves import POINTS
from isobatch.training.metrics import RETURN, Table
from isobatch.tuning.directory import PAGE
from isobatch.tuning.importance import importance
from isobatch.tuning.ranges import Choice, SearchRange
from isobatch.tuning.trials import Trial
from isobatch.tuning.tuned import Tuned, score_text, table_columns

HERE = "isobatch.tuning"
SHARED = ("charts.js", "curves.js", "crosshair.js", "tables.js")  # with the pages of studies
SCRIPTS = ("parallel.js", "importance.js", "begin.js")
BEST_CURVES = 10


def write_page(tuned: Tuned, curves: dict[int, Table]) -> None:
    write(tuned.path / PAGE, html_page(tuned, curves))


def html_page(tuned: Tuned, curves: dict[int, Table]) -> str:
    config, sentences = tuned.config, tuned.sentences()
    gist = [f"{len(tuned.trials)} trials", f"{tuned.env_steps:,} steps", duration(tuned.seconds)]
    items = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return Template(asset("tune.html", HERE)).substitute(
        title=escape(f"{config.algo} on {config.env}"),
        gist=escape(" · ".join(gist)),
        css=style(),
        verdict=f'<section id="verdict" class="card">\n<h2>What it found</h2>\n<ul>\n{items}\n</ul>\n</section>',
        settings=escape(dump_settings(tuned.settings)),
        command=escape(train_command(tuned.settings)),
        finalists=finalists_table(tuned),
        trials=trials_table(tuned),
        curves=curve_controls(bands=False),
        js="\n".join([*map(asset, SHARED), *(asset(name, HERE) for name in SCRIPTS)]),
        data=json_text(page_data(tuned, curves)),
    )


def page_data(tuned: Tuned, curves: dict[int, Table]) -> dict[str, object]:
    """What the scripts draw."""
    shown = tuned.trials[:BEST_CURVES]
    if tuned.start is not None and tuned.start not in shown:
        shown = [*shown, tuned.start]
    shown = [trial for trial in shown if trial.number in curves]  # one that diverged at once has none
    some = {trial.number: curves[trial.number] for trial in shown}
    points, last = min(POINTS, longest_run({str(n): table for n, table in some.items()})), tuned.config.env_steps
    metrics = {name: label for name, label in METRICS.items() if name != NORMALIZED}
    env = tuned.config.env
    return {
        "metrics": [[name, label] for name, label in metrics.items()],
        "normalized": [NORMALIZED, RETURN],
        "points": points,
        "window": WINDOW,
        "environments": [{"name": env, "last": last, "range": None, "bounds": plain_json(bounds_of(env))}],
        "cells": {str(trial.number): cell_data(trial, some[trial.number], metrics, points, last) for trial in shown},
        "views": [
            {
                "title": "the best",
                "lines": [{"label": label(trial, tuned.start), "cells": {env: str(trial.number)}} for trial in shown],
            }
        ],
        "axes": [axis_data(each) for each in tuned.ranges.values()],
        "trials": [trial_data(trial, tuned.ranges) for trial in tuned.trials],
        "importance": [[name, short(share)] for name, share in importance(tuned.trials, tuned.ranges).items()],
    }


def label(trial: Trial, start: Trial | None) -> str:
    return f"trial {trial.number}" + (" (start)" if trial is start else "")


def cell_data(trial: Trial, curves: Table, metrics: dict[str, str], points: int, last: int) -> dict[str, object]:
    """The curves of its seeds, as `curves.js` takes them."""
    seeds = np.unique(curves["seed"]).tolist()
    lines = {
        metric: [[short(value) for value in line] for line in seed_lines(curves, metric, points, last)[1]]
        for metric in metrics
    }
    return {"runs": len(trial.returns), "seeds": seeds, "lines": lines, "diverged": {}}


def axis_data(each: SearchRange) -> dict[str, object]:
    """Name, and labels at places between 0 and 1 from the bottom to the top."""
    if isinstance(each, Choice):
        ends = max(1, len(each.values) - 1)
        return {"name": each.name, "labels": [[i / ends, str(value)] for i, value in enumerate(each.values)]}
    return {"name": each.name, "labels": [[place, axis_label(each.at(place))] for place in (0.0, 0.5, 1.0)]}


def axis_label(value: float) -> str:
    """Short, since axes are 40 pixels apart on a phone: 256, 0.945, 0.0032, 1e-4."""
    if abs(value) >= 0.1 or not value:
        digits = 4 if 0.99 < value < 1 else 3  # gamma
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return min(f"{value:.2g}", f"{mantissa.removesuffix('.0')}e{int(exponent)}", key=len)


def trial_data(trial: Trial, ranges: dict[str, SearchRange]) -> dict[str, object]:
    places = [place_on(each, trial.settings[name]) for name, each in ranges.items()]
    return {
        "number": trial.number,
        "places": [short(place) for place in places],
        "values": [
            [name, f"{value:.4g}" if isinstance(value, float) else str(value)] for name, value in trial.settings.items()
        ],
        "score": short(trial.score) if trial.has_return else None,
        "text": score_text(trial),
        "finished": trial.finished,
    }


def place_on(each: SearchRange, value: object) -> float:
    if isinstance(each, Choice):
        return each.values.index(value) / max(1, len(each.values) - 1) if value in each.values else 0.0
    return each.place(value)


def finalists_table(tuned: Tuned) -> str:
    columns = ["trial", "return in the search", "return on new seeds", "lowest", "highest"]
    lines = []
    for each in tuned.finalists:
        known = each.confirmed.known
        numbers = [each.trial.score, each.confirmed.mean, *([min(known), max(known)] if known else [None, None])]
        lines.append([pair(each.trial.number), *map(pair, numbers)])
    return table(columns, lines)


def trials_table(tuned: Tuned) -> str:
    lines = []
    for trial in tuned.trials:
        values = [pair(value) for value in trial.settings.values()]
        score = (score_text(trial), trial.worth)
        steps = trial.env_steps // len(trial.returns)
        lines.append([pair(trial.number), score, (f"{steps:,}", steps), *values])
    return table(table_columns(tuned.ranges), lines)


def pair(value: object) -> tuple[object, object]:
    """What is shown, and what is sorted by."""
    if isinstance(value, float):
        return (f"{value:.4g}" if np.isfinite(value) else "lost"), value
    return value, value
