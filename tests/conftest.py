"""Shared by all tests: shapes are checked at run time, and programs compile quickly rather than run fast."""

import atexit
import ctypes
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Also for the processes that tests start. Most of the time of tests is compilation, of which these save much.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # nobody looks for lines of Python in programs

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's: workers would wait for each other's cores

os.environ["ISOBATCH_TRUSTED_MODULES"] = "host_envs,stubborn_envs,test_host_scenes"
# Workers and the processes that tests start inherit it: what one of them compiled, the others load.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["ISOBATCH_COMPILE_CACHE"] = tempfile.mkdtemp(prefix="isobatch-tests-")
    atexit.register(shutil.rmtree, os.environ["ISOBATCH_COMPILE_CACHE"], ignore_errors=True)
os.environ.setdefault("ISOBATCH_COMPILE_CACHE", "0")  # never the user's directory

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 2)

# The packages and modules that handle arrays, whose shapes are checked at run time. `settings` is not one: its floats
# become traced arrays inside a program.
CHECKED = (
    "networks rollouts.segment rollouts.jax_rollout rollouts.staleness learning envs.interface envs.spaces envs.probes "
    "envs.gymnax_backend training.compiled_program training.checkpoints policies laboratory.layers "
    "laboratory.per_sample laboratory.inner_products laboratory.projection"
)
install_import_hook([f"isobatch.{name}" for name in CHECKED.split()], "typecheck.check")

# The same examples in every run, and no deadline: the first example compiles.
settings.register_profile("isobatch", max_examples=30, deadline=None, derandomize=True, database=None)
settings.load_profile("isobatch")


@pytest.fixture(scope="session", autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules that tests import are not remembered in the home of whoever runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def kept_programs() -> None:
    """Small programs too are compiled once for all workers."""
    from isobatch.training.program_cache import keep_programs  # after the import hook above

    keep_programs()
    jax.monitoring.register_event_listener(lambda name, **_: NEW_PROGRAMS.append(name) if name == LOOKED_FOR else None)


# Groups of tests that take long: they come first, so that no worker is busy long after the other.
LONG_GROUPS = (
    "laboratory", "host laboratory", "trained", "hosts", "trainer", "studies", "actors", "tuning", "planning", "kill",
    "host failures", "test_probes", "test_public", "test_policy_phase", "test_gram", "test_tour", "test_examples",
    "test_custom_parts", "cli", "browser", "test_program_cache", "hypers",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a file run in one worker, where they share what is compiled, unless they belong to another group."""
    order = {name: place for place, name in enumerate(LONG_GROUPS)}

    def place(item: pytest.Item) -> int:
        name = group(item)
        item.add_marker(pytest.mark.xdist_group(name))
        return order.get(name, len(order))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Tracing makes millions of objects that live on: they are looked through less often, and all before them never."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="module")
def float64() -> Iterator[None]:
    """Formulas are compared with their oracles in double precision: a module asks for it with `usefixtures`."""
    with jax.enable_x64(True):
        yield


MAPPINGS, SIZES = Path("/proc/self/maps"), Path("/proc/self/statm")
MOST_MAPPINGS = 30_000  # of memory, by compiled programs; Linux allows a process 65,530, and beyond them XLA crashes
NEW_PROGRAMS: list[str] = []  # events, one for each since mappings were counted
LOOKED_FOR = "/jax/compilation_cache/compile_requests_use_cache"  # a program, which is then loaded or compiled
MOST_NEW = 200  # of them between two counts, which take 10 ms each: one has up to 40 mappings
MOST_RESIDENT = 1_500_000_000  # bytes; several workers share a machine, and one test takes up to 0.5 GB
MOST_FOR_THE_NEXT = 1_000_000_000  # of those that a group of tests leaves to another, which shares little with it


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Forget compiled programs, between two tests, when they take much memory; rather between two groups."""
    if nextitem is None or not SIZES.exists():
        return
    resident = int(SIZES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = MOST_RESIDENT if group(item) == group(nextitem) else MOST_FOR_THE_NEXT
    if resident > most or too_many_mappings():
        forget_programs()


def too_many_mappings() -> bool:
    if len(NEW_PROGRAMS) < MOST_NEW:
        return False
    NEW_PROGRAMS.clear()
    return MAPPINGS.read_bytes().count(b"\n") > MOST_MAPPINGS


def group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return item.path.stem if mark is None else mark.args[0]


def forget_programs() -> None:
    from isobatch.learning import state
    from isobatch.training import compiled_program, host_sharding

    for kept in (compiled_program._PROGRAMS, host_sharding._COMPILED, state._FIRST):
        kept.clear()
    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run directories by environment and settings; see `trained`."""
    from trained import make_runs  # after the import hook above

    return make_runs(tmp_path_factory.mktemp("trained"))
