"""How many samples does a score take at other batches? The law of `isobatch plan`, fitted on tasks of its own.

    python benchmarks/planning_law.py                                     fit results/planning-law.csv, for the page
    python benchmarks/planning_law.py --train runs/planning-law           train the tasks below, and write that file
    python benchmarks/planning_law.py --study runs/study-transfer-laptop  read the curves of a study `transfer` into it

Training: each task at its own geometry and at others, by the rules of `isobatch rescale`, all seeds at once, until the
median seed has the score. What is finished is kept in the directory, and the command goes on from there. Study: the
cells of `transfer` that differ from their task's own in the number of environments alone, minibatches being of the same
size. Environment steps do not depend on how busy the machine is.

A law predicts every geometry from its task's own one, as the plan does. Its constant is that with the smallest error
over all tasks that `planning.py`, which judges the plan, does not have; "left out" is the error on each task with the
constant of all others. Tasks of `planning.py` are in the study, too, with settings of others: they are not fitted.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from planning import TASKS as JUDGED
from planning import kept, score_of, write_between
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

HERE = Path(__file__).parent
ROWS = HERE / "results" / "planning-law.csv"
MARKS = ("<!-- fitted -->", "<!-- end of fitted -->")
PATIENCE = 12.0  # times the run's own steps
LEAST_ITERATIONS = 40  # that a geometry has to reach the score, however large
SCORES = (0.5, 0.6, 0.7, 0.8, 0.9)  # of what the study's own geometry gained
WITHIN = math.log(1.5)


class Task(NamedTuple):
    env: str
    settings: dict[str, Any]
    seeds: int


COMMON = {"lr_schedule": "constant", "learning_rate": 1e-3}
TASKS = {
    "Catch-bsuite": Task("Catch-bsuite", {"total_timesteps": 40_000}, 8),
    "PointRobot-misc": Task("PointRobot-misc", {"total_timesteps": 150_000}, 6),
    "FrozenLake-misc": Task("FrozenLake-misc", {"total_timesteps": 100_000}, 8),
    "UmbrellaChain-bsuite": Task("UmbrellaChain-bsuite", {"total_timesteps": 60_000}, 8),
    "Catch-bsuite, one epoch": Task("Catch-bsuite", {"total_timesteps": 80_000, "update_epochs": 1}, 8),
}


class Row(NamedTuple):
    """One geometry of a task."""

    source: str  # "trained", or the study with the share of the gain that is its score
    task: str
    own: bool
    num_envs: int
    num_steps: int
    num_minibatches: int
    samples: float  # of the median seed; inf where it has not reached the score
    trained: int  # environment steps, of those that have not
    seeds: int
    critical_batches: tuple[float, ...]  # of the stages; empty where minibatches are of the same size throughout
    kl: float  # of an iteration, on the way to the score

    @property
    def iteration_batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def batch(self) -> int:
        return self.iteration_batch // self.num_minibatches

    @property
    def is_judged(self) -> bool:
        return any(self.task in env for env in JUDGED)


def trained(name: str, scratch: Path) -> Iterator[Row]:
    """A task, its own geometry first."""
    from isobatch.planning.critical_batches import stages_of
    from isobatch.planning.moves import moved, shape_of
    from isobatch.planning.scores import reached
    from isobatch.settings.presets import preset
    from isobatch.training.devices import use_cores
    from isobatch.training.run_directory import RunDirectory
    from isobatch.training.trainer import train

    task, scratch = TASKS[name], scratch / name.replace(", ", "-").replace(" ", "-")
    config = preset("ppo", task.env, noise_scale=True, **(COMMON | task.settings))
    use_cores(1, config)
    base = scratch / "base"
    scratch.mkdir(parents=True, exist_ok=True)
    if not (base / "finished").is_file():
        train(config, num_seeds=task.seeds, seed=0, run_dir=base, resume=RunDirectory.holds_run(base))
        (base / "finished").touch()
    table = RunDirectory.open(base).metrics()
    found = reached(table, config.env_steps, score_of(base, config.env_steps))
    stages = stages_of(base, table, found.median.value, None)
    critical = tuple(stage.critical_batch.value for stage in stages)
    kl = float(np.nanmean(table["losses/approx_kl"][table["env_steps"] <= found.median.value]))
    own = shape_of(config)
    for shape in [own, *others(own)]:
        file = scratch / f"{shape.num_envs}x{shape.num_steps}x{shape.num_minibatches}.json"
        most = max(PATIENCE * found.median.value, LEAST_ITERATIONS * shape.iteration_batch)
        after = moved(config.replace(noise_scale=False), shape, most)
        make = lambda after=after: steps_to_score(after, task.seeds, found.score, 0.05 * config.env_steps)  # noqa: E731
        steps = list(found.steps) if shape == own else kept(file, make)
        sizes = shape.num_envs, shape.num_steps, shape.num_minibatches
        yield Row("trained", name, shape == own, *sizes, middle(steps), after.env_steps, len(steps), critical, kl)
        print(f"{name} {shape.name} in {shape.num_minibatches}: {middle(steps):,.0f} steps", file=sys.stderr)


def middle(steps: Sequence[float]) -> float:
    """The median, those that never had the score last: of two in the middle the lower one, as in the plan."""
    return float(np.sort(np.where(np.isnan(steps), np.inf, steps))[(len(steps) - 1) // 2])


def others(own: Any) -> list[Any]:
    """Both batches, the optimization batch alone, and the iteration batch alone, up and down."""
    from isobatch.planning.moves import Shape

    n, t, m = own.num_envs, own.num_steps, own.num_minibatches
    sizes = ((n / 4, t, m / 4), (4 * n, t, 4 * m), (16 * n, t, 16 * m), (n / 4, t, m), (4 * n, t, m), (n, t, m / 4))
    return [Shape(*map(int, each)) for each in sizes if all(float(size).is_integer() for size in each)]


def steps_to_score(config: Any, num_seeds: int, score: float, window: float) -> list[float]:
    """Environment steps of each seed; nan for those that have not got there when the median has."""
    from isobatch.planning.scores import POINTS, crossing
    from isobatch.settings.options import Options
    from isobatch.training.curves import seed_curves
    from isobatch.training.loop import advances, lines_of
    from isobatch.training.metrics import RETURN, columns_of, table_of
    from isobatch.training.program import Supervision
    from isobatch.training.programs import initial_states, program_for, stack_hypers

    seeds = list(range(1000, 1000 + num_seeds))
    states, hypers = initial_states(config, seeds), stack_hypers([config.hypers] * num_seeds)
    log_interval = Options().line_iterations(config.num_iterations)
    program = program_for(config, states, hypers, log_interval)
    lines: list[tuple] = []
    found = [math.nan] * num_seeds
    with closing(advances(program, config, states, hypers, 0, log_interval, Supervision())) as stretches:
        for stretch in stretches:
            steps = stretch.iteration * config.geometry.iteration_batch
            lines += lines_of(program.names, config, stretch.table, stretch.begin, stretch.ends, seeds)
            table = table_of(columns_of(program.names), lines)
            x, curves = seed_curves(table, RETURN, window / steps, POINTS)
            now = [crossing(x, curve, score) for curve in curves]
            found = [new if math.isnan(old) else old for old, new in zip(found, now, strict=True)]
            if sum(not math.isnan(each) for each in found) > num_seeds // 2:
                break
    return found


def studied(path: Path) -> Iterator[Row]:
    """Cells of `transfer` that differ from their task's own in the number of environments alone; PPO."""
    from isobatch.planning.scores import POINTS, crossing
    from isobatch.studies.claims.transfer import UNCHANGED
    from isobatch.studies.kept_returns import BASE
    from isobatch.studies.study_directory import StudyDirectory
    from isobatch.training.curves import seed_curves
    from isobatch.training.metrics import RETURN

    directory = StudyDirectory.read(path)
    cells = {str(row["cell"]): row for row in directory.rows()}
    curves = directory.curves()
    for own in [row for row in cells.values() if row["way"] == BASE and row["algo"] == "ppo"]:
        alike = [r for r in cells.values() if r["env"] == own["env"] and r["way"] == UNCHANGED and size(r) == size(own)]
        if not alike:  # whose minibatches grew
            continue
        length = int(str(own["env_steps"]))
        smooth = {str(r["cell"]): seed_curves(curves[str(r["cell"])], RETURN, 0.05, POINTS) for r in (own, *alike)}
        _, mine = smooth[str(own["cell"])]
        known = mine[:, ~np.all(np.isnan(mine), axis=0)]
        first, last = np.nanmedian(known[:, 0]), np.nanmedian(known[:, -POINTS // 10 :])
        for share in SCORES:
            score = first + share * (last - first)
            for row in (own, *alike):
                x, each = smooth[str(row["cell"])]
                steps = [crossing(x, curve, score) for curve in each]
                table = curves[str(row["cell"])]
                kl = float(np.nanmean(table["losses/approx_kl"][table["env_steps"] <= min(middle(steps), length)]))
                sizes = (int(str(row[key])) for key in ("num_envs", "num_steps", "num_minibatches"))
                name = str(own["env"]).removeprefix("envpool/")
                yield Row(f"transfer, {share}", name, row is own, *sizes, middle(steps), length, len(steps), (), kl)


def size(row: dict[str, Any]) -> float:
    """Of a minibatch."""
    return int(row["num_envs"]) * int(row["num_steps"]) / int(row["num_minibatches"])


Law = Callable[[Row, Row, float], float]
"""A task's own geometry, another one, and the constant -> samples there."""


def gradient_ratio(own: Row, other: Row) -> float:
    """(1 + B/B_crit) at the other batch over that at the own one, mean over stages."""
    critical = np.array(own.critical_batches or [math.inf])
    return float(np.mean((1 + other.batch / critical) / (1 + own.batch / critical)))


def steps_alone(own: Row, other: Row, constant: float) -> float:
    """S ~ 1 + B/B_crit"""
    return own.samples * gradient_ratio(own, other)


def delayed(own: Row, other: Row, folds: float) -> float:
    """S = n b / W(n b / S_0): growth with a delay of one iteration."""
    free = own.samples * math.exp(-folds * own.iteration_batch / own.samples) * gradient_ratio(own, other)
    behind = folds * other.iteration_batch
    return float(behind / lambertw(behind / free).real)


def iterations_too(own: Row, other: Row, iterations: float) -> float:
    """S = S_min (1 + B/B_crit) + I b, as long as that leaves a tenth of the run to the rest"""
    bound = min(iterations * own.iteration_batch, 0.9 * own.samples)
    return split(own, other, bound)


def few_iterations(own: Row, other: Row, most: float) -> float:
    """The same, with 1/I = 1/I_max + 1/K for a run that took K iterations"""
    return split(own, other, 1 / (1 / (most * own.iteration_batch) + 1 / own.samples))


def split(own: Row, other: Row, bound: float) -> float:
    """Samples of which so many go by the iteration batch and the others by the optimization batch."""
    return (own.samples - bound) * gradient_ratio(own, other) + bound * other.iteration_batch / own.iteration_batch


LAWS: dict[str, tuple[Law, tuple[float, float]]] = {
    "S_min (1 + B/B_crit)": (steps_alone, (0, 1)),
    "growth with a delay, S = n b / W(n b / S_0)": (delayed, (0.01, 60)),
    "S_min (1 + B/B_crit) + I b": (iterations_too, (0.01, 60)),
    "the same with 1/I = 1/I_max + 1/K": (few_iterations, (0.01, 60)),
}


CHOSEN = "the same with 1/I = 1/I_max + 1/K"


def pairs(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """Each geometry with its task's own."""
    rows = list(rows)
    for own in (row for row in rows if row.own and math.isfinite(row.samples)):
        for row in rows:
            if (row.source, row.task) == (own.source, own.task) and not row.own:
                yield own, row


def errors(law: Law, constant: float, rows: Iterable[Row]) -> np.ndarray:
    """log of measured over predicted; where the score was not reached the least that it can be."""
    found = []
    for own, row in pairs(rows):
        error = math.log(min(row.samples, row.trained) / law(own, row, constant))
        found.append(error if math.isfinite(row.samples) else max(error, 0.0))
    return np.array(found)


def fitted(law: Law, ends: tuple[float, float], rows: Sequence[Row]) -> float:
    """The constant with the smallest mean absolute error, each task counted alike."""

    def loss(logarithm: float) -> float:
        return float(np.mean([np.mean(np.abs(errors(law, math.exp(logarithm), of))) for of in by_task(rows).values()]))

    low, high = (math.log(max(end, 1e-3)) for end in ends)
    grid = np.linspace(low, high, 200)
    start = grid[int(np.argmin([loss(each) for each in grid]))]
    step = grid[1] - grid[0]
    return math.exp(minimize_scalar(loss, bounds=(start - step, start + step), method="bounded").x)


def by_task(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Of the same environment."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.task.partition(",")[0], []).append(row)
    return found


def report(rows: Sequence[Row]) -> str:
    """The laws side by side, then task by task."""
    fit = [row for row in rows if not row.is_judged]
    tasks = by_task(fit)
    constants = {name: fitted(*law, fit) for name, law in LAWS.items()}
    lines = ["| law | its constant | typical error | within 1.5 | left out: typical error | within 1.5 |"]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    for name, (law, ends) in LAWS.items():
        out = np.concatenate(
            [errors(law, fitted(law, ends, [r for r in fit if r not in of]), of) for of in tasks.values()]
        )
        constant = "" if law is steps_alone else f"{constants[name]:.2g}"
        cells = [name, constant, *summary(errors(law, constants[name], fit)), *summary(out)]
        lines.append(f"| {' | '.join(cells)} |")
    alone = {task: fitted(*LAWS[CHOSEN], of) for task, of in by_task(rows).items()}
    spread = np.std([math.log(alone[task]) for task in tasks], ddof=1)
    lines += ["", "| task | geometries | its own I_max | typical errors of the four laws, with the constants of all |"]
    lines += ["|---|---:|---:|---|"]
    for task, of in by_task(rows).items():
        found = (summary(errors(law, constants[name], of))[0] for name, (law, _) in LAWS.items())
        geometries = len({(row.num_envs, row.num_minibatches) for row in of})
        shown = f"{task}{', not fitted' if of[0].is_judged else ''}"
        lines.append(f"| {shown} | {geometries} | {alone[task]:.2g} | {', '.join(found)} |")
    lines += ["", f"The logarithm of I_max has a standard deviation of {spread:.2g} over tasks."]
    return "\n".join(lines) + "\n"


def summary(found: np.ndarray) -> tuple[str, str]:
    """The typical factor, exp(mean |log|), and how many are within 1.5."""
    return f"{math.exp(np.mean(np.abs(found))):.2f}", f"{np.sum(np.abs(found) <= WITHIN)} of {len(found)}"


def read() -> list[Row]:
    with ROWS.open(newline="") as file:
        return [
            Row(
                r["source"], r["task"], r["own"] == "True", int(r["num_envs"]), int(r["num_steps"]),
                int(r["num_minibatches"]), float(r["samples"]), int(r["trained"]), int(r["seeds"]),
                tuple(json.loads(r["critical_batches"])), float(r["kl"]),
            )
            for r in csv.DictReader(file)
        ]  # fmt: skip


def write(rows: Iterable[Row]) -> None:
    with ROWS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        for row in rows:
            writer.writerow([json.dumps(each) if isinstance(each, tuple) else each for each in row])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, metavar="DIR")
    parser.add_argument("--only", choices=TASKS, help="train this task alone, and do not fit")
    parser.add_argument("--study", type=Path, metavar="DIR")
    args = parser.parse_args()
    if args.only:
        list(trained(args.only, args.train))
        return 0
    rows = read() if ROWS.is_file() else []
    if args.train:
        rows = [r for r in rows if r.source != "trained"] + [row for name in TASKS for row in trained(name, args.train)]
    if args.study:
        rows = [r for r in rows if r.source == "trained"] + list(studied(args.study))
    if args.train or args.study:
        write(rows)
    table = report(rows)
    print(table, end="")
    write_between(MARKS, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
