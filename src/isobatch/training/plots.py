"""A picture of the learning curves of runs, from their directories or results."""

from __future__ import annotations

from pathlib import Path

from isobatch.errors import UsageError, check_keywords
from isobatch.training.curves import Run, draw_runs
from isobatch.training.metrics import RETURN
from isobatch.training.result import Result
from isobatch.training.run_directory import RunDirectory


@check_keywords
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
    if out is None:
        first = runs[0].run_dir if isinstance(runs[0], Result) else Path(runs[0])
        if first is None:
            raise UsageError("plot() of a run without a directory needs the name of a picture: give out='curve.png'.")
        out = first / "learning_curve.png"
    once = {id(run): run for run in runs}.values()  # a result that is given twice is one run
    parts = [_part(run, number) for number, run in enumerate(once, 1)]
    draw_runs(list({part.path.resolve(): part for part in parts}.values()), Path(out), metric)
    return Path(out)


def _part(run: str | Path | Result, number: int) -> Run:
    if isinstance(run, Result):
        seeds = {"seed": run.options.seed, "num_seeds": run.options.num_seeds}
        return Run(run.run_dir or Path(f"run {number}"), run.config.to_dict() | seeds, run.metrics)
    directory = RunDirectory.open(Path(run))
    return Run(directory.path, directory.settings, directory.metrics())
