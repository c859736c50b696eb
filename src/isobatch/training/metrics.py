"""Metrics as a table: from the program's arrays to lines of `metrics.csv` and back.

Every metric is a mean over all data of its iterations, so that it means the same at every batch size, and the
x-axis is true environment steps of one seed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isobatch.errors import UsageError

METRICS = "metrics.csv"
INDEX = ("iteration", "env_steps", "seed")
RETURN, LENGTH, EPISODES = EPISODE_COLUMNS = ("charts/episodic_return", "charts/episodic_length", "charts/episodes")
EVALUATION_COLUMNS = ("eval/episodic_return", "eval/return_std", "eval/episodic_length")  # of a run with evaluations
FINAL_PART = 0.1  # the share of the steps, at the end, that counts as final

Table = dict[str, np.ndarray]


def columns_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """The header of `metrics.csv` for a program with these metrics."""
    return (*INDEX, *EPISODE_COLUMNS, *(n for n in names if not n.startswith("episodes/")))


def rows_of(
    names: tuple[str, ...], table: np.ndarray, present: np.ndarray, ends: list[int], batch: int, seeds: list[int]
) -> list[tuple]:
    """Lines of `metrics.csv` from a table [seeds, rows, metrics] whose rows end at these iterations.

    `present` [rows, metrics] says which metrics a row has; `batch` is the environment steps per iteration.
    """
    place = {name: i for i, name in enumerate(names)}
    others = [place[n] for n in names if not n.startswith("episodes/")]
    table = np.where(present, table, np.float32(np.nan))
    rows = []
    for r, iteration in enumerate(ends):
        for s, seed in enumerate(seeds):
            count, *sums = (table[s, r, place[f"episodes/{n}"]] for n in ("count", "return_sum", "length_sum"))
            means = [total / count if count else np.float32(np.nan) for total in sums]
            rows.append((iteration, iteration * batch, seed, *means, int(count), *table[s, r, others]))
    return rows


def table_of(columns: tuple[str, ...], rows: list[tuple]) -> Table:
    """Column name -> values."""
    values = np.array(rows, dtype=np.float64).reshape(-1, len(columns))
    return {name: values[:, i].astype(int) if name in INDEX else values[:, i] for i, name in enumerate(columns)}


def evaluations_of(table: Table) -> Table:
    """The lines at which a seed was evaluated, without the metrics of training."""
    columns = (*INDEX, *EVALUATION_COLUMNS)
    if EVALUATION_COLUMNS[0] not in table:
        return table_of(columns, [])
    evaluated = ~np.isnan(table[EVALUATION_COLUMNS[0]])
    return {name: table[name][evaluated] for name in columns}


def final_returns(table: Table, env_steps: int) -> list[float | None]:
    """For each seed the mean return of the episodes that ended in the last tenth of the run, if any did."""
    returns: list[float | None] = []
    late = table["env_steps"] > (1 - FINAL_PART) * env_steps
    for seed in sorted(set(table["seed"].tolist())):
        rows = late & (table["seed"] == seed) & (table[EPISODES] > 0)
        episodes = table[EPISODES][rows]
        returns.append(float(np.sum(table[RETURN][rows] * episodes) / episodes.sum()) if episodes.size else None)
    return returns


def mean_return(table: Table, after: int, last: int) -> float | None:
    """Mean over the seeds of the return of their episodes in iterations after + 1 .. last; None without any."""
    if not table:
        return None
    rows = (table["iteration"] > after) & (table["iteration"] <= last) & (table[EPISODES] > 0)
    means = [
        np.average(table[RETURN][mine], weights=table[EPISODES][mine])
        for seed in np.unique(table["seed"])
        if (mine := rows & (table["seed"] == seed)).any()
    ]
    return float(np.mean(means)) if means else None


def critical_batch(table: Table) -> float:
    """Critical batch size S / |G|^2 of the second half of a run, both averaged over its lines and seeds first."""
    if not {"noise/trace", "noise/signal"} <= table.keys():
        raise UsageError(
            "the run has no noise/* metrics: train it with --noise-scale, or give the critical batch size."
        )
    late = table["env_steps"] > 0.5 * table["env_steps"].max()
    noise, signal = (float(np.nanmean(table[name][late])) for name in ("noise/trace", "noise/signal"))
    if not signal > 0:
        raise UsageError(
            f"the run's gradient signal of {signal:.3g} cannot be told from its noise: train more seeds or longer, or "
            "give the critical batch size."
        )
    return noise / signal


def read_metrics(path: Path) -> Table:
    """`metrics.csv` of a run directory as arrays; a value that was not measured is NaN."""
    try:
        lines = (Path(path) / METRICS).read_text().split("\n")[:-1]  # what follows the last line break is not finished
    except FileNotFoundError:
        lines = []
    except UnicodeDecodeError:
        raise UsageError(
            f"{METRICS} of run_dir={str(path)!r} is damaged (it is not text): train the run anew."
        ) from None
    if not lines:
        raise UsageError(f"run_dir={str(path)!r} holds no {METRICS}: check the path, or train it first.")
    header, *rows = (line.split(",") for line in lines)
    whole = [row for row in rows if len(row) == len(header)]
    if not whole:
        raise UsageError(f"{METRICS} of run_dir={str(path)!r} has no whole line of metrics: train the run first.")
    missing = {"iteration", "seed", "env_steps"} - set(header)
    try:
        if missing or len(set(header)) < len(header):
            raise ValueError(
                f"its first line has no {' and '.join(sorted(missing))}" if missing else "names come twice"
            )
        return table_of(tuple(header), [tuple(float(v) if v else np.nan for v in row) for row in whole])
    except ValueError as error:
        raise UsageError(f"{METRICS} of run_dir={str(path)!r} is damaged ({error}): train the run anew.") from None


def format_number(value: float | np.number) -> str:
    """Shortest text that gives the same bits back; empty where there is no value."""
    if isinstance(value, (int, np.integer)):
        return str(value)
    return "" if np.isnan(value) else str(np.float32(value))
