"""Which batch reaches a run's score soonest on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from isobatch.advice.monitors import affordable_lag
from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError, check_keywords
from isobatch.formatting import counted
from isobatch.planning.biases import Biases
from isobatch.planning.critical_batches import stages_of
from isobatch.planning.devices import ACCELERATORS, Link
from isobatch.planning.forecast import Forecast, Forecaster, choose, grid
from isobatch.planning.machine import Machine, busy_remark
from isobatch.planning.moves import Shape, shape_of, what_speaks_against
from isobatch.planning.planned import DevicesRow, Plan
from isobatch.planning.samples import Need, log_spread
from isobatch.planning.scores import Reached, reached
from isobatch.rescaling.cautions import FEW_ITERATIONS
from isobatch.settings.config import Config
from isobatch.statistics.bootstrap import LEAST_FOR_INTERVAL
from isobatch.training.devices import use_cores
from isobatch.training.memory import check_run_memory
from isobatch.training.run_directory import RunDirectory

TIE = 0.05  # of the time to the score: what is nearer to the run's own wins within it
CONFIRMED = 3  # shapes that are measured because they seem the fastest, at most
FASTEST, SHOWN = 5, 12  # rows of the table: the fastest, and all
MOST_DEVICES = 8
NEAR_FASTEST = 0.2  # of the time, for how sure the recommendation is
NOT_TO_BE_HAD = "their settings cannot be had, or need too much memory"
Watch = Callable[[str, float], None]
Say = Callable[[str], None]


@check_keywords
def plan(
    run_dir: str | Path,
    score: float | None = None,
    critical_batch: float | None = None,
    num_seeds: int = 1,
    watch: Watch = lambda what, done: None,
    say: Say = lambda sentence: None,
) -> Plan:
    """Predict the time to a run's score at other N x T, minibatches and devices: what `isobatch plan` does.

    Samples follow the law of McCandlish et al. (2018), https://arxiv.org/abs/1812.06162, stage by stage, with a
    number of iterations beside it: S = S_min (1 + B/B_crit) + I N T. Seconds are measured on this machine at a few
    sizes, and straight lines between them. The settings at other sizes are those of `rescale`. `docs/planning.md` says
    what agrees with training and what does not.

    Args:
        run_dir: directory of a run that has learned something.
        score: a return that the run reached; by default its own final one.
        critical_batch: if it is known; by default the run's noise scale, else measured on its checkpoints.
        num_seeds: seeds that are trained at once.
        watch: is told what is measured and the part of everything that is done.
        say: gets sentences meant for a person.

    Returns:
        The recommended settings, with reasons, uncertainty and what was compared.

    Example:
        >>> import isobatch as ib, tempfile
        >>> run_dir = tempfile.mkdtemp() + "/run"
        >>> sizes = dict(num_envs=4, num_steps=8, num_minibatches=2, hidden_sizes=(8,), total_timesteps=4096)
        >>> config = ib.preset("ppo", "Probe-Action", noise_scale=True, learning_rate=0.01, **sizes)
        >>> result = ib.train(config, run_dir=run_dir, num_seeds=2)
        >>> plan = ib.plan(run_dir, score=0.8)
        >>> plan.current.shape.name, plan.speedup.value > 0.9
        ('4 x 8', True)
    """
    directory = RunDirectory.open(Path(run_dir))
    config, table = directory.config, directory.metrics()
    if num_seeds < 1:
        raise UsageError(f"num_seeds={num_seeds} must be at least 1.")
    use_cores(num_seeds, config)
    planned = config.replace(noise_scale=False)  # what was measured for the plan is not measured again
    check_run_memory(planned, environment_of(planned), num_seeds)
    env_steps = int(table["env_steps"].max())
    goal = reached(table, env_steps, score)
    stages = stages_of(directory.path, table, goal.median.value, critical_batch, watch)
    current = shape_of(config)
    need = Need(stages, current.optimization_batch, current.delay)
    machine = Machine(planned, need, num_seeds, watch)
    machine.survey(say)
    here = machine.link()
    forecaster = Forecaster(need, machine.seconds, here or ACCELERATORS, machine.parameters, log_spread(goal.median))
    judge = Judge(config, machine, Biases.of_run(directory, config), need)
    shapes = {*grid(current, 1, current.lag), current}
    best, forecaster = confirmed(shapes, current, judge, forecaster)
    forecasts = {shape: forecaster.quick(shape) for shape in shapes}
    rows = [forecaster.at(shape) for shape in shown(forecasts, best, current, judge)]
    after, busy = machine.moved(best), busy_remark()
    lag_remark = affordable_lag(table, config).text
    outside = isinstance(environment_of(config), HostEnvironment)
    lagged = forecaster.at(dataclasses.replace(best, lag=1)) if outside and not best.lag else None
    near = [each.shape for each in rows if judge.accepts(each.shape)]
    return Plan(
        run=config,
        reached=goal,
        current=forecaster.at(current),
        recommended=forecaster.at(best),
        config=after,
        rows=tuple(rows),
        unfit=frozenset(each.shape for each in rows if not judge.accepts(each.shape)),
        forecaster=forecaster,
        chance=forecaster.chance(best, near, NEAR_FASTEST),
        near=NEAR_FASTEST,
        tie=TIE,
        devices=tuple(on_devices(forecaster, forecasts[best], current, judge, here)),
        lagged=lagged,
        lag_remark=f"{lag_remark[0].upper()}{lag_remark[1:]}",
        cautions=(
            *([busy] if busy else []),
            *few_seeds_remark(goal),
            *judge.biases.cautions(best.num_steps),
            *what_speaks_against(planned, after, need),
        ),
        left_out=tuple(judge.reasons(forecasts.values(), forecasts[best])),
        num_seeds=num_seeds,
    )


@dataclasses.dataclass(frozen=True)
class Judge:
    """Which shapes may be recommended."""

    config: Config
    machine: Machine
    biases: Biases
    need: Need

    def trouble(self, shape: Shape) -> str:
        """Why not, in a few words, or nothing; the run's own is always one."""
        if shape == shape_of(self.config):
            return ""
        if self.machine.seconds.origin(shape) == "extrapolated":
            return "their seconds would be extrapolated"
        steps = self.config.env_steps * self.need.ratio(shape.optimization_batch, shape.delay)
        iterations = min(FEW_ITERATIONS, self.config.num_iterations)
        if steps / shape.iteration_batch < iterations:
            return f"they leave fewer than {iterations} iterations of a run"
        if shape.optimization_batch > max(self.need.batch, self.need.smallest_critical):
            return "their batches are beyond the critical batch size, where the rule for the learning rate ends"
        if self.biases.is_too_short(shape.num_steps):
            return "their rollouts are so short that bias is likely"
        return ""

    def accepts(self, shape: Shape) -> bool:
        return not self.trouble(shape) and (shape == shape_of(self.config) or self.machine.fits(shape))

    def reasons(self, forecasts: Iterable[Forecast], best: Forecast) -> list[str]:
        """How many shapes seem faster than the recommended one, by what keeps them from being it."""
        counts: dict[str, list[Forecast]] = {}
        for each in forecasts:
            if each.seconds.value * (1 + TIE) < best.seconds.value:
                counts.setdefault(self.trouble(each.shape) or NOT_TO_BE_HAD, []).append(each)
        sentences = []
        for trouble, ones in counts.items():
            fastest = min(ones, key=lambda each: each.seconds.value)
            gain = best.seconds.value / fastest.seconds.value
            sentences.append(
                f"{counted(len(ones), 'shape')} that would be faster, up to {gain:.2g} times ({fastest.shape.name} in "
                f"{fastest.shape.num_minibatches}): {trouble}."
            )
        return sentences


