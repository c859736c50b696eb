"""EnvPool's CartPole-v1 with actions that nobody chose: no policy, no learning.

What `send` and `recv` from Python, all environments at once, leave to whoever trains with them. Other ways to drive a
pool (its asynchronous mode, its calls inside XLA) are not measured here.

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=262_144, help="environment steps to time")
    parser.add_argument("--num-envs", type=int, default=64)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # what it warns of when it makes its spaces
    import envpool

    begin = time.perf_counter()
    pool = envpool.make_gymnasium("CartPole-v1", num_envs=args.num_envs, seed=0)
    pool.reset()
    start_seconds = time.perf_counter() - begin
    actions = np.random.default_rng(0).integers(0, 2, (args.steps // args.num_envs, args.num_envs)).astype(np.int32)
    begin = time.perf_counter()
    for action in actions:
        pool.send(action)
        pool.recv()
    seconds = time.perf_counter() - begin
    print(
        json.dumps(
            {
                "library": "envpool",
                "version": envpool.__version__,
                "steps": actions.size,
                "seeds": 1,
                "seconds": seconds,
                "compile_seconds": start_seconds,
                "steps_per_second": actions.size / seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
