"""Does imitated lag predict real lag? Rollouts that wait in a queue, and those of actors that collect meanwhile."""

from __future__ import annotations

from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.presets import PROCGEN, STALE_OBJECTIVES, preset, with_stale_objective
from isobatch.statistics.normalization import ReturnRange
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, levels
from isobatch.studies.searched_bases import base_of, environments
from isobatch.studies.verdicts import MEASURES, Question, answers, in_short

FRESH = "fresh"
LAGS = {"quick": (2,), "laptop": (1, 4), "paper": (1, 4, 16)}  # in iterations
SIZES: SettingsByName = dict(num_envs=16, num_steps=64, num_minibatches=8, update_epochs=1, lr_schedule="constant")
GAME = "envpool/StarpilotEasy-v0"
SETTINGS: dict[str, SettingsByName] = {
    "envpool/CartPole-v1": SIZES
    | dict(learning_rate=1e-3, gamma=0.99, gae_lambda=0.95, ent_coef=0.01, total_timesteps=250_000),
    "envpool/LunarLander-v3": SIZES
    | dict(num_steps=128, learning_rate=1e-3, gamma=0.999, gae_lambda=0.98, ent_coef=0.01, total_timesteps=300_000),
    # The paper's, but for the batch and for a network that two cores can train.
    GAME: PROCGEN
    | SIZES
    | dict(num_envs=64, num_steps=32, learning_rate=1e-3, gamma=0.99, max_grad_norm=0.5, encoder="nature")
    | dict(channels=(8, 16, 16), hidden_sizes=(64,), env_kwargs={"num_levels": 200, "start_level": 0})
    | dict(total_timesteps=51_200),
}
ONE_LAG = ("envpool/LunarLander-v3", GAME)  # the largest, at a size that takes minutes
# What random actions and a longer run with the paper's network get, from docs/results/environments.md.
RANGES = {GAME: ReturnRange(1.44, 3.40, "random actions; the last tenth of the run of docs/results/environments.md")}
ENVS = {"quick": ["envpool/CartPole-v1"], "laptop": list(SETTINGS)}
STEPS = {"quick": 60_000}
SEEDS = {"quick": 3, "laptop": 4, "paper": 4}


def bases(scale: str) -> list[Config]:
    if scale == "paper":
        return [base_of(env, scale, "ppo") for env in environments(scale)]
    shorter = {"total_timesteps": STEPS[scale]} if scale in STEPS else {}
    return [preset("ppo", env, None, **(SETTINGS[env] | shorter)) for env in ENVS[scale]]


def grid(scale: str) -> Grid:
    cells = []
    for config in bases(scale):
        cells.append(Cell(config, {"lag": 0, "data": FRESH, "treatment": FRESH}))
        for lag in LAGS[scale][-1:] if config.env in ONE_LAG else LAGS[scale]:
            real = dict(actors=2, max_lag=f"{lag}i")
            # Imitated by a queue; of actors with a fixed schedule, all of it exactly so old; or with a free one, for
            # which the lag is a bound.
            late: dict[str, SettingsByName] = {
                "imitated": dict(staleness=lag, total_timesteps=longer(config, lag)),
                "fixed": real | dict(schedule="fixed"),
                "free": real | dict(schedule="free"),
            }
            if config.env == GAME:  # the question is the lag; a bound costs half as much again
                del late["free"]
            for data, settings in late.items():
                for treatment in STALE_OBJECTIVES:
                    stale = with_stale_objective(config.replace(**settings), treatment)
                    cells.append(Cell(stale, {"lag": lag, "data": data, "treatment": treatment}))
    return Grid(cells, SEEDS[scale])


def longer(config: Config, lag: int) -> int:
    """So that there are as many updates: those of a queue begin when it is full."""
    return config.env_steps + lag * config.geometry.iteration_batch


def verdict(rows: list[Row]) -> list[str]:
    """Real minus imitated, for each lag and objective, and what lag costs at all."""
    questions, most = [], levels(rows, "lag")[-1]
    for lag in levels(rows, "lag")[1:]:
        for treatment in levels(rows, "treatment")[1:]:
            imitated = dict(lag=lag, data="imitated", treatment=treatment)
            for data in ("fixed", "free"):
                for column, score in MEASURES.items():
                    text = f"Lag {lag}, {treatment}: {data} actors minus imitated, in normalized {score}"
                    questions.append(Question(text, column, imitated | dict(data=data), imitated))
    imitated = dict(lag=most, data="imitated", treatment="decoupled")
    short = in_short(
        rows,
        f"normalized return over the run at lag {most}, decoupled",
        [
            Question(f"{data} actors minus imitated lag", MEAN, imitated | dict(data=data), imitated)
            for data in ("fixed", "free")
        ],
    )
    return [short, *answers(rows, questions)]


CLAIM = "Rollouts that wait in a queue show what those of asynchronous actors of the same lag do (figure 1's method)."
STUDY = Study(
    "asynchrony", CLAIM, grid, verdict, pictures="treatment", everywhere={"lag": 0}, ranges=RANGES, minutes=32
)
