"""How the losses of time steps become one number where trajectories are of unequal length."""

from __future__ import annotations

import typing

from isobatch.settings.config import Aggregation, Config
from isobatch.settings.parsing import SettingsByName
from isobatch.studies.base_settings import SEEDS, base, environments
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels, select
from isobatch.studies.verdicts import MEASURES, Question, answers, gap_sentences, in_short

AGGREGATIONS = typing.get_args(Aggregation)
# Whole episodes: a rollout has room for one at least, and one gradient step is taken on it.
WHOLE: SettingsByName = dict(num_envs=16, num_steps=500, num_minibatches=1, update_epochs=1, learning_rate=5e-3)
PROCGEN: SettingsByName = dict(num_envs=64, num_steps=1000, num_minibatches=1, update_epochs=1)  # cut off after 1000
# Pieces of episodes in fixed rollouts. At first an episode of Breakout ends after about ten steps.
PIECES: SettingsByName = dict(num_envs=32, num_steps=64)
SIZES: dict[str, tuple[str, SettingsByName]] = {  # algorithm and settings
    "CartPole-v1": ("reinforce", WHOLE),
    "Acrobot-v1": ("reinforce", WHOLE),
    "Breakout-MinAtar": ("ppo", PIECES),
}
STEPS = {
    "quick": {"CartPole-v1": 500_000},
    "laptop": {"CartPole-v1": 600_000, "Acrobot-v1": 400_000, "Breakout-MinAtar": 200_000},
}
# Adam takes away the scale of the gradient, if nothing clips it before: what is left is the direction. With plain SGD
# the scale counts too, so each aggregation has a rate of its own, the best over the run (seeds 100 to 102) of rates
# that are a factor of sqrt(10) apart: on CartPole five for each (.03 to 3, trajectory .0003 to .03), on the others two
# to five around the best. `constant` would be `trajectory` with another rate.
SGD_RATES: dict[str, dict[Aggregation, float]] = {
    "CartPole-v1": {"timestep": 0.1, "trajectory": 0.001, "trajectory-mean": 0.1},
    "Acrobot-v1": {"timestep": 1.0, "trajectory": 0.003, "trajectory-mean": 1.0},
    "Breakout-MinAtar": {"timestep": 0.3, "trajectory": 0.03, "trajectory-mean": 0.3},
}


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale, *SIZES):
        config = unaggregated(env, scale)
        for aggregation in AGGREGATIONS:
            horizon = dict(aggregation_horizon=config.num_steps) if aggregation == "constant" else {}
            factors = {"optimizer": "adam", "aggregation": aggregation}
            cells.append(Cell(config.replace(**factors, **horizon), factors))
        for aggregation, rate in SGD_RATES.get(env, {}).items():
            factors = {"optimizer": "sgd", "aggregation": aggregation}
            cells.append(Cell(config.replace(**factors, learning_rate=rate), factors))
    return Grid(cells, 6 if scale == "laptop" else SEEDS[scale])


def unaggregated(env: str, scale: str) -> Config:
    """The settings on an environment, before what the study varies."""
    if scale == "paper":
        return base("reinforce", env, scale, None, **PROCGEN, total_timesteps=99_840_000, max_grad_norm="inf")
    algo, small = SIZES[env]
    return base(algo, env, scale, small | dict(total_timesteps=STEPS[scale][env], max_grad_norm="inf"))


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
STUDY = Study("aggregation", CLAIM, grid, verdict, pictures="optimizer", minutes=29)
