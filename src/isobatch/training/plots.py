"""A picture of the learning curves of runs, from their directories or results."""

from __future__ import annotations

from pathlib import Path

from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.training.curves import learning_curves
from isobatch.training.metrics import RETURN, Table
from isobatch.training.result import Result
from isobatch.training.run_directory import RunDirectory


def plot(*runs: str | Path | Result, out: str | Path | None = None, metric: str = RETURN) -> Path:
    """Draw learning curves of one or several runs: the mean over seeds in a band of one standard deviation.

    Args:
        runs: run directories, or what `train` returned.
        out: picture to write, .png .svg or .pdf; by default `learning_curve.png` in the first run directory.
        metric: a column of `metrics.csv`.

    Returns:
        The path of the picture.

    Example:
        >>> import isobatch as ib, tempfile
        >>> config = ib.preset("ppo", "Probe-Action", num_envs=4, num_steps=8, total_timesteps=64)
        >>> ib.plot(ib.train(config), out=tempfile.mkdtemp() + "/curve.svg").name
        'curve.svg'
    """
    if not runs:
        raise UsageError("plot() was given no run: use run directories or results of train.")
    parts = [_settings_and_metrics(run) for run in runs]
    algos, envs = ({getattr(config, name) for config, _, _ in parts} for name in ("algo", "env"))
    names = [config.algo if len(algos) == len(parts) else name for config, _, name in parts]
    if out is None:
        first = runs[0].run_dir if isinstance(runs[0], Result) else Path(runs[0])
        if first is None:
            raise UsageError("plot() of a run without a directory needs the name of a picture: give out='curve.png'.")
        out = first / "learning_curve.png"
    tables = {name: table for name, (_, table, _) in zip(names, parts, strict=True)}
    learning_curves(tables, Path(out), f"{', '.join(sorted(algos))} on {', '.join(sorted(envs))}", metric)
    return Path(out)


def _settings_and_metrics(run: str | Path | Result) -> tuple[Config, Table, str]:
    if isinstance(run, Result):
        seeds = f"seeds {run.seeds[0]} to {run.seeds[-1]}"
        return run.config, run.metrics, run.run_dir.name if run.run_dir else f"{run.config.algo}, {seeds}"
    directory = RunDirectory.open(Path(run))
    return directory.config, directory.metrics(), directory.path.name
