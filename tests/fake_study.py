"""A study that takes a second: five settings on probes. As a script: the command line with it in the list."""

import dataclasses
import sys

from tiny import tiny

from isobatch.statistics.normalization import ReturnRange
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import FINAL
from isobatch.studies.verdicts import Question, answers

RATES = (1e-3, 1e-2)
RANGES = {"Probe-ActionObserved": ReturnRange(-1, 1), "Probe-Delay": ReturnRange(0, 1)}
HUGE = 1e38


def grid(scale: str, long: int = 1) -> Grid:
    cells = [
        Cell(
            tiny(learning_rate=rate, num_steps=steps, total_timesteps=384 * long),
            {"learning_rate": rate, "num_steps": steps},
        )
        for steps in (8, 4)
        for rate in RATES
    ]
    other = tiny(env="Probe-Delay", learning_rate=RATES[0])
    return Grid([*cells, Cell(other, {"learning_rate": RATES[0], "num_steps": 8})], 2)


def long_grid(scale: str) -> Grid:
    """Two parts, long enough to be killed in the middle of each."""
    return Grid(grid(scale, long=20).cells[:4], 2)


def verdict(rows: list[Row]) -> list[str]:
    fast, slow = ({"learning_rate": rate} for rate in reversed(RATES))
    return answers(rows, [Question("Fast minus slow", FINAL, fast, slow)])


STUDY = Study(
    "fake", "A larger learning rate learns faster.", grid, verdict,
    pictures="num_steps", everywhere={"num_steps": 8, "learning_rate": RATES[0]}, ranges=RANGES,
)  # fmt: skip


LONG = dataclasses.replace(STUDY, grid=long_grid)


def main() -> int:
    from isobatch.cli.main import main as command
    from isobatch.studies.claims import STUDIES

    STUDIES["fake"] = LONG
    return command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
