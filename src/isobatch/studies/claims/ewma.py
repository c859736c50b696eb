"""Figure 4: an averaged proximal policy against the behavior policy, for PPO and PPG."""

from __future__ import annotations

from isobatch.statistics.comparisons import probability_of_improvement
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import FINAL, MEAN, scores
from isobatch.studies.searched_bases import SEEDS, base_of, environments
from isobatch.studies.verdicts import MEASURES, Question, answers, by_half, estimate_text, in_short

ALGORITHMS = ("ppo", "ppo-ewma", "ppg", "ppg-ewma")


def grid(scale: str) -> Grid:
    """Each algorithm at settings of its own: what suits one need not suit the other."""
    cells = [Cell(base_of(env, scale, algo), {"algo": algo}) for env in environments(scale) for algo in ALGORITHMS]
    return Grid(cells, 8 if scale == "laptop" else SEEDS[scale])


PAIRS = {f"{plain}-ewma minus {plain}": (dict(algo=f"{plain}-ewma"), dict(algo=plain)) for plain in ("ppo", "ppg")}


def verdict(rows: list[Row]) -> list[str]:
    questions, sentences = [], []
    for name, (x, y) in PAIRS.items():
        for column, score in MEASURES.items():
            questions.append(Question(f"{name}, in normalized {score}", column, x, y))
        chance = probability_of_improvement(scores(rows, MEAN, **x), scores(rows, MEAN, **y))
        sentences.append(
            f"A run of {x['algo']} beats one of {y['algo']} over the run with probability {estimate_text(chance)}."
        )
    short = [Question(name, MEAN, x, y) for name, (x, y) in PAIRS.items()]
    return [
        in_short(rows, "normalized return over the run", short),
        *answers(rows, questions),
        *sentences,
        *by_half(rows, FINAL, PAIRS),
    ]


CLAIM = "An averaged proximal policy is at least as good as the behavior policy, for PPO and for PPG (figure 4)."
STUDY = Study("ewma", CLAIM, grid, verdict, pairs=PAIRS, minutes=14)
