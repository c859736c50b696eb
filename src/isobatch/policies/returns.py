"""How good a trained policy is: what it gets in episodes, with the settings of `isobatch eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax

from isobatch.errors import check_keywords
from isobatch.formatting import by_magnitude, html_table, plain_table
from isobatch.rollouts.evaluation import Episodes, Policies, StackedPolicies
from isobatch.rollouts.evaluation import evaluate as play_all
from isobatch.settings.config import Config
from isobatch.settings.fields import COUNT, COUNT_OR_0
from isobatch.training.agent import Agent
from isobatch.training.loading import load_run
from isobatch.training.result import Result


@dataclass(frozen=True, repr=False)
class Evaluation(Episodes):
    """Episodes of the policies of one or several seeds."""

    title: str
    seeds: list[int]

    def rows(self) -> list[list[str]]:
        """A line for each seed, as COLUMNS has it."""
        columns = (self.return_mean, self.return_std, self.returns.min(1), self.returns.max(1), self.length_mean)
        seeds = zip(self.seeds, *columns, strict=True)
        return [[str(seed), *(by_magnitude(float(value)) for value in values)] for seed, *values in seeds]

    def __repr__(self) -> str:
        return f"{self.title}\n{plain_table(COLUMNS, self.rows())}"

    def _repr_html_(self) -> str:
        return html_table(self.title, COLUMNS, self.rows())


COLUMNS = ["seed", "return", "std", "min", "max", "length"]


@check_keywords
def evaluate(
    trained: str | Path | Result | Agent,
    episodes: int = 100,
    deterministic: bool = True,
    seed: int = 0,
    checkpoint: str | int = "newest",
) -> Evaluation:
    """Returns and lengths of whole episodes, all seeds and episodes at once.

    Every policy meets the same initial states. The mean of n episodes has the standard error `return_std / sqrt(n)`.

    Args:
        trained: a run directory, what `train` returned, or an agent.
        episodes: for each seed.
        deterministic: the most likely actions; else actions are sampled as in training.
        seed: of the episodes.
        checkpoint: of a run directory: newest, best or an iteration.

    Returns:
        `returns` and `lengths` [seeds, episodes], and their means.

    Example:
        >>> import isobatch as ib
        >>> config = ib.preset("ppo", "Probe-Constant", num_envs=4, num_steps=8, total_timesteps=64)
        >>> ib.evaluate(ib.train(config, num_seeds=2), episodes=5).return_mean.tolist()
        [1.0, 1.0]
    """
    COUNT.check("episodes", episodes)
    COUNT_OR_0.check("seed", seed)
    config, seeds, policies, iteration = _policies(trained, checkpoint)
    played = play_all(config, policies, episodes, deterministic, seed)
    how = "most likely" if deterministic else "sampled"
    title = f"{config.algo} on {config.env}, iteration {iteration}, {how} actions, {episodes} episodes"
    return Evaluation(played.returns, played.lengths, title, seeds)


def _policies(trained: str | Path | Result | Agent, checkpoint: str | int) -> tuple[Config, list[int], Policies, int]:
    if isinstance(trained, Agent):
        learned = trained.learned
        one = StackedPolicies(learned.networks, learned.obs_moments)
        return learned.config, [learned.seed], jax.tree.map(lambda leaf: leaf[None], one), learned.iteration
    run = trained if isinstance(trained, Result) else load_run(Path(trained), str(checkpoint))
    return run.config, run.seeds, run.states, run.iteration
