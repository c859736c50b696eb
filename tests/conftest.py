"""Shared by all tests: shapes are checked at run time, and compiled programs are kept between runs."""

import os
from pathlib import Path

import jax
from jaxtyping import install_import_hook

CACHE = Path(__file__).parent.parent / ".jax_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))  # for the processes that tests start
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
jax.config.update("jax_num_cpu_devices", 2)

install_import_hook("isobatch", "beartype.beartype")
