"""How sums over time steps and episodes become one for whole episodes of unequal length."""

from __future__ import annotations

import typing

from isobatch.settings.config import Aggregation
from isobatch.studies.base_settings import SEEDS, base, environments
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels
from isobatch.studies.verdicts import Question, answers, gap_sentences

AGGREGATIONS = typing.get_args(Aggregation)
# A rollout has room for one episode at least. Adam takes away the scale of the gradient, and only if nothing clips it
# before: what is left is the direction.
SIZES = {
    "CartPole-v1": dict(num_envs=16, num_steps=500, learning_rate=5e-3),
    "Acrobot-v1": dict(num_envs=16, num_steps=500, learning_rate=5e-3),
}
WHOLE_EPISODES = dict(num_envs=64, num_steps=1000, total_timesteps=99_840_000)  # Procgen cuts off after 1000 steps
STEPS = {
    "quick": {"CartPole-v1": 800_000},
    "laptop": {"CartPole-v1": 1_200_000, "Acrobot-v1": 600_000},
}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *SIZES):
        sizes = WHOLE_EPISODES if scale == "paper" else SIZES[env] | dict(total_timesteps=STEPS[scale][env])
        config = base("reinforce", env, scale, num_minibatches=1, update_epochs=1, **sizes)
        for aggregation in AGGREGATIONS:
            settings = dict(aggregation=aggregation, max_grad_norm="inf", aggregation_horizon=config.num_steps)
            cells.append(Cell(config.replace(**settings), {"aggregation": aggregation}))
    return Grid(cells, 6 if scale == "laptop" else SEEDS[scale])


def verdict(rows: list[Row]) -> list[str]:
    textbook = dict(aggregation="trajectory")
    questions = [
        Question(f"{name} minus trajectory (the textbook's), over the run", MEAN, dict(aggregation=name), textbook)
        for name in levels(rows, "aggregation")
        if name != "trajectory"
    ]
    return gap_sentences("Whole episodes", rows, "aggregation") + answers(rows, questions)


CLAIM = "Averaging over time steps is as good as the textbook's sum over each trajectory."
STUDY = Study("aggregation", CLAIM, grid, verdict)
