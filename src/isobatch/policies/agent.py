"""The agent of a run directory."""

from __future__ import annotations

from pathlib import Path

from isobatch.errors import check_keywords
from isobatch.training.agent import Agent, learned_of
from isobatch.training.loading import load_run


@check_keywords
def load_agent(run_dir: str | Path, checkpoint: str | int = "newest", policy_seed: int | None = None) -> Agent:
    """The agent that a run trained.

    Args:
        run_dir: directory of the run.
        checkpoint: newest, best or an iteration.
        policy_seed: one of the seeds of the run, by default the first.

    Returns:
        An agent, whose `predict` maps observations to actions.

    Example:
        >>> import isobatch as ib, tempfile
        >>> run_dir = tempfile.mkdtemp() + "/run"
        >>> config = ib.preset("ppo", "Probe-Action", num_envs=4, num_steps=8, total_timesteps=64)
        >>> result = ib.train(config, run_dir=run_dir)
        >>> ib.load_agent(run_dir, checkpoint="best").learned.seed
        0
    """
    return Agent(learned_of(load_run(Path(run_dir), str(checkpoint)), policy_seed))
