"""Which environments there are, found out without JAX and without making any of them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from isobatch.errors import UsageError, first_line, near_matches
from isobatch.files import replace_file

INSTALL = "make setup-envpool, or pip install 'isobatch[envpool]'"
BROKEN = {"MNISTBandit-bsuite": "it downloads the MNIST data set when it is made"}


class EnvironmentFacts(NamedTuple):
    """What an environment written in JAX looks like."""

    obs_shape: tuple[int, ...]
    actions: str
    max_steps: int


# Of gymnax 1.0.1, whose import takes seconds, and the probes; a test compares them with what is made of these ids.
GYMNAX = {
    "CartPole-v1": EnvironmentFacts((4,), "2 actions", 500),
    "Pendulum-v1": EnvironmentFacts((3,), "1 number in [-2, 2]", 200),
    "Acrobot-v1": EnvironmentFacts((6,), "3 actions", 500),
    "MountainCar-v0": EnvironmentFacts((2,), "3 actions", 200),
    "MountainCarContinuous-v0": EnvironmentFacts((2,), "1 number in [-1, 1]", 999),
    "Asterix-MinAtar": EnvironmentFacts((10, 10, 4), "5 actions", 1000),
    "Breakout-MinAtar": EnvironmentFacts((10, 10, 4), "3 actions", 1000),
    "Freeway-MinAtar": EnvironmentFacts((10, 10, 7), "3 actions", 2500),
    "Seaquest-MinAtar": EnvironmentFacts((10, 10, 10), "6 actions", 1000),
    "SpaceInvaders-MinAtar": EnvironmentFacts((10, 10, 6), "4 actions", 1000),
    "Catch-bsuite": EnvironmentFacts((10, 5), "3 actions", 1000),
    "DeepSea-bsuite": EnvironmentFacts((8, 8), "2 actions", 8),
    "MemoryChain-bsuite": EnvironmentFacts((3,), "2 actions", 1000),
    "UmbrellaChain-bsuite": EnvironmentFacts((3,), "2 actions", 100),
    "DiscountingChain-bsuite": EnvironmentFacts((2,), "5 actions", 100),
    "SimpleBandit-bsuite": EnvironmentFacts((1, 1), "11 actions", 100),
    "FourRooms-misc": EnvironmentFacts((4,), "4 actions", 500),
    "MetaMaze-misc": EnvironmentFacts((15,), "4 actions", 200),
    "PointRobot-misc": EnvironmentFacts((6,), "2 numbers in [-0.1, 0.1]", 100),
    "BernoulliBandit-misc": EnvironmentFacts((4,), "2 actions", 100),
    "GaussianBandit-misc": EnvironmentFacts((4,), "2 actions", 100),
    "Reacher-misc": EnvironmentFacts((8,), "2 numbers in [-1, 1]", 100),
    "Swimmer-misc": EnvironmentFacts((16,), "2 numbers in [-1, 1]", 500),
    "Pong-misc": EnvironmentFacts((30, 40, 3), "3 actions", 1000),
    "FrozenLake-misc": EnvironmentFacts((16,), "4 actions", 100),
}
PROBES = {
    "Probe-Constant": EnvironmentFacts((1,), "2 actions", 1),
    "Probe-Observation": EnvironmentFacts((1,), "2 actions", 1),
    "Probe-Delay": EnvironmentFacts((1,), "2 actions", 2),
    "Probe-Action": EnvironmentFacts((1,), "2 actions", 1),
    "Probe-ActionObserved": EnvironmentFacts((1,), "2 actions", 1),
    "Probe-Truncation": EnvironmentFacts((1,), "2 actions", 5),
    "Probe-Target": EnvironmentFacts((1,), "1 number in [-1, 1]", 1),
}
IN_JAX = GYMNAX | PROBES


def gymnasium_limits() -> dict[str, int]:
    """Ids of Gymnasium's registry, the newest version of each name, with their time limits; 0 without one."""
    import gymnasium

    specs = [spec for spec in gymnasium.registry.values() if spec.entry_point is not None]
    newest = {(spec.namespace, spec.name): spec for spec in sorted(specs, key=lambda spec: spec.version or 0)}
    return {spec.id: spec.max_episode_steps or 0 for spec in sorted(newest.values(), key=lambda spec: spec.id)}


def gymnasium_ids() -> list[str]:
    return list(gymnasium_limits())


def is_installed() -> bool:
    """Whether EnvPool is."""
    return importlib.util.find_spec("envpool") is not None


@cache
def envpool_ids() -> list[str]:
    """Ids that EnvPool knows, none if it is not installed; kept on disk, since its import takes more than a second."""
    if not is_installed():
        return []
    from importlib.metadata import version

    kept = _cache_directory() / f"envpool-{version('envpool')}.json"
    try:
        ids = json.loads(kept.read_text(encoding="utf-8"))
        if isinstance(ids, list) and ids and all(isinstance(env_id, str) for env_id in ids):
            return ids
    except (OSError, ValueError):
        pass
    ids = sorted(import_envpool().list_all_envs())
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, json.dumps(ids))
    except OSError:
        pass  # it is asked again next time
    return ids


def import_envpool() -> ModuleType:
    if not is_installed():
        raise UsageError(f"backend 'envpool' is not installed: {INSTALL}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import envpool
    except ImportError as error:
        raise missing_library(error) from None
    return envpool


def missing_library(error: BaseException) -> UsageError:
    """A system library that EnvPool's environments need: which one, and how to get it."""
    text = first_line(error)
    if "Qt" in text:
        return UsageError(f"EnvPool's Procgen needs Qt ({text}): apt-get install libqt5gui5, or make setup-envpool.")
    return UsageError(f"EnvPool cannot be loaded ({text}): install what it misses, or {INSTALL}.")


def check_env_id(env_id: str) -> None:
    """Raise unless there is such an environment, or a module, not imported yet, that may register it."""
    registry = sys.modules.get("isobatch.envs.registry")  # without which nobody can have registered one
    if env_id in IN_JAX or ":" in env_id or (registry is not None and registry.registered_env(env_id) is not None):
        return
    backend, slash, name = env_id.partition("/")
    if slash and backend == "envpool":
        if is_installed() and name not in envpool_ids():
            raise unknown_env(env_id)
        return
    import gymnasium

    name = env_id.removeprefix("gymnasium/")
    if name not in gymnasium.registry and not name.startswith("ALE/"):
        raise unknown_env(env_id)


def module_of(env_id: str) -> str:
    """The module that `module:Id` imports; nothing for other ids."""
    return env_id.removeprefix("gymnasium/").rpartition(":")[0]


def unknown_env(env_id: str) -> UsageError:
    """The complaint about an id that nobody knows."""
    if env_id in BROKEN:
        return UsageError(f"env={env_id!r} is not available: {BROKEN[env_id]}; use another id from `isobatch envs`.")
    known = {
        "gymnasium": [f"gymnasium/{name}" for name in gymnasium_ids()],
        "envpool": [f"envpool/{name}" for name in envpool_ids()],
    }.get(env_id.partition("/")[0])
    if known is None:
        known = [*IN_JAX, *gymnasium_ids(), *(f"envpool/{name}" for name in envpool_ids())]
    close = near_matches(env_id, known) or "; `isobatch envs` lists the ids."
    return UsageError(f"env={env_id!r} is unknown{close} (One of your own: isobatch.register_env it first.)")


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isobatch"
