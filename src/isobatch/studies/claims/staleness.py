"""Figure 1: data that is held back for some iterations, with three objectives."""

from __future__ import annotations

from itertools import combinations

from isobatch.settings.presets import STALE_OBJECTIVES, with_stale_objective
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, select
from isobatch.studies.searched_bases import SEEDS, base_of, environments
from isobatch.studies.verdicts import MEASURES, Question, answers, in_short

LEVELS = {"quick": (0, 4, 8), "laptop": (0, 4, 8), "paper": (0, 1, 2, 4, 8, 16, 32, 64)}
CARTPOLE_LEVELS = (0, 2, 4, 8, 16)  # at laptop scale
FRESH = "fresh data"


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale):
        config = base_of(env, scale, "ppo")
        for level in CARTPOLE_LEVELS if (scale, env) == ("laptop", "CartPole-v1") else LEVELS[scale]:
            stale = config.replace(staleness=level)
            for objective in STALE_OBJECTIVES if level else ():
                cells.append(Cell(with_stale_objective(stale, objective), {"staleness": level, "treatment": objective}))
            if not level:  # all three are the same
                cells.append(Cell(stale, {"staleness": 0, "treatment": FRESH}))
    return Grid(cells, SEEDS[scale])


def verdict(rows: list[Row]) -> list[str]:
    """Every pair, in the end and over the run: old data may only delay what is learned, or spoil the end of it."""
    questions = []
    for level in levels(rows, "staleness")[1:]:
        stale = {name: dict(staleness=level, treatment=name) for name in ("decoupled", "behavior", "recent")}
        for (name, one), (other_name, other) in combinations((stale | {FRESH: dict(staleness=0)}).items(), 2):
            for column, score in MEASURES.items():
                text = f"Staleness {level}: {name} minus {other_name}, in normalized {score}"
                questions.append(Question(text, column, one, other))
    envs = levels(rows, "env")
    level = [each for each in levels(rows, "staleness") if levels(select(rows, staleness=each), "env") == envs][-1]
    decoupled = dict(staleness=level, treatment="decoupled")
    others = {name: decoupled | dict(treatment=name) for name in ("recent", "behavior")} | {FRESH: dict(staleness=0)}
    short = in_short(
        rows,
        f"normalized return over the run at staleness {level}",
        [Question(f"decoupled minus {name}", MEAN, decoupled, other) for name, other in others.items()],
    )
    sentences = [short, *answers(rows, questions)]
    divergences = {
        env: [row["approx_kl"] for row in select(rows, staleness=0, env=env) if row["approx_kl"] is not None]
        for env in levels(rows, "env")
    }
    means = ", ".join(f"{env} {sum(kl) / len(kl):.2g}" for env, kl in divergences.items() if kl)
    return [
        *sentences,
        f"KL between behavior and current policy with fresh data: {means}; the paper's is of the order of .01 to .02.",
    ]


CLAIM = "Old data does little harm for some iterations if importance and proximal policy are decoupled (figure 1)."
STUDY = Study(
    "staleness", CLAIM, grid, verdict, pictures="staleness", everywhere={"staleness": 0}, panels="treatment", minutes=12
)
