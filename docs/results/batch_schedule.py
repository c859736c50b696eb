"""Does a batch that grows during a run learn like the small one? Write the table of docs/results/batch-schedule.md.

    python docs/results/batch_schedule.py [--seeds 8] [--only CartPole-v1]

A quarter of the searched base of the study `invariance`, by the rules: PPO-EWMA, 16 environments x 32 steps in
minibatches of 16. Constant batches of 1, 4 and 16 times that by the rules, and one that grows through these three, on
equal steps; each in three stages, so that all of them begin new episodes as often.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np

from isobatch.formatting import with_interval
from isobatch.rescaling import rescale
from isobatch.settings.batch_schedule import parse_batch_schedule
from isobatch.settings.config import Config
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.normalization import bounds_of
from isobatch.studies.searched_bases import CLASSIC, searched
from isobatch.training.metrics import RETURN, Table
from isobatch.training.stages import stage_configs, train_stages

PAGE = Path(__file__).parent / "batch-schedule.md"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
SMALL = 16  # environments
SCHEDULES = {
    "16 environments": "0:16,0.25:16,0.5:16",
    "64": "0:64,0.25:64,0.5:64",
    "256": "0:256,0.25:256,0.5:256",
    "16, from 1/4 of the run 64, from 1/2 on 256": "0:16,0.25:64,0.5:256",
    "256, from 1/2 of the run 64, from 3/4 on 16": "0:256,0.5:64,0.75:16",
}
LAST = 0.25  # share of the run whose mean is the final return: episodes of 500 steps take half of the last stage


def config_of(env: str) -> Config:
    config = rescale(searched(env, "divided"), factor=4).after
    assert config.num_envs == SMALL
    return config


def gradient_steps(config: Config, schedule: str) -> int:
    stages = stage_configs(config, parse_batch_schedule(schedule))
    return sum(stage.num_iterations * stage.geometry.gradient_steps for stage in stages)


def returns(table: Table, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Over the run and in its last part, of each seed: means over steps, since rows are of unequal length."""
    over, last = [], []
    for seed in range(seeds):
        mine = table["seed"] == seed
        steps, values = table["env_steps"][mine], table[RETURN][mine]
        weights = np.diff(steps, prepend=0) * ~np.isnan(values)
        late = weights * (steps > (1 - LAST) * steps[-1])
        over.append(np.nansum(values * weights) / weights.sum())
        last.append(np.nansum(values * late) / late.sum())
    return np.array(over), np.array(last)


def bounded(env: str, mean: Estimate) -> Estimate:
    """With an interval no wider than what an episode can return."""
    least, most = bounds_of(env)
    return Estimate(mean.value, max(mean.low, least), min(mean.high, most))


def rows_of(env: str, seeds: int) -> list[str]:
    config, rows, first = config_of(env), [], None
    for name, schedule in SCHEDULES.items():
        with tempfile.TemporaryDirectory() as folder:
            result = train_stages(config, schedule, Path(folder) / "run", num_seeds=seeds)
            mean, final = returns(result.metrics, seeds)
        first = first or (final, mean)
        cells = [with_interval(bounded(env, contrast([(1, values)])[0])) for values in (final, mean)]
        for values, smallest in zip((final, mean), first, strict=True):
            cells.append(with_interval(contrast([(1, values), (-1, smallest)])[0]) if rows else "")
        rows.append(f"| {env} | {name} | {gradient_steps(config, schedule):,} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", choices=CLASSIC, nargs="+", default=list(CLASSIC))
    args = parser.parse_args()
    columns = ["environment", "batch", "gradient steps", "final return", "over the run"]
    columns += ["final minus 16's", "over the run minus 16's"]
    lines = [f"| {' | '.join(columns)} |", "|---|---|---:|---:|---:|---:|---:|"]
    for env in args.only:
        lines += rows_of(env, args.seeds)
    block = "\n".join([BEGIN, f"{args.seeds} seeds; brackets hold 95 % intervals.", "", *lines, END])
    PAGE.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: block, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
