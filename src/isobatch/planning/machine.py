"""What this machine takes: the few measurements that a plan is made from, and how it says so."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError
from isobatch.executors.cores import available_cores
from isobatch.formatting import counted
from isobatch.learning.state import initial_state
from isobatch.planning.devices import Link, measured_link
from isobatch.planning.moves import Shape, moved, shape_of
from isobatch.planning.samples import Need
from isobatch.planning.seconds import Seconds
from isobatch.planning.timing import Timed, time_collecting, time_iteration
from isobatch.settings.config import Config
from isobatch.training.memory import check_run_memory
from isobatch.training.scaling import seconds_per_sum
from isobatch.training.sharding import layout_for

FACTORS = (1.0, 1 / 4, 4.0, 16.0)  # of the run's optimization batch, and of its environments, that are measured
LONGEST_ITERATION = 5.0  # seconds: what would take longer is not measured
Watch = Callable[[str, float], None]
Say = Callable[[str], None]


@dataclass
class Machine:
    """Measures iterations of a run at other shapes, and remembers them."""

    config: Config
    """The run's, without the measurements that it made of itself."""
    need: Need
    num_seeds: int = 1
    watch: Watch = lambda what, done: None
    collecting: dict[float, float] = field(default_factory=dict)
    whole: list[Timed] = field(default_factory=list)

    @property
    def seconds(self) -> Seconds:
        return Seconds.of(self.collecting, self.whole)

    def survey(self, say: Say) -> None:
        """Measure the run's own iterations, then those of smaller and larger batches, and collecting."""
        shapes = [shape for factor in FACTORS if (shape := at_batch(self.config, factor)) is not None]
        envs = [n for factor in FACTORS if (n := int(factor * self.config.num_envs)) >= 1]
        if self.outside:  # whose programs collect apart
            shapes += [shape for factor in FACTORS if (shape := at_envs(self.config, factor)) is not None]
            envs = []
        current, *others = dict.fromkeys(shapes)
        programs = 1 + len(others) + len(envs)
        say(f"measuring what iterations take here: {programs} programs to compile and to time.")
        first = self.time(current, 0.0)
        cost = len(others) * (first.compile_seconds + 2) + len(envs) * (first.compile_seconds / 2 + 1)
        say(f"the run's own takes {1e3 * first.seconds:.3g} ms; the others will take about {max(cost, 1):.0f} seconds.")
        for place, num_envs in enumerate(envs):
            self.watch(f"collecting from {num_envs} environments", (1 + place) / programs)
            self.collecting[num_envs] = time_collecting(self.config, num_envs) * self.num_seeds
        for place, shape in enumerate(others):
            longer = shape.iteration_batch / current.iteration_batch
            if first.seconds * longer <= LONGEST_ITERATION and self.fits(shape):
                self.time(shape, (1 + len(envs) + place) / programs)

    @property
    def outside(self) -> bool:
        """Whether environments step outside JAX."""
        return isinstance(environment_of(self.config), HostEnvironment)

    def time(self, shape: Shape, done: float = 1.0) -> Timed:
        """A whole iteration of a shape."""
        there = next((t for t in self.whole if t.sizes == shape.sizes), None)
        if there is not None:
            return there
        self.watch(f"iterations of {shape.name} in {counted(shape.num_minibatches, 'minibatch')}", done)
        timed = time_iteration(self.moved(dataclasses.replace(shape, lag=0)), self.num_seeds)
        self.whole.append(timed)
        if timed.collecting is not None:
            known = self.collecting.get(timed.num_envs, np.inf)
            self.collecting[timed.num_envs] = min(known, timed.collecting)
        return timed

    def moved(self, shape: Shape) -> Config:
        """The settings of a shape, trained as long as the run in units of what the score needs."""
        ratio = self.need.ratio(shape.optimization_batch, shape.delay)
        return moved(self.config, shape, self.config.env_steps * ratio)

    def fits(self, shape: Shape) -> bool:
        """Whether its settings can be had, and its rollouts fit into memory."""
        try:
            config = self.moved(shape)
            check_run_memory(config, environment_of(config), self.num_seeds)
        except UsageError:
            return False
        return True

    @property
    def devices(self) -> int:
        """That can share a run here."""
        return 1 if self.outside else jax.local_device_count()

    @property
    def parameters(self) -> int:
        env = environment_of(self.config)
        networks = jax.eval_shape(lambda: initial_state(self.config, env, 0).networks)
        return sum(leaf.size for leaf in jax.tree.leaves(networks))

    def link(self) -> Link | None:
        """Between two devices of this machine, measured; None where there is one."""
        if self.devices < 2:
            return None
        layout = layout_for(2, 1, 2)
        assert layout is not None
        kind = jax.devices()[0].platform.upper()
        small, large = (seconds_per_sum(layout, size) for size in (1, self.parameters))
        return measured_link(f"two {kind} devices of this machine, measured", small, large, self.parameters)


def busy_remark() -> str:
    """What to say where other programs wanted the cores in the last minute; nothing on a quiet machine."""
    waiting, cores = os.getloadavg()[0], len(available_cores())
    if waiting < cores + 1:
        return ""
    return (
        f"the machine was busy while iterations were timed ({waiting:.1f} programs at a time wanted its "
        f"{counted(cores, 'core')}): plan again when it is quiet."
    )


def at_batch(config: Config, factor: float) -> Shape | None:
    """The cheapest shape with so many times the run's optimization batch: fewer minibatches first, then more
    environments; None where that is not whole."""
    current = shape_of(config)
    batch = float(current.optimization_batch * factor)
    count = current.iteration_batch / batch
    if count >= 1:
        return (
            Shape(current.num_envs, current.num_steps, int(count))
            if count.is_integer() and batch.is_integer()
            else None
        )
    envs = current.num_envs / count
    return Shape(int(envs), current.num_steps, 1) if envs.is_integer() else None


def at_envs(config: Config, factor: float) -> Shape | None:
    """So many times the environments, both batches as they are, so for other steps; None where that is not whole."""
    current = shape_of(config)
    envs, steps = current.num_envs * factor, current.num_steps / factor
    whole = float(envs).is_integer() and float(steps).is_integer()
    return Shape(int(envs), int(steps), current.num_minibatches) if whole else None
