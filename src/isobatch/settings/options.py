"""A run besides its config: seeds, logging, checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from isobatch.errors import UsageError
from isobatch.settings.config import Config, setting_fields
from isobatch.settings.fields import COUNT, COUNT_OR_0, POSITIVE, SEED, check_ranges, fields_of, parse_fields

LONGEST_EPISODE = 100_000  # steps after which an episode without a time limit is taken for one that never ends
NUM_SEEDS = replace(COUNT, high=100_000)  # each has a state of its own
MAX_LINES = 1000  # a run logs at most about so many lines a seed, each the mean over the iterations between


ActorKind = Literal["auto", "thread", "process", "ray"]


@dataclass(frozen=True)
class Options:
    seed: Annotated[int, SEED, "First seed; the last one may be up to 2^31 - 1 = 2147483647."] = 0
    num_seeds: Annotated[int, NUM_SEEDS, "Seeds trained at once: seed, seed + 1, ..."] = 1
    devices: Annotated[
        int,
        COUNT_OR_0,
        "Devices that share the environments of each seed; a new run is cut into as many shards, unless num_shards "
        "says how many. 0: what there is, for num_shards.",
    ] = 0
    log_interval: Annotated[
        int,
        COUNT_OR_0,
        "Iterations per line of metrics, which are their means; 0 chooses one that gives at most 1000 lines.",
    ] = 0
    checkpoint_interval: Annotated[int, COUNT_OR_0, "Iterations between checkpoints; 0 makes ten of them."] = 0
    keep_checkpoints: Annotated[int, COUNT, "How many of the newest checkpoints stay, besides the best one."] = 3
    actor_kind: Annotated[
        ActorKind,
        "Where actors run: thread, in this process; process, each in one of its own; ray, on a Ray cluster; auto: "
        "threads for images of EnvPool, else processes.",
    ] = "auto"
    address: Annotated[
        str | None, "actor_kind ray: HOST:PORT of the cluster; else that of RAY_ADDRESS, or one on this machine."
    ] = None
    replay: Annotated[
        str | None, "Repeat the run with actors in this directory: the same rollouts in the same order, bit for bit."
    ] = None
    eval_interval: Annotated[
        int,
        COUNT_OR_0,
        "Iterations between evaluations (whole episodes, most likely actions, kept in metrics.csv); 0: none.",
    ] = 0
    eval_threshold: Annotated[
        float | None, "Training return that a seed must have reached before it is evaluated; none: from the start."
    ] = None
    eval_episodes: Annotated[int, COUNT, "Episodes of an evaluation, for each seed."] = 20
    env_timeout: Annotated[
        float, POSITIVE, "Gymnasium and EnvPool: seconds that a step may take before the run is stopped."
    ] = 60.0
    tensorboard: Annotated[bool, "Also write TensorBoard event files into the run directory (extra: tensorboard)."] = (
        False
    )
    wandb_project: Annotated[str | None, "Also log to this project of Weights & Biases (extra: wandb)."] = None

    def __post_init__(self) -> None:
        check_ranges(self)
        SEED.check("seed + num_seeds - 1", self.seed + self.num_seeds - 1)
        if self.eval_threshold is not None and not math.isfinite(self.eval_threshold):
            raise UsageError(
                f"eval_threshold={self.eval_threshold} is no return: use a finite number, or leave it out."
            )
        for name in ("eval_threshold", "eval_episodes"):
            value = getattr(self, name)
            if not self.eval_interval and value != getattr(Options, name):
                raise UsageError(f"{name}={value:g} needs evaluations: add eval_interval, or leave it out.")

    @classmethod
    def from_keywords(cls, **options: object) -> Options:
        """Options by name, converted and checked as flags are, or a UsageError with the names that are near."""
        for name in options:
            if name in setting_fields():
                raise UsageError(
                    f"{name!r} is a setting of the config, not an option of a run: use config.replace({name}=...)."
                )
        return cls(**parse_fields(options, fields_of(Options), "option"))

    def check_actors(self, config: Config) -> None:
        """Raise where something is said about actors that this run does not have."""
        if self.actor_kind != "auto" and not config.lag_iterations:
            if config.actors:
                raise UsageError(
                    f"actor_kind={self.actor_kind!r} says where actors collect meanwhile, and with max_lag=0 they take "
                    f"turns with the learner in this process: use actors={config.actors} alone, or a larger max_lag."
                )
            raise UsageError(
                f"actor_kind={self.actor_kind!r} says where actors run, and this run has none that collect meanwhile: "
                "use actors=2 and a max_lag, or leave it out."
            )
        if self.address is not None and self.actor_kind != "ray":
            raise UsageError(f"address={self.address!r} is that of a Ray cluster: use actor_kind=ray, or leave it out.")

    def sharded(self, config: Config, processes: int = 1) -> Config:
        """A config for a new run on these devices: cut into as many shards, unless it says how many."""
        shards = max(self.devices, processes)
        return config.replace(num_shards=shards) if shards > 1 and config.num_shards == 1 else config

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.num_seeds))

    def line_iterations(self, num_iterations: int) -> int:
        """Iterations per line of metrics."""
        return self.log_interval or max(1, math.ceil(num_iterations / MAX_LINES))

    def checkpoint_iterations(self, num_iterations: int) -> int:
        """Iterations between checkpoints: whole lines, so that a resumed run logs the same ones."""
        return self._whole_lines(self.checkpoint_interval or math.ceil(num_iterations / 10), num_iterations)

    def eval_iterations(self, num_iterations: int) -> int:
        """Iterations between evaluations, whole lines too; 0 without any."""
        return self._whole_lines(self.eval_interval, num_iterations)

    def _whole_lines(self, iterations: int, num_iterations: int) -> int:
        line = self.line_iterations(num_iterations)
        return math.ceil(iterations / line) * line
