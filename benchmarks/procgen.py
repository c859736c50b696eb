"""isobatch's side of the Procgen benchmark: PPO with the IMPALA network on images of EnvPool, and where its time goes.

64 envs x 64 steps, 8 minibatches, 1 epoch, one torso for policy and value, Adam: the work of
benchmarks/peers/torch_procgen.py. Time is what the program waits for: environments that step while the policy acts for
the other half cost nothing. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from collections.abc import Callable
from typing import Any

import jax

import isobatch
from isobatch.rollouts.env_groups import EnvGroup
from isobatch.training.devices import use_cores
from isobatch.training.program import Supervision
from isobatch.training.programs import initial_states, program_for, stack_hypers


class Stopwatch:
    """Seconds spent in some functions, by a name for each kind of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def on(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            begin = time.perf_counter()
            try:
                return jax.block_until_ready(function(*args))
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="StarpilotEasy-v0")
    parser.add_argument("--iterations", type=int, default=2, help="iterations to time, after one to warm up")
    args = parser.parse_args()
    config = isobatch.preset(
        "procgen-ppo",
        env=f"envpool/{args.env}",
        num_envs=64,
        num_steps=64,
        update_epochs=1,
        total_timesteps=64 * 64 * (args.iterations + 1),
    )
    use_cores(1, config)
    states = initial_states(config, [0])
    hypers = stack_hypers([config.hypers] * states.iteration.shape[0])
    begin = time.perf_counter()
    program: Any = program_for(config, states, hypers, 1)
    compile_seconds = time.perf_counter() - begin
    watch = Stopwatch()
    for owner, name, kind in (
        (EnvGroup, "send", "environment"),
        (EnvGroup, "receive", "environment"),
        (program.parts, "act", "inference"),
        (program.parts, "value", "inference"),
        (program.parts, "finish", "inference"),
        (program.parts, "learn", "update"),
    ):
        setattr(owner, name, watch.on(kind, getattr(owner, name)))
    states = program.begin(states, 0, Supervision(lambda sentence: None, 60.0))
    chunk = program(states, hypers, 0, 1)  # warm-up
    watch.seconds.clear()
    begin = time.perf_counter()
    program(chunk.states, hypers, 1, args.iterations)
    seconds = time.perf_counter() - begin
    program.end()
    steps = args.iterations * config.geometry.iteration_batch
    print(
        json.dumps(
            {
                "library": "isobatch",
                "version": importlib.metadata.version("isobatch"),
                "steps": steps,
                "seeds": 1,
                "seconds": seconds,
                "compile_seconds": compile_seconds,
                "steps_per_second": steps / seconds,
                "shares": {name: taken / seconds for name, taken in watch.seconds.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
