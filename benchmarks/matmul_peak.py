"""The machine's peak: GFLOP/s of a large float32 matrix product through JAX, with all cores. Prints one JSON object."""

from __future__ import annotations

import json
import time

import jax
import jax.numpy as jnp

SIZE, PRODUCTS = 2048, 12


def main() -> None:
    a = jax.random.normal(jax.random.key(0), (SIZE, SIZE))
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    seconds = []
    for _ in range(PRODUCTS):
        begin = time.perf_counter()
        product(a, a).block_until_ready()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"gflops": 2 * SIZE**3 / min(seconds) / 1e9}))


if __name__ == "__main__":
    main()
