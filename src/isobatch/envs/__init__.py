"""Environments by id: those of gymnax and probes, written in JAX; those of Gymnasium and EnvPool, which are not.

`gymnasium/CartPole-v1` and `envpool/CartPole-v1` name the backend. Without one gymnax comes first, then Gymnasium;
`module:Id` is Gymnasium's, and imports the module that registers it.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from isobatch.envs.gymnax_backend import BROKEN, IN_GYMNAX_TOO, GymnaxEnvironment, gymnax_ids
from isobatch.envs.interface import Environment, Settings
from isobatch.envs.probes import PROBES
from isobatch.envs.spaces import Box
from isobatch.errors import UsageError, near_matches
from isobatch.settings.config import Config

if TYPE_CHECKING:
    from isobatch.envs.host_interface import HostEnvironment


USUAL = Settings()
TRAINING_ONLY = ("episodic_life", "reward_clip")  # EnvPool's Atari: a lost life ends an episode, rewards are signs


def env_ids() -> list[str]:
    """Every id of an environment written in JAX."""
    return [*gymnax_ids(), *PROBES]


def host_ids() -> list[str]:
    """Every id of the other backends, as far as they are installed."""
    from isobatch.envs.envpool_backend import envpool_ids
    from isobatch.envs.gymnasium_backend import gymnasium_ids

    return [f"gymnasium/{i}" for i in gymnasium_ids()] + [f"envpool/{i}" for i in envpool_ids()]


def env_of(config: Config) -> Any:
    """The environment that a config names: `Environment` or `HostEnvironment`."""
    settings = Settings(config.env_kwargs, config.vectorization, config.autoreset, config.rescale_actions)
    return make_env(config.env, settings)


def as_played(config: Config) -> Config:
    """With the environment's own episodes and rewards, where training had others: what an evaluation plays."""
    kwargs = json.loads(config.env_kwargs)
    kept = {name: value for name, value in kwargs.items() if name not in TRAINING_ONLY}
    return config.replace(env_kwargs=kept) if config.env.startswith("envpool/") and kept != kwargs else config


def steps_outside(env_id: str) -> bool:
    """Whether an id is one of Gymnasium or EnvPool; found out without gymnax, whose import starts JAX's backend."""
    from isobatch.envs.gymnasium_backend import is_registered

    named = env_id.startswith(("gymnasium/", "envpool/")) or ":" in env_id
    return named or (is_registered(env_id) and env_id not in IN_GYMNAX_TOO)


def is_host(env: Any) -> bool:
    return hasattr(env, "open")


@cache
def make_env(env_id: str, settings: Settings = USUAL) -> Any:
    """The environment of this id: one object per id and settings, so that compiled programs are shared."""
    backend, _, name = env_id.partition("/")
    if backend == "envpool":
        return envpool_env(name, settings)
    if not steps_outside(env_id) and (env_id in PROBES or env_id in gymnax_ids()):
        return jax_env(env_id, settings)
    if env_id in BROKEN:
        raise UsageError(f"env={env_id!r} is not available: {BROKEN[env_id]}; use another id from `isobatch envs`.")
    return gymnasium_env(name if backend == "gymnasium" else env_id, env_id, settings)


def jax_env(env_id: str, settings: Settings) -> Environment:
    host_only = {
        "env_kwargs": settings.kwargs,
        "vectorization": settings.vectorization,
        "autoreset": settings.autoreset,
    }
    for (name, value), usual in zip(host_only.items(), USUAL, strict=False):
        if value != usual:
            raise UsageError(
                f"{name}={value!r} is not for {env_id}, which is written in JAX: drop it, or use gymnasium/."
            )
    env = PROBES[env_id] if env_id in PROBES else GymnaxEnvironment(env_id)
    if not settings.rescale_actions or not isinstance(env.action_space, Box):
        return env
    space = dataclasses.replace(env.action_space, rescaled=True)
    if isinstance(env, GymnaxEnvironment):
        env = copy.copy(env)
        env.action_space = space
        return env
    return dataclasses.replace(env, action_space=space)


def gymnasium_env(name: str, env_id: str, settings: Settings) -> HostEnvironment:
    from isobatch.envs.gymnasium_backend import GymnasiumEnvironment, gymnasium_ids, is_registered

    module, colon, _ = name.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"env={env_id!r} names a module that cannot be imported: {error}.") from None
    elif not is_registered(name) and name.startswith("ALE/"):
        raise UsageError(
            f"env={env_id!r} is an Atari game of the package ale-py: pip install ale-py, and use env='ale_py:{name}', "
            f"or env='envpool/{name.removeprefix('ALE/')}'."
        )
    elif not is_registered(name):
        known = host_ids() if name != env_id else [*env_ids(), *gymnasium_ids(), *host_ids()]
        close = near_matches(env_id, known)
        raise UsageError(f"env={env_id!r} is unknown{close or '; `isobatch envs` lists the ids.'}")
    return GymnasiumEnvironment(name, settings)


def envpool_env(name: str, settings: Settings) -> HostEnvironment:
    from isobatch.envs.envpool_backend import EnvPoolEnvironment

    if (settings.vectorization, settings.autoreset) != (USUAL.vectorization, USUAL.autoreset):
        raise UsageError("vectorization and autoreset are for Gymnasium; EnvPool has its own: leave them out.")
    return EnvPoolEnvironment(name, settings)
