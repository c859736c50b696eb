"""A picture of the learning curves of runs, from their directories or results."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from isobatch.errors import UsageError
from isobatch.training.curves import distinct_labels, learning_curves
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
    drawn = list({_key(run): _drawn(run, place) for place, run in enumerate(runs, 1)}.values())
    settings = [run.settings for run in drawn]
    envs, algos = ({each[name] for each in settings} for name in ("env", "algo"))
    if out is None:
        first = runs[0].run_dir if isinstance(runs[0], Result) else Path(runs[0])
        if first is None:
            raise UsageError("plot() of a run without a directory needs the name of a picture: give out='curve.png'.")
        out = first / "learning_curve.png"
    labels = distinct_labels([run.path for run in drawn], settings)
    tables = {label: run.metrics for label, run in zip(labels, drawn, strict=True)}
    learning_curves(tables, Path(out), f"{', '.join(sorted(algos))} on {', '.join(sorted(envs))}", metric)
    return Path(out)


class DrawnRun(NamedTuple):
    path: Path
    settings: dict[str, Any]  # with the seeds
    metrics: Table


def _key(run: str | Path | Result) -> object:
    """The same for a run that is given twice."""
    if isinstance(run, Result):
        return id(run) if run.run_dir is None else run.run_dir.resolve()
    return Path(run).resolve()


def _drawn(run: str | Path | Result, place: int) -> DrawnRun:
    if isinstance(run, Result):
        seeds: dict[str, Any] = {"seed": run.options.seed, "num_seeds": run.options.num_seeds}
        return DrawnRun(run.run_dir or Path(f"run {place}"), run.config.to_dict() | seeds, run.metrics)
    directory = RunDirectory.open(Path(run))
    seeds = {name: directory.about.get(name) for name in ("seed", "num_seeds")}
    return DrawnRun(directory.path, directory.config.to_dict() | seeds, directory.metrics())
