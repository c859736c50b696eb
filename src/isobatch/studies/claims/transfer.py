"""Settings that others tuned, moved to other numbers of environments: which way to move them keeps the return?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from isobatch.formatting import counted, fraction_text, percent
from isobatch.interop.conversion import as_algorithm
from isobatch.rescaling import ITERATION_BATCH, MINIBATCH_COUNT, MINIBATCH_SIZE, rescale
from isobatch.rescaling.evidence import Kept
from isobatch.settings.config import Config
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.kept_figures import draw_kept, draw_kept_by_task
from isobatch.studies.kept_returns import (
    BASE,
    DIRECTIONS,
    KEPT,
    kept_at,
    of_direction,
    relative_rows,
    sizes,
    tasks,
    ways,
)
from isobatch.studies.scores import FINAL, levels, select
from isobatch.studies.tuned_settings import ENTRIES, TunedSettings
from isobatch.studies.verdicts import MEASURES, Question, answers

TIMES = (1 / 4, 4, 1 / 16, 16)  # num_envs, of the entry's own
SEEDS = {"quick": 3, "laptop": 3, "paper": 10}
UNCHANGED, KEEP, BY_RULES, NEWER, AVERAGED = "unchanged", "keep N x T", "rules", "newer rules", "PPO-EWMA by rules"
SINCE_PAPER = ("beta2-half-life", "clip-noise")  # surge needs a critical batch of each task

# What is held and with which algorithm, as `rescale` has it -> the way. A library that changes nothing else may hold
# the size of minibatches.
WAY_OF = {
    (ITERATION_BATCH, "ppo"): KEEP,
    (MINIBATCH_SIZE, "ppo"): UNCHANGED,
    (MINIBATCH_COUNT, "ppo"): BY_RULES,
    (MINIBATCH_COUNT, "ppo-ewma"): AVERAGED,
}

Way = Callable[[TunedSettings, Config, int], Config]
"""An entry and its settings at its own batch -> the settings with so many environments."""


def unchanged(entry: TunedSettings, config: Config, num_envs: int) -> Config:
    """What a library does if the number of environments changes and no other setting."""
    batch = num_envs * config.num_steps
    held = batch // config.geometry.optimization_batch if entry.holds_size else config.num_minibatches
    return config.replace(num_envs=num_envs, num_minibatches=min(max(1, held), batch))


WAYS: dict[str, Way] = {
    UNCHANGED: unchanged,
    KEEP: lambda entry, config, num_envs: rescale(config, num_envs=num_envs, keep=ITERATION_BATCH).after,
    BY_RULES: lambda entry, config, num_envs: rescale(config, num_envs=num_envs, keep=MINIBATCH_COUNT).after,
    NEWER: lambda entry, config, num_envs: rescale(config, num_envs=num_envs, use=SINCE_PAPER).after,
    AVERAGED: lambda entry, config, num_envs: rescale(averaged(config), num_envs=num_envs, keep=MINIBATCH_COUNT).after,
}


def averaged(config: Config) -> Config:
    return as_algorithm(config, "ppo-ewma").config


def grid(scale: str) -> Grid:
    cells = [cell for entry in ENTRIES if scale in entry.steps for cell in moved(entry, entry.config(scale))]
    return Grid(cells, SEEDS[scale], evaluated=True)


def moved(entry: TunedSettings, config: Config) -> Iterator[Cell]:
    """The entry at its own batch, as PPO and as PPO-EWMA, and at every other one that exists, by every way."""
    yield Cell(config, {"way": BASE, "times": 1})
    for times in TIMES:
        num_envs = config.num_envs * times
        if num_envs >= 1:
            for name, way in WAYS.items():
                yield Cell(way(entry, config, int(num_envs)), {"way": name, "times": times})
    yield Cell(averaged(config), {"way": AVERAGED, "times": 1})


def verdict(rows: list[Row]) -> list[str]:
    return [
        in_short(rows),
        *(sentence for column in MEASURES for sentence in by_size(rows, column)),
        *by_task(rows),
        *at_own_batch(rows),
        *answers(relative_rows(rows), questions(rows)),
        *left_out(rows),
    ]


def in_short(rows: list[Row]) -> str:
    """The ways from best to worst, in either direction."""
    halves = []
    for direction, title in DIRECTIONS.items():
        times = of_direction(rows, direction)
        kept = {way: kept_at(rows, FINAL, way, times) for way in ways(rows)}
        ranked = sorted(((both[1], way) for way, both in kept.items() if both), key=lambda pair: -pair[0].value)
        if ranked:
            at = " and ".join(map(fraction_text, times))
            count = max(len(both[0]) for both in kept.values() if both)
            where = f"{title} ({at} times, mean over {counted(count, 'task')})"
            halves.append(f"{where} {', '.join(f'{way} {percent(all_)}' for all_, way in ranked)}")
    return f"In short, final return kept {'; '.join(halves)}."


def by_size(rows: list[Row], column: str) -> Iterator[str]:
    for times in sizes(rows):
        kept = {way: kept_at(rows, column, way, [times]) for way in ways(rows)}
        each = [f"{way} {percent(both[1])}" for way, both in kept.items() if both]
        count = max((len(both[0]) for both in kept.values() if both), default=0)
        if each:
            yield (
                f"{fraction_text(times)} times the environments, {MEASURES[column]} kept, mean over "
                f"{counted(count, 'task')}: {', '.join(each)}."
            )


def by_task(rows: list[Row]) -> Iterator[str]:
    for env in tasks(rows, FINAL):
        in_env = select(rows, env=env)
        base = np.mean([row["final_return"] for row in select(in_env, way=BASE)])
        at = sizes(in_env)
        each = []
        for way in ways(in_env):
            kept = [kept_at(in_env, FINAL, way, [times]) for times in at]
            each.append(f"{way} {' / '.join('-' if both is None else f'{100 * both[1].value:.0f}' for both in kept)} %")
        where = " / ".join(map(fraction_text, at))
        yield f"{env}, base {base:.1f}, final return kept at {where} times: {', '.join(each)}."


def at_own_batch(rows: list[Row]) -> Iterator[str]:
    """What the conversion alone does."""
    kept = [kept_at(rows, column, AVERAGED, [1]) for column in MEASURES]
    if all(kept):
        texts = " and ".join(
            f"{percent(both[1])} of the {score}" for both, score in zip(kept, MEASURES.values(), strict=True) if both
        )
        yield f"At their own batch, converted to PPO-EWMA, the settings keep {texts}."


def questions(rows: list[Row]) -> list[Question]:
    """Is a way better than to change nothing?"""
    return [
        Question(
            f"{title[0].upper()}{title[1:]}, {way} minus {UNCHANGED}, in {score} over the base's",
            KEPT,
            dict(score=column, way=way, direction=direction),
            dict(score=column, way=UNCHANGED, direction=direction),
        )
        for direction, title in DIRECTIONS.items()
        for way in ways(rows)
        if way != UNCHANGED
        for column, score in MEASURES.items()
    ]


def left_out(rows: list[Row]) -> Iterator[str]:
    for column, score in MEASURES.items():
        missing = [env for env in levels(rows, "env") if env not in tasks(rows, column)]
        if missing:
            why = "since the base cannot be told from random actions"
            yield f"Left out of the {score} kept, {why}: {', '.join(missing)}."


def evidence(rows: list[Row]) -> list[Kept]:
    """What `rescale` tells of the ways that it knows: the final return kept, by size."""
    size = {env: minibatch(select(rows, env=env, way=BASE)[0]) for env in levels(rows, "env")}
    held = [row for row in rows if row["way"] != UNCHANGED or minibatch(row) == size[row["env"]]]
    entries = []
    for (keep, algo), way in WAY_OF.items():
        for times in sizes(rows):
            both = kept_at(held, FINAL, way, [times])
            if both is not None:
                value, low, high = (round(number, 6) for number in (both[1].value, both[1].low, both[1].high))
                entries.append(Kept(keep, algo, times, value, low, high, len(both[0])))
    return entries


def minibatch(row: Row) -> int:
    """Samples."""
    return int(row["num_envs"] * row["num_steps"] // row["num_minibatches"])


CLAIM = "Settings that others tuned keep their return at 1/16 to 16 times their number of environments."
STUDY = Study(
    "transfer", CLAIM, grid, verdict, pictures="way", everywhere={"way": BASE, "times": 1},
    drawings={"kept": draw_kept, "kept-by-task": draw_kept_by_task},
)  # fmt: skip
