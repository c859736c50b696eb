"""Does `isobatch plan` predict the time to a score, and is what it recommends fast? Five geometries of four tasks.

    python benchmarks/planning.py [--only ENV] [--scratch runs/planning-benchmark] [--out FILE]

For each task a base run of several seeds is trained and planned: the score is the return that its median seed has
after 70 % of the run, short of what it ends with. Then five geometries, the recommended one and the run's own among
them, are trained to that score, one seed at a time, as `isobatch train` would, with seeds that the base run did not
have. The time of a seed is the environment steps at which its smoothed return (over 5 % of the base run) has the score,
times the seconds of a step in that run; compilation is not counted. A geometry's time is the median over its seeds; a
seed that has not reached the score within three times the predicted samples never does.

Two tasks run at a time, each on a core of its own, in the plan as in the training. What is finished is kept in
--scratch, and the command goes on from there. For times the machine should do nothing else.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "planning.md"
MARKS = ("<!-- measured -->", "<!-- end of measured -->")
SCORE_AT, SHORT_OF_END = 0.7, 0.1  # of the base run; of what it gained
PATIENCE = 3.0  # times the predicted samples
LEAST_SECONDS = 0.7  # of a run, to tell the seconds of a step
WITHIN = 1.5  # factor between predicted and measured time that counts as right
GEOMETRIES = 5


class Task(NamedTuple):
    settings: dict[str, Any]
    base_seeds: int
    seeds: int  # of each geometry


CONSTANT = {"lr_schedule": "constant"}  # so that it does not matter how long a run was meant to be
LUNAR = {"num_envs": 16, "num_steps": 128, "num_minibatches": 8, "learning_rate": 1e-3}
LUNAR |= {"normalize_observations": True, "normalize_rewards": True}
TASKS = {
    "Breakout-MinAtar": Task(CONSTANT | {"total_timesteps": 200_000}, 4, 3),
    "envpool/LunarLander-v3": Task(CONSTANT | LUNAR | {"total_timesteps": 120_000}, 8, 7),
    "Acrobot-v1": Task(CONSTANT | {"total_timesteps": 100_000}, 16, 11),
    "CartPole-v1": Task(CONSTANT | {"total_timesteps": 50_000}, 24, 23),
}
COLUMNS = (
    *("env", "num_envs", "num_steps", "num_minibatches", "recommended", "own", "predicted_seconds", "predicted_low"),
    *("predicted_high", "measured_seconds", "measured_seeds", "predicted_samples", "measured_samples"),
    *("predicted_per_step", "measured_per_step", "origin"),
)


def work(env: str, scratch: Path) -> list[dict[str, Any]]:
    """All of one task, in this process, which has a core of its own."""
    from isobatch.settings.presets import preset
    from isobatch.training.devices import use_cores

    task, scratch = TASKS[env], scratch / env.replace("/", "-")
    config = preset("ppo", env, noise_scale=True, **task.settings)
    use_cores(1, config)
    scratch.mkdir(parents=True, exist_ok=True)
    found = kept(scratch / "plan.json", lambda: planned(config, task, scratch / "base"))
    rows = []
    for each in found:
        name = "{num_envs}x{num_steps}x{num_minibatches}".format(**each)
        measured = kept(scratch / f"{name}.json", lambda each=each: trained(config, each, task))  # type: ignore[misc]
        rows.append({"env": env, **each, **measured})
        print(
            f"{env} {name}: predicted {each['predicted_seconds']:.3g} s, measured {rows[-1]['measured_seconds']:.3g} s"
        )
    return rows


def kept(path: Path, make: Any) -> Any:
    """What a file holds, or is made and written."""
    if path.is_file():
        return json.loads(path.read_text())
    made = make()
    path.with_suffix(".tmp").write_text(json.dumps(made))
    path.with_suffix(".tmp").rename(path)
    return made


def planned(config: Any, task: Task, run_dir: Path) -> list[dict[str, Any]]:
    """Train the base run, plan it, and choose the geometries."""
    from isobatch.planning.moves import shape_of
    from isobatch.planning.plan import plan
    from isobatch.training.run_directory import RunDirectory
    from isobatch.training.trainer import train

    if not (run_dir / "finished").is_file():
        resume = RunDirectory.holds_run(run_dir)
        train(config, num_seeds=task.base_seeds, seed=0, run_dir=run_dir, resume=resume)
        (run_dir / "finished").touch()
    found = plan(run_dir, score_of(run_dir, config.env_steps), watch=lambda what, done: print(f"{config.env}: {what}"))
    (run_dir / "said.txt").write_text("\n".join([repr(found), *found.left_out, *found.cautions]) + "\n")
    own, best = shape_of(config), found.recommended.shape
    chosen = list(dict.fromkeys([best, own]))
    for shape in others(own):
        if len(chosen) < GEOMETRIES and shape not in chosen and can_be_had(found.run, shape):
            chosen.append(shape)
    predictions = []
    for shape in chosen:
        forecast = found.forecaster.at(shape)
        predictions.append(
            {
                **{name: getattr(shape, name) for name in ("num_envs", "num_steps", "num_minibatches")},
                "recommended": shape == best,
                "own": shape == own,
                "score": found.reached.score,
                "window": 0.05 * config.env_steps,
                "predicted_seconds": forecast.seconds.value,
                "predicted_low": forecast.seconds.low,
                "predicted_high": forecast.seconds.high,
                "predicted_samples": forecast.samples,
                "predicted_per_step": forecast.seconds.value / forecast.samples,
                "origin": forecast.origin,
            }
        )
    return predictions


def others(own: Any) -> Iterator[Any]:
    """Fewer and more environments; four times as many for a quarter as long; other minibatches."""
    from isobatch.planning.moves import Shape

    n, t, m = own.num_envs, own.num_steps, own.num_minibatches
    for sizes in ((n / 4, t, m), (4 * n, t, m), (4 * n, t / 4, m), (n, t, m / 4), (n, t, 4 * m), (2 * n, t, m)):
        if all(float(size).is_integer() and size >= 1 for size in sizes):
            yield Shape(*map(int, sizes))


def can_be_had(config: Any, shape: Any) -> bool:
    from isobatch.errors import UsageError
    from isobatch.planning.moves import moved

    try:
        moved(config, shape, config.env_steps)
    except UsageError:
        return False
    return True


def score_of(run_dir: Path, env_steps: int) -> float:
    """What the median seed has after 70 % of the run, but at most 90 % of what it gained in the end."""
    import numpy as np

    from isobatch.planning.scores import POINTS, WINDOW
    from isobatch.training.curves import seed_curves
    from isobatch.training.metrics import RETURN, final_returns, read_metrics

    table = read_metrics(run_dir)
    _, curves = seed_curves(table, RETURN, WINDOW, POINTS)
    known = ~np.all(np.isnan(curves), axis=0)  # from the first episode on
    first, last = np.nanmedian(curves[:, known][:, 0]), np.nanmedian(curves[:, int(SCORE_AT * POINTS)])
    final = np.median([each for each in final_returns(table, env_steps) if each is not None])
    return float(min(last, final - SHORT_OF_END * (final - first)))


def trained(config: Any, each: dict[str, Any], task: Task) -> dict[str, Any]:
    """Train a geometry to the score, seed by seed."""
    from isobatch.planning.moves import Shape, moved

    shape = Shape(each["num_envs"], each["num_steps"], each["num_minibatches"])
    after = moved(config.replace(noise_scale=False), shape, PATIENCE * each["predicted_samples"])
    times, samples, per_step = [], [], []
    for seed in range(1000, 1000 + task.seeds):
        steps, seconds = time_to_score(after, seed, each["score"], each["window"])
        times.append(steps * seconds)
        samples.append(steps)
        per_step.append(seconds)
    middle = (len(times) - 1) // 2
    return {
        "measured_seconds": sorted(times)[middle],
        "measured_seeds": sorted(times),
        "measured_samples": sorted(samples)[middle],
        "measured_per_step": sorted(per_step)[middle],
    }


def time_to_score(config: Any, seed: int, score: float, window: float) -> tuple[float, float]:
    """Environment steps at which a seed has the score, inf where it never does; and the seconds of a step."""
    from contextlib import closing

    from isobatch.planning.scores import POINTS, crossing
    from isobatch.settings.options import Options
    from isobatch.training.curves import seed_curves
    from isobatch.training.loop import advances, lines_of
    from isobatch.training.metrics import RETURN, columns_of, table_of
    from isobatch.training.program import Supervision
    from isobatch.training.programs import initial_states, program_for, stack_hypers

    states, hypers = initial_states(config, [seed]), stack_hypers([config.hypers])
    log_interval = Options().line_iterations(config.num_iterations)
    program = program_for(config, states, hypers, log_interval)
    lines: list[tuple] = []
    reached, clock, first = math.inf, 0.0, 0
    with closing(advances(program, config, states, hypers, 0, log_interval, Supervision())) as stretches:
        for stretch in stretches:
            if stretch.fault is not None:
                raise SystemExit(stretch.fault)
            steps = stretch.iteration * config.geometry.iteration_batch
            if not first:  # in which what steps EnvPool is compiled
                clock, first = time.perf_counter(), steps
            spent = time.perf_counter() - clock
            lines += lines_of(program.names, config, stretch.table, stretch.begin, stretch.ends, [seed])
            if math.isinf(reached):
                table = table_of(columns_of(program.names), lines)
                x, (curve,) = seed_curves(table, RETURN, window / steps, POINTS)
                found = crossing(x, curve, score)
                reached = math.inf if math.isnan(found) else found
            if math.isfinite(reached) and spent > LEAST_SECONDS:
                break
    return reached, spent / (steps - first)


def separately(envs: list[str], scratch: Path) -> None:
    """Each task in a process on a core of its own, as many at a time as there are cores, two at most."""
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0))[:2]:
        cores.put(core)

    def one(env: str) -> None:
        core = cores.get()
        try:
            subprocess.run(
                [sys.executable, __file__, "--worker", env, "--scratch", str(scratch)], check=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )  # fmt: skip
        finally:
            cores.put(core)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(one, envs))


def report(rows: list[dict[str, Any]], words: str) -> str:
    right = [is_right(row) for row in rows]
    best = {env: rank_of_recommended([row for row in rows if row["env"] == env]) for env in envs_of(rows)}
    among = sum(place <= 2 for place in best.values())
    lines = [
        f"{sum(right)} of {len(right)} predictions are within a factor of {WITHIN} of what was measured; the "
        f"recommended geometry is among the two fastest of five in {among} of {len(best)} tasks. Made by `{words}` on "
        f"{len(os.sched_getaffinity(0))} cores ({platform.machine()}), two tasks at a time.",
        "",
        "| task | N x T, minibatches | predicted, s | measured, s (seeds) | measured / predicted | of that, samples "
        "| of that, seconds of a sample | within 1.5 |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row, is_within in zip(rows, right, strict=True):
        marks = [word for word in ("recommended", "own") if row[word]]
        name = f"{row['num_envs']} x {row['num_steps']}, {row['num_minibatches']}" + "".join(
            f", **{m}**" for m in marks
        )
        predicted = f"{row['predicted_seconds']:.3g} [{row['predicted_low']:.2g}, {row['predicted_high']:.2g}]"
        spread = f"{text(row['measured_seeds'][0])} to {text(row['measured_seeds'][-1])}"
        ratios = [row[f"measured_{what}"] / row[f"predicted_{what}"] for what in ("seconds", "samples", "per_step")]
        cells = [row["env"], name, predicted, f"{text(row['measured_seconds'])} ({spread})", *map(text, ratios)]
        lines.append(f"| {' | '.join(cells)} | {'yes' if is_within else '**no**'} |")
    lines += ["", "Place of the recommended geometry among the five, by measured time: "]
    lines[-1] += ", ".join(f"{env} {place}" for env, place in best.items()) + "."
    return "\n".join(lines) + "\n"


def text(number: float) -> str:
    return "never" if math.isinf(number) else f"{number:.3g}"


def is_right(row: dict[str, Any]) -> bool:
    ratio = row["measured_seconds"] / row["predicted_seconds"]
    return 1 / WITHIN <= ratio <= WITHIN


def envs_of(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["env"] for row in rows))


def rank_of_recommended(rows: list[dict[str, Any]]) -> int:
    mine = next(row["measured_seconds"] for row in rows if row["recommended"])
    return 1 + sum(row["measured_seconds"] < mine for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TASKS, help="this task alone, without a page")
    parser.add_argument("--scratch", type=Path, default=Path("runs/planning-benchmark"))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "planning.md")
    parser.add_argument("--worker", choices=TASKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.scratch)
        return 0
    envs = [args.only] if args.only else list(TASKS)
    separately(envs, args.scratch)
    rows = [row for env in envs for row in work(env, args.scratch)]  # all of it is in files by now
    table = report(rows, "python benchmarks/planning.py")
    print(table, end="")
    if not args.only:
        args.out.write_text(f"# Predicted and measured time to a score\n\n{table}")
        with args.out.with_suffix(".csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        write_between(MARKS, table)
    return 0


def write_between(marks: tuple[str, str], text: str) -> None:
    """Put a text in place of what stands between two marks of the page."""
    before, _, rest = PAGE.read_text().partition(marks[0])
    _, _, after = rest.partition(marks[1])
    PAGE.write_text(f"{before}{marks[0]}\n{text}{marks[1]}{after}")


if __name__ == "__main__":
    sys.exit(main())
