"""Shared by all tests: shapes are checked at run time, and programs compile quickly rather than run fast."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # also for the processes that tests start

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 2)

# The rooms that handle arrays. `config` is not one: its floats become traced arrays inside a program.
ROOMS = (
    "losses advantages moments proximal aggregation minibatches distributions networks optimizers rollout staleness "
    "state algorithms envs program evaluation checkpoints"
)
install_import_hook([f"isobatch.{room}" for room in ROOMS.split()], "typecheck.check")
