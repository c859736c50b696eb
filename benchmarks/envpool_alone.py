"""EnvPool's CartPole-v1 with actions that nobody chose: no policy, no learning.

One pool with EnvPool's own number of threads, stepped by its `xla()` inside one compiled loop: what it leaves to
whoever trains with it.

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

LENGTH = 128  # steps of a call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=262_144, help="environment steps to time")
    parser.add_argument("--num-envs", type=int, default=64)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # what it warns of when it makes its spaces
    import envpool

    pool = envpool.make_gymnasium("CartPole-v1", num_envs=args.num_envs, seed=0)
    pool.reset()
    handle, _, _, step = pool.xla()

    @jax.jit
    def steps(handle: Array, actions: Array) -> Any:
        return jax.lax.scan(lambda handle, action: (step(handle, action)[0], None), handle, actions)[0]

    shape = (LENGTH, args.num_envs)
    actions = np.random.default_rng(0).integers(0, 2, shape).astype(np.int32)
    begin = time.perf_counter()
    steps(handle, actions).block_until_ready()
    start_seconds = time.perf_counter() - begin
    count = max(1, args.steps // actions.size)
    begin = time.perf_counter()
    for _ in range(count):
        steps(handle, actions).block_until_ready()
    seconds = time.perf_counter() - begin
    print(
        json.dumps(
            {
                "library": "envpool",
                "version": envpool.__version__,
                "steps": count * actions.size,
                "seeds": 1,
                "seconds": seconds,
                "compile_seconds": start_seconds,
                "steps_per_second": count * actions.size / seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
