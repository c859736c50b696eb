"""How long do settings that others tuned train with other numbers of environments? The cells of the study `transfer`.

    python benchmarks/transfer_clock.py [--only ENV] [--seconds 2] [--page]

Every cell of the study is trained by itself, one seed, as `isobatch train` would, for some seconds after a first
iteration; cells that differ in numbers only share the measurement. All of them train for as many environment steps, so
the time of a run is told by its steps per second. Compilation is not counted. What is finished is kept in
benchmarks/results/transfer-clock.csv, and the command goes on from there; --page measures nothing and writes the tables
again. Each environment has a process of its own, since JAX is set up otherwise for those that step outside it. The
machine should do nothing else.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
import time
from pathlib import Path

import jax

from isobatch.settings.config import Config
from isobatch.studies.claims.transfer import WAYS, grid
from isobatch.studies.grid import Cell
from isobatch.studies.kept_returns import BASE, times_text
from isobatch.training.devices import use_cores
from isobatch.training.program import MAX_ROWS, Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers

RESULTS = Path(__file__).parent / "results"
ROWS, PAGE = RESULTS / "transfer-clock.csv", RESULTS / "transfer-clock.md"
COLUMNS = ("env", "way", "times", "num_envs", "num_steps", "num_minibatches", "steps_per_second")
TIME_LIMIT = 60.0  # seconds that environments outside JAX may take for a step
Speeds = dict[tuple[str, str, float], float]  # environment, way, times -> environment steps per second


def steps_per_second(config: Config, seconds: float) -> float:
    """After one iteration; at least one more, and about as many as these seconds hold."""
    states, hypers = initial_states(config, [0]), stack_hypers([config.hypers])
    program = program_for(config, states, hypers, 1)
    states = program.begin(states, 0, Supervision(lambda sentence: None, TIME_LIMIT))
    chunk = jax.block_until_ready(program(states, hypers, 0, 1))
    clock = time.perf_counter()
    chunk = jax.block_until_ready(program(chunk.states, hypers, 1, 1))
    rows = max(1, min(MAX_ROWS, round(seconds / (time.perf_counter() - clock))))
    clock = time.perf_counter()
    jax.block_until_ready(program(chunk.states, hypers, 2, rows))
    spent = time.perf_counter() - clock
    program.end()
    return rows * config.geometry.iteration_batch / spent


def measure(env: str, seconds: float) -> None:
    """All cells of an environment that are not known yet."""
    cells = [cell for cell in grid("laptop").cells if cell.config.env == env]
    use_cores(1, cells[0].config)
    known = speeds_in(ROWS)
    measured: dict[Config, float] = {}
    with ROWS.open("a", newline="") as file:
        out = csv.writer(file)
        if not known and not file.tell():
            out.writerow(COLUMNS)
        for cell in cells:
            config, (_, way, times) = cell.config, key_of(cell)
            if (env, way, times) not in known:
                # Long enough for every row that is measured; the length of a run decides no shape.
                longer = config.replace(total_timesteps=(MAX_ROWS + 2) * config.geometry.iteration_batch)
                program = longer.static
                if program not in measured:
                    measured[program] = steps_per_second(longer, seconds)
                sizes = (config.num_envs, config.num_steps, config.num_minibatches)
                out.writerow((env, way, times, *sizes, round(measured[program], 1)))
                file.flush()
                print(f"{env}, {way}, {times_text(times)} times: {measured[program]:,.0f} steps/s", flush=True)


def key_of(cell: Cell) -> tuple[str, str, float]:
    return cell.config.env, str(cell.factors["way"]), float(cell.factors["times"])


def speeds_in(file: Path) -> Speeds:
    if not file.exists():
        return {}
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {(row["env"], row["way"], float(row["times"])): float(row["steps_per_second"]) for row in rows}


def page(speeds: Speeds) -> str:
    """Seconds of a run in units of the base's: the geometric mean over tasks, and each task."""
    envs = list(dict.fromkeys(env for env, _, _ in speeds))
    sizes = sorted({times for _, way, times in speeds if way != BASE and times != 1})
    spent = {
        (env, way, times): speeds[env, BASE, 1.0] / speed for (env, way, times), speed in speeds.items() if way != BASE
    }
    lines = [
        "`python benchmarks/transfer_clock.py`",
        "",
        "Seconds of a run over those of the base, one seed at a time on two cores: geometric mean over the tasks that "
        "have the move, and the range over them.",
        "",
        f"| environments | {' | '.join(WAYS)} | tasks |",
        f"|---:|{'---:|' * len(WAYS)}---:|",
    ]
    for times in sizes:
        cells, count = [], 0
        for way in WAYS:
            values = [spent[env, way, times] for env in envs if (env, way, times) in spent]
            mean = math.exp(sum(map(math.log, values)) / len(values))
            cells.append(f"{mean:.2f} ({min(values):.2f} to {max(values):.2f})")
            count = max(count, len(values))
        lines.append(f"| {times_text(times)} times | {' | '.join(cells)} | {count} |")
    lines += [
        "",
        f"| task | environments | {' | '.join(WAYS)} | base, steps/s |",
        f"|---|---:|{'---:|' * len(WAYS)}---:|",
    ]
    for env in envs:
        for times in sizes:
            if (env, next(iter(WAYS)), times) in spent:
                each = " | ".join(f"{spent[env, way, times]:.2f}" for way in WAYS)
                lines.append(f"| {env} | {times_text(times)} times | {each} | {speeds[env, BASE, 1.0]:,.0f} |")
    study = grid("laptop")
    hours = study.num_seeds * sum(cell.config.env_steps / speeds[key_of(cell)] for cell in study.cells) / 3600
    lines += [
        "",
        f"All {len(study.cells)} settings, {study.num_seeds} seeds, one run after the other: {hours:.1f} hours.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="cells of this environment alone, without a page")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a cell is measured for")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.only:
        measure(args.only, args.seconds)
        return 0
    if not args.page:
        for env in dict.fromkeys(cell.config.env for cell in grid("laptop").cells):
            words = [sys.executable, __file__, "--only", env, "--seconds", str(args.seconds)]
            subprocess.run(words, check=True)
    PAGE.write_text(page(speeds_in(ROWS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
