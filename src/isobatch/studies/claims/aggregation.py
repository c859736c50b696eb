"""How the losses of time steps become one number where trajectories are of unequal length."""

from __future__ import annotations

import typing

from isobatch.settings.config import Aggregation, Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import PROCGEN, preset
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, select
from isobatch.studies.searched_bases import (
    EPISODES,
    PIECES,
    SEEDS,
    aggregation_search,
    environments,
    searched,
)
from isobatch.studies.verdicts import MEASURES, Question, answers, gap_sentences, in_short

AGGREGATIONS = typing.get_args(Aggregation)
SCALED = "constant"  # `trajectory` in another scale, which Adam takes away: at its rate, and not with SGD
# At the paper's scale episodes are cut off after 1,000 steps, and nobody has searched a rate.
LONG: SettingsByName = dict(
    num_envs=64, num_steps=1000, num_minibatches=1, update_epochs=1, total_timesteps=99_840_000, max_grad_norm="inf"
)


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *EPISODES, *PIECES):
        for optimizer in ("adam", "sgd") if scale != "paper" else ("adam",):
            for aggregation in AGGREGATIONS:
                if (optimizer, aggregation) != ("sgd", SCALED):
                    factors = {"optimizer": optimizer, "aggregation": aggregation}
                    cells.append(Cell(aggregated(env, scale, optimizer, aggregation), factors))
    return Grid(cells, SEEDS[scale])


def aggregated(env: str, scale: str, optimizer: str, aggregation: Aggregation) -> Config:
    """The settings on an environment with an optimizer and an aggregation, at the rate found for the two."""
    if scale == "paper":
        config = preset("reinforce", env, None, **(PROCGEN | LONG))
    else:
        rate_of = "trajectory" if aggregation == SCALED else aggregation
        algo = "ppo" if env in PIECES else "reinforce"
        config = searched(env, aggregation_search(algo, optimizer, rate_of))
    horizon = dict(aggregation_horizon=config.num_steps) if aggregation == SCALED else {}
    return config.replace(aggregation=aggregation, **horizon)


def verdict(rows: list[Row]) -> list[str]:
    gaps, questions, shortest = [], [], []
    for optimizer in levels(rows, "optimizer"):
        chosen = select(rows, optimizer=optimizer)
        gaps += gap_sentences(f"With {optimizer}", chosen, "aggregation")
        textbook = dict(optimizer=optimizer, aggregation="trajectory")
        mean = textbook | dict(aggregation="timestep")
        shortest.append(Question(f"with {optimizer}", MEAN, mean, textbook))
        questions += [
            Question(
                f"With {optimizer}: {name} minus trajectory (the textbook's), in normalized {score}",
                column,
                textbook | dict(aggregation=name),
                textbook,
            )
            for name in levels(chosen, "aggregation")
            if name != "trajectory"
            for column, score in MEASURES.items()
        ]
    short = in_short(rows, "mean over time steps minus the textbook's, in normalized return over the run", shortest)
    return [short, *gaps, *answers(rows, questions)]


CLAIM = "Averaging over time steps is as good as the textbook's sum over each trajectory."
STUDY = Study("aggregation", CLAIM, grid, verdict, pictures="optimizer", minutes=3)