def confirmed(
    shapes: Iterable[Shape], current: Shape, judge: Judge, forecaster: Forecaster
) -> tuple[Shape, Forecaster]:
    """The shape that is fastest by a measurement of its own iterations: what seems so is measured, a few times."""
    shapes, measured = list(shapes), 0
    while True:
        best = choose((forecaster.quick(shape) for shape in shapes), current, judge.accepts, TIE)
        assert best is not None, "the run's own shape is one of them"
        if best.origin == "measured" or measured == CONFIRMED:
            return best.shape, forecaster
        judge.machine.time(best.shape)
        measured += 1
        forecaster = dataclasses.replace(forecaster, seconds=judge.machine.seconds)


def few_seeds_remark(goal: Reached) -> list[str]:
    """Where nothing is known of how seeds differ."""
    if len(goal.steps) >= LEAST_FOR_INTERVAL:
        return []
    return [
        f"the run has {counted(len(goal.steps), 'seed')}, so how long others take to the score is not known, and the "
        f"intervals leave it out: train with --num-seeds {LEAST_FOR_INTERVAL} or more."
    ]


def shown(forecasts: dict[Shape, Forecast], best: Shape, current: Shape, judge: Judge) -> list[Shape]:
    """The run's own, the recommended one and its neighbors, and the fastest; fastest first."""
    ordered = sorted(forecasts.values(), key=lambda each: each.seconds.value)
    fastest: list[Shape] = []
    for each in ordered:
        if len(fastest) == FASTEST:
            break
        if judge.accepts(each.shape):
            fastest.append(each.shape)
    neighbors = [shape for shape in forecasts if shape.doublings(best) == 1]
    measured = [each.shape for each in ordered if each.origin == "measured"]
    chosen = list(dict.fromkeys([current, best, *fastest, *neighbors, *measured]))[:SHOWN]
    return [each.shape for each in ordered if each.shape in chosen]


def on_devices(
    forecaster: Forecaster, best: Forecast, current: Shape, judge: Judge, here: Link | None
) -> Iterable[DevicesRow]:
    """The devices of this machine, and eight that are joined as those of a machine with accelerators are."""
    asked = {MOST_DEVICES: ACCELERATORS}
    if here is not None:
        asked = {2: here} | asked
    for devices, link in asked.items():
        linked = dataclasses.replace(forecaster, link=link)
        forecasts = (linked.quick(shape) for shape in grid(current, devices, current.lag, wider=3))
        same = linked.quick(dataclasses.replace(best.shape, devices=devices))
        fastest = choose(forecasts, current, lambda shape: not judge.trouble(shape), TIE) or same
        seconds = best.seconds.value
        yield DevicesRow(devices, link, fastest, seconds / fastest.seconds.value, seconds / same.seconds.value)
