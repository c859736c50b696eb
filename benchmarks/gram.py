"""Inner products of per-sample gradients: the engine of the gradient laboratory against the plain way.

mlp   A policy of two layers of 256: milliseconds of `gram` and of vmapped gradients that are multiplied, side by side.
cnn   An IMPALA network (Espeholt 2018) on 64 x 64 x 3 pixels: seconds and the highest memory of a process of its own.

    python benchmarks/gram.py                            both, 1024 and 8192 samples
    python benchmarks/gram.py --only cnn --samples 256
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isobatch.envs.spaces import Discrete
from isobatch.laboratory.inner_products import compiled_gram, gram, plan
from isobatch.laboratory.per_sample import per_sample_gradients
from isobatch.learning.losses import policy_gradient
from isobatch.networks.actor_critic import Policy
from isobatch.networks.initialization import make_networks
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

ROUNDS = 7
SAMPLES = {"mlp": 1024, "cnn": 8192}
OBS, ACTIONS = {"mlp": (8,), "cnn": (64, 64, 3)}, {"mlp": 4, "cnn": 15}


def impala(obs_shape: tuple[int, ...], actions: int) -> Policy:
    config = preset("ppo", encoder="impala")
    return make_networks(config, obs_shape, Discrete(actions), seed=0).policy


def losses(policy: Any, samples: Any) -> Array:
    obs, action, advantage = samples
    return policy_gradient(policy(obs).log_prob(action), advantage)


def drawn(kind: str, count: int) -> tuple[Array, Array, Array]:
    """Observations, actions and advantages."""
    rng = np.random.default_rng(1)
    shape = (count, *OBS[kind])
    obs = rng.integers(256, size=shape, dtype=np.uint8) if kind == "cnn" else rng.standard_normal(shape, np.float32)
    action = rng.integers(ACTIONS[kind], size=count)
    return jnp.asarray(obs), jnp.asarray(action), jnp.asarray(rng.standard_normal(count, np.float32))


def parameters(network: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(network))


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def mlp(count: int) -> dict[str, Any]:
    """Medians of alternating rounds, after one that compiles; the ratio is the median of the rounds' own."""
    policy = make_networks(Config(hidden_sizes=(256, 256)), OBS["mlp"], Discrete(ACTIONS["mlp"]), seed=0).policy
    samples = drawn("mlp", count)

    @jax.jit
    def plain(policy: Any, samples: Any) -> Array:
        gradients = per_sample_gradients(losses, policy, samples, microbatch=count)
        return gradients @ gradients.T

    engine = compiled_gram(losses)
    ours, theirs = np.asarray(engine(policy, samples), np.float64), np.asarray(plain(policy, samples), np.float64)
    size = np.sqrt(np.diag(theirs))
    pairs = [(seconds(lambda: engine(policy, samples)), seconds(lambda: plain(policy, samples))) for _ in range(ROUNDS)]
    engine_s, plain_s = np.median(pairs, axis=0)
    return {
        "samples": count,
        "parameters": parameters(policy),
        "engine_ms": 1e3 * engine_s,
        "plain_ms": 1e3 * plain_s,
        "ratio": float(np.median([b / a for a, b in pairs])),
        "max_relative_difference": float(np.max(np.abs(ours - theirs) / np.outer(size, size))),
    }


def cnn(count: int) -> dict[str, Any]:
    """Of one call, as a user would make it: with its compilation."""
    network, samples = impala(OBS["cnn"], ACTIONS["cnn"]), drawn("cnn", count)
    made = plan(losses, network, samples)
    before = peak_bytes()
    took = seconds(lambda: gram(losses, network, samples))
    return {
        "samples": count,
        "parameters": parameters(network),
        "backward_passes": len(made.groups),
        "microbatch": made.microbatch,
        "seconds": took,
        "peak_before_gb": before / 1e9,
        "peak_gb": peak_bytes() / 1e9,
        "predicted_gb": made.bytes(count) / 1e9,
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_own_process(kind: str, count: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--only", kind, "--samples", str(count), "--here"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(SAMPLES), help="one of the two")
    parser.add_argument("--samples", type=int, help="instead of 1024 and 8192")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    kinds = [flags.only] if flags.only else ["mlp", "cnn"]
    if flags.here:
        print(json.dumps({"mlp": mlp, "cnn": cnn}[kinds[0]](flags.samples)))
        return
    results: dict[str, Any] = {kind: in_own_process(kind, flags.samples or SAMPLES[kind]) for kind in kinds}
    results["machine"] = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    if flags.json:
        print(json.dumps(results, indent=2))
        return
    for kind, figures in results.items():
        print(kind, *(f"  {name:24s}{value:,.4g}" for name, value in figures.items()), sep="\n")


if __name__ == "__main__":
    main()
