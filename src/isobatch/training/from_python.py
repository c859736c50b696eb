"""Training as it is called from Python: a user's own parts, and progress where somebody watches."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import gymnasium

from isobatch.envs.interface import Environment
from isobatch.envs.registry import Constructor
from isobatch.errors import UsageError, near_matches
from isobatch.formatting import Say
from isobatch.networks.custom_networks import Factory
from isobatch.settings.config import Config, setting_fields
from isobatch.settings.fields import fields_of
from isobatch.settings.options import Options
from isobatch.settings.schedules import Schedule
from isobatch.training import trainer
from isobatch.training.custom_parts import with_custom_parts
from isobatch.training.display import Watch, is_watched, print_remark, shown_progress
from isobatch.training.result import Result


def train(
    config: Config,
    seed: int = 0,
    num_seeds: int = 1,
    run_dir: str | Path | None = None,
    resume: bool = False,
    *,
    env: Environment | gymnasium.Env | Constructor | None = None,
    networks: Factory | None = None,
    learning_rate_schedule: Schedule | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
    quiet: bool = False,
    restart: bool = False,
    init_from: str | Path | None = None,
    **options: object,
) -> Result:
    """Train `config` on one or several seeds: what `isobatch train` does.

    Args:
        config: the settings, for example `preset("ppo", "CartPole-v1")`.
        seed, num_seeds: seeds seed, seed + 1, ... are trained at once.
        run_dir: where everything is kept; without one nothing is written.
        resume: go on with the run in `run_dir`, bit for bit; with a larger `total_timesteps` for longer.
        env: an environment of one's own, instead of the one that `config` names: see `register_env`.
        networks: a function that makes networks of one's own: see `register_networks`.
        learning_rate_schedule: a function of the progress, from 0 to 1: see `register_schedule`.
        watch: is told the progress about twice a second; by default it is shown on a terminal or in a notebook.
        say: gets sentences meant for a person; by default they go to standard error, where somebody sees it.
        quiet: show nothing.
        restart: start over where no checkpoint of the run to `resume` can be used.
        init_from: a run with whose networks and observation normalizer a new one begins.
        options: the other flags of `isobatch train`: log_interval, checkpoint_interval, keep_checkpoints,
            eval_interval, eval_threshold, eval_episodes, env_timeout, tensorboard, wandb_project.

    Returns:
        Metrics, final returns and trained states of all seeds.

    Example:
        >>> import isobatch as ib
        >>> config = ib.preset("ppo", "Probe-Constant", num_envs=4, num_steps=8, total_timesteps=64)
        >>> ib.train(config, num_seeds=2).final_return
        [1.0, 1.0]
    """
    _check_names(options)
    config = with_custom_parts(config, env, networks, learning_rate_schedule)
    shows = is_watched() and not quiet
    say = say or (print_remark if shows else lambda sentence: None)
    shown = shown_progress(config) if shows and watch is None else nullcontext(watch or (lambda progress: None))
    with shown as watching:
        return trainer.train(
            config, seed, num_seeds, run_dir, resume, restart, init_from, None, watching, say, **options
        )


def _check_names(options: Mapping[str, object]) -> None:
    """Raise where a keyword is neither one of `train`'s nor an option of a run."""
    known = dict.fromkeys([*inspect.signature(train).parameters, *fields_of(Options)])
    for name in options:
        if name not in known and name not in setting_fields():  # of which `Options` has something to say
            raise UsageError(f"unknown option {name!r}{near_matches(name, known)}")
