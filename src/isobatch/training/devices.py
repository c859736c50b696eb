"""How many devices JAX has, and how many threads, chosen before it starts."""

from __future__ import annotations

import os

import jax

from isobatch.envs.registry import host_environment_of
from isobatch.executors.cores import available_cores
from isobatch.settings.config import Config
from isobatch.settings.options import ActorKind

_chosen = False


def use_cores(
    num_seeds: int | None = None,
    config: Config | None = None,
    devices: int = 0,
    cores: int | None = None,
    actor_kind: ActorKind = "auto",
) -> None:
    """One XLA CPU device per core, or more where `devices` are asked for, if JAX has not started yet: seeds and shards
    are spread over them. The first call decides.

    A single seed gets a single thread. An operation on a small network takes some microseconds, and so does handing
    it to another thread: one thread was 6 to 10 % faster than two. PJRT_NPROC overrides it, for large networks.

    Where environments step outside JAX there is one device. Calls run in the thread that makes them, since a policy
    that acts for a few environments is faster than a change of threads; networks on images get all cores. Actors that
    are threads need one besides the learner's, or all of them would wait for each other.

    `cores` is how many there are on the machine whose bits are wanted, where that is not this one.
    """
    global _chosen
    if _chosen:
        return
    _chosen = True
    here = len(available_cores())
    cores = cores or here
    env = None if config is None else host_environment_of(config)
    devices = max(cores if env is None else 1, devices)
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        try:
            jax.config.update("jax_num_cpu_devices", devices)
        except RuntimeError:  # JAX has started, in a program of somebody else
            return
    if env is not None:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    if num_seeds == 1 if env is None else len(env.obs_shape) < 3:
        beside = config is not None and config.lag_iterations > 0 and actor_kind == "thread"
        os.environ.setdefault("PJRT_NPROC", "2" if beside else "1")
    if cores != here:
        os.environ.setdefault("PJRT_NPROC", str(cores))
