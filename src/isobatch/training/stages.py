"""A run whose number of environments grows: consecutive runs, each from the state in which the one before it ended.

Shapes are fixed in a compiled program, so a stage is a program, and a run directory, of its own. Settings are those of
`rescale` from the config to the stage's number of environments. What goes over: networks, optimizer, proximal policy,
moments of observations, rewards and advantages, and the randomness. Environments begin anew, so episodes in progress
are cut. Merrill et al. (2025), https://arxiv.org/abs/2505.23971, grow the batch of language models in such steps.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple, TypedDict

from isobatch.errors import UsageError
from isobatch.files import replace_file, unwritable
from isobatch.formatting import Say
from isobatch.rescaling import MINIBATCH_COUNT, rescale
from isobatch.settings.batch_schedule import Stage, parse_batch_schedule
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.schedules import falling_ranges
from isobatch.training.display import Watch
from isobatch.training.metrics import METRICS, read_metrics
from isobatch.training.opening import EVALUATION
from isobatch.training.result import Progress, Result
from isobatch.training.run_directory import STAGES, RunDirectory
from isobatch.training.trainer import train

LINES = "log_interval"  # an option that decides what a run is, beside its seeds and evaluations


class StagesInfo(TypedDict):
    """The contents of stages.json."""

    batch_schedule: str
    config: SettingsByName
    options: SettingsByName


def stage_configs(config: Config, stages: tuple[Stage, ...]) -> list[Config]:
    """The settings of each stage, by the rules, each as long as whole iterations come nearest from below."""
    _check_can_change(config)
    ends = [*(stage.begins for stage in stages[1:]), 1.0]
    configs, done = [], 0
    for stage, end in zip(stages, ends, strict=True):
        moved = rescale(config, num_envs=stage.num_envs, keep=MINIBATCH_COUNT).after
        batch = moved.geometry.iteration_batch
        iterations = int(end * config.total_timesteps - done) // batch
        if iterations < 1:
            raise UsageError(
                f"batch_schedule leaves no whole iteration of {batch:,} steps to the stage of {stage.num_envs} "
                f"environments, from {stage.begins:g} to {end:g} of total_timesteps={config.total_timesteps}: make it "
                "longer, or its number of environments smaller."
            )
        configs.append(moved.replace(total_timesteps=iterations * batch))
        done += iterations * batch
    return configs


def _check_can_change(config: Config) -> None:
    """What lasts longer than an iteration would be cut where a stage ends."""
    for name, why in (
        ("policy_iterations_per_phase", "an auxiliary phase"),
        ("staleness", "a queue of rollouts"),
        ("max_lag", "the rollouts of actors"),
    ):
        if getattr(config, name):
            raise UsageError(f"batch_schedule would cut {why} ({name}={getattr(config, name)}): use {name}=0.")
    if config.lr_schedule not in ("constant", "adaptive"):
        raise UsageError(
            f"batch_schedule moves the learning rate with the batch, and lr_schedule={config.lr_schedule!r} would "
            "begin anew in each stage: use constant."
        )
    for name in falling_ranges(config):
        schedule = "clip_schedule" if name == "clip_eps" else "value_clip_schedule"
        raise UsageError(f"batch_schedule would begin {schedule}='linear' anew in each stage: use constant.")


def train_stages(
    config: Config,
    schedule: str,
    run_dir: str | Path,
    seed: int = 0,
    num_seeds: int = 1,
    resume: bool = False,
    restart: bool = False,
    init_from: str | Path | None = None,
    watch: Watch = lambda progress: None,
    say: Say = lambda sentence: None,
    **options: object,
) -> Result:
    """Train the stages of a schedule, in `run_dir`/stage-1 and so on; `resume` goes on in the one that is not finished.

    `run_dir` gets the metrics of all of them, over the environment steps of the whole run.
    """
    path, configs = Path(run_dir), stage_configs(config, parse_batch_schedule(schedule))
    kept = {"seed": seed, "num_seeds": num_seeds, LINES: options.get(LINES, getattr(Options, LINES))}
    if options.get("eval_interval"):
        kept |= {name: options.get(name, getattr(Options, name)) for name in EVALUATION}
    info: StagesInfo = {"batch_schedule": schedule, "config": config.to_dict(), "options": kept}
    if resume:
        if read_stages(path) != info:
            raise UsageError(f"run_dir={str(path)!r} was begun with another schedule or settings: use the same ones.")
    elif (path / STAGES).exists():
        raise UsageError(f"run_dir={str(path)!r} holds a run already: go on with resume, or choose another directory.")
    else:
        try:
            path.mkdir(parents=True, exist_ok=True)
            replace_file(path / STAGES, json.dumps(info, indent=2) + "\n")
        except OSError as error:
            raise unwritable(f"run_dir={str(path)!r}", error) from None
    total, begins, before = sum(each.env_steps for each in configs), Begin(0, 0), None
    lines: list[str] = []
    for number, each in enumerate(configs, 1):
        where = path / f"stage-{number}"
        say(f"stage {number} of {len(configs)}: {each.num_envs} environments for {each.env_steps:,} steps.")
        begun = RunDirectory.holds_run(where)
        first, continues = (None, None) if begun else (init_from, None) if before is None else (None, before)
        watch_stage = _from(watch, begins.env_steps, total)
        result = train(
            each, seed, num_seeds, where, begun, restart and begun, first, continues, watch_stage, say, **options
        )
        lines += _counted_from(where / METRICS, begins)[bool(lines) :]  # one header
        if lines:  # none, where it was stopped before the first
            replace_file(path / METRICS, "".join(lines))
        begins, before = begins.after(result), where
        if result.interrupted:
            break
    return dataclasses.replace(
        result,
        run_dir=path if result.interrupted else where,
        config=result.config.replace(total_timesteps=max(begins.env_steps, result.config.total_timesteps)),
        metrics=read_metrics(path) if lines else {},
        env_steps=begins.env_steps,
    )


class Begin(NamedTuple):
    """Where a stage begins, in the count of the whole run."""

    iteration: int
    env_steps: int

    def after(self, result: Result) -> Begin:
        """Where the next one does."""
        iterations = result.env_steps // result.config.geometry.iteration_batch
        return Begin(self.iteration + iterations, self.env_steps + result.env_steps)


def read_stages(path: Path) -> StagesInfo:
    """Schedule and settings of a run in stages."""
    try:
        info: StagesInfo = json.loads((path / STAGES).read_text())
        return info
    except FileNotFoundError:
        raise UsageError(f"run_dir={str(path)!r} holds no run with a batch_schedule: start one there.") from None


def _from(watch: Watch, done: int, total: int) -> Watch:
    """Progress of a stage as progress of the whole."""

    def of_the_whole(progress: Progress) -> None:
        watch(dataclasses.replace(progress, env_steps=done + progress.env_steps, total_steps=total))

    return of_the_whole


def _counted_from(path: Path, begins: Begin) -> list[str]:
    """The lines of a stage's metrics in the count of the whole run; the first two columns are iteration and steps."""
    if not path.is_file():
        return []
    header, *lines = path.read_text().splitlines(keepends=True)
    cells = [line.split(",", 2) for line in lines]
    return [header, *(f"{int(i) + begins.iteration},{int(s) + begins.env_steps},{rest}" for i, s, rest in cells)]
