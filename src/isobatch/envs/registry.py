"""Environments by id: those of gymnax and probes, written in JAX; those of Gymnasium and EnvPool; and a user's own.

`gymnasium/CartPole-v1` and `envpool/CartPole-v1` name the backend. Without one gymnax comes first, then Gymnasium;
`module:Id` is Gymnasium's, and imports the module that registers it. `register_env` adds environments of any kind.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import gymnasium

from isobatch.envs.catalog import GYMNAX, unknown_env
from isobatch.envs.host_interface import AnyEnvironment, HostEnvironment
from isobatch.envs.interface import Environment, Settings
from isobatch.envs.spaces import Box
from isobatch.envs.trust import remember
from isobatch.errors import UsageError, first_line
from isobatch.settings.config import Config

USUAL = Settings()
TRAINING_ONLY = ("episodic_life", "reward_clip")  # EnvPool's Atari: a lost life ends an episode, rewards are signs
# Ids of Gymnasium that gymnax has as well, so that they mean gymnax's unless a backend is named.
IN_GYMNAX_TOO = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")

Constructor = Callable[..., gymnasium.Env]


class Registered(NamedTuple):
    """A user's own environment: one written in JAX, or how one of Gymnasium is made."""

    given: object  # to `register_env`
    env: Environment | None = None
    constructor: Constructor | None = None


_REGISTERED: dict[str, Registered] = {}


def environment_of(config: Config) -> AnyEnvironment:
    """The environment that a config names, one object per id and settings, so that compiled programs are shared.

    The one place that decides whether it steps inside a compiled program or outside: `HostEnvironment` is outside.
    """
    settings = Settings(config.env_kwargs, config.vectorization, config.autoreset, config.rescale_actions)
    return make_env(config.env, settings)


def host_environment_of(config: Config) -> HostEnvironment | None:
    """The environment if it steps outside JAX; found out without those of gymnax, whose import starts JAX's backend."""
    if not _is_host_id(config.env):
        return None
    env = environment_of(config)
    assert isinstance(env, HostEnvironment)
    return env


def register_env(name: str, env: Environment | gymnasium.Env | Constructor) -> str:
    """Let `name` stand for an environment of one's own, wherever an id is asked for in this process; returns the name.

    Args:
        name: a word without / and :, which name a backend or a module. It is what `config.yaml` keeps: whoever resumes
            or loads a run registers the same environment first.
        env: an object of a class derived from `JaxEnvironment`, or of gymnax; an object of Gymnasium, of which copies
            are made; or a function or class that makes one of Gymnasium, with `env_kwargs` as its arguments.

    Returns:
        The name, for `Config.replace(env=...)` and `preset(algo, env)`.

    Example:
        >>> import gymnasium, isobatch as ib
        >>> name = ib.register_env("ShortCartPole", lambda: gymnasium.make("CartPole-v1", max_episode_steps=50))
        >>> ib.preset("ppo", name).env
        'ShortCartPole'
    """
    if not name or "/" in name or ":" in name:
        raise UsageError(f"name={name!r} does not fit: use a word without / and :, which name a backend or a module.")
    if isinstance(env, gymnasium.Env):
        made = Registered(env, constructor=_copies(env))
    elif isinstance(env, type) and not issubclass(env, gymnasium.Env):
        raise UsageError(f"env={env.__name__} is a class: use an object of it, {env.__name__}().")
    elif not isinstance(env, type) and hasattr(env, "reset") and hasattr(env, "step"):
        made = Registered(env, _checked(name, env))
    elif callable(env):
        made = Registered(env, constructor=env)
    else:
        raise UsageError(
            f"env={env!r} is no environment: use an object of isobatch.JaxEnvironment, a gymnasium.Env, or a function "
            "that makes one; an id goes into the config."
        )
    _REGISTERED[name] = made
    make_env.cache_clear()
    return name


def registered_env(name: str) -> object | None:
    """What was given to `register_env`."""
    return _REGISTERED[name].given if name in _REGISTERED else None


def _checked(name: str, env: object) -> Environment:
    """An environment written in JAX, after a look at what it does."""
    from isobatch.envs.checks import check_jax_env
    from isobatch.envs.gymnax_backend import GymnaxEnvironment, is_gymnax

    return check_jax_env(name, GymnaxEnvironment(name, env) if is_gymnax(env) else env)


def _copies(env: gymnasium.Env) -> Constructor:
    """How to have more of an environment that exists."""
    if env.spec is not None:
        spec = env.spec
        return lambda **kwargs: gymnasium.make(spec, **kwargs)
    return lambda **kwargs: copy.deepcopy(env)


def as_played(config: Config) -> Config:
    """With the environment's own episodes and rewards, where training had others: what an evaluation plays."""
    kwargs = json.loads(config.env_kwargs)
    kept = {name: value for name, value in kwargs.items() if name not in TRAINING_ONLY}
    return config.replace(env_kwargs=kept) if config.env.startswith("envpool/") and kept != kwargs else config


def _is_host_id(env_id: str) -> bool:
    if env_id in _REGISTERED:
        return _REGISTERED[env_id].constructor is not None
    named = env_id.startswith(("gymnasium/", "envpool/")) or ":" in env_id
    return named or (env_id in gymnasium.registry and env_id not in IN_GYMNAX_TOO)


@cache
def make_env(env_id: str, settings: Settings = USUAL) -> AnyEnvironment:
    """The environment of this id."""
    backend, _, name = env_id.partition("/")
    if backend == "envpool":
        return envpool_env(name, settings)
    if not _is_host_id(env_id):
        env = jax_env(env_id, settings)
        if env is not None:
            return env
    return gymnasium_env(name if backend == "gymnasium" else env_id, env_id, settings)


def jax_env(env_id: str, settings: Settings) -> Environment | None:
    """None if there is no such environment written in JAX."""
    from isobatch.envs.probes import PROBES

    registered = _REGISTERED.get(env_id)
    env = registered.env if registered else PROBES.get(env_id)
    if env is None and env_id in GYMNAX:
        from isobatch.envs.gymnax_backend import GymnaxEnvironment

        env = GymnaxEnvironment(env_id)
    if env is None:
        return None
    for name, value, usual in zip(("env_kwargs", "vectorization", "autoreset"), settings, USUAL, strict=False):
        if value != usual:
            raise UsageError(
                f"{name}={value!r} is not for {env_id}, which is written in JAX: drop it, or use gymnasium/."
            )
    if not settings.rescale_actions or not isinstance(env.action_space, Box):
        return env
    space = dataclasses.replace(env.action_space, rescaled=True)
    env = copy.copy(env)
    object.__setattr__(env, "action_space", space)  # of a copy, which may be frozen
    return env


def gymnasium_env(name: str, env_id: str, settings: Settings) -> HostEnvironment:
    from isobatch.envs.gymnasium_backend import GymnasiumEnvironment

    module, colon, _ = name.rpartition(":")
    registered = _REGISTERED.get(name)
    if registered is not None and registered.constructor is not None:
        return GymnasiumEnvironment(name, settings, registered.constructor)
    if colon:
        import_module_of(env_id, module)
    elif name not in gymnasium.registry and name.startswith("ALE/"):
        raise UsageError(
            f"env={env_id!r} is an Atari game of the package ale-py: pip install ale-py, and use env='ale_py:{name}', "
            f"or env='envpool/{name.removeprefix('ALE/')}'."
        )
    elif name not in gymnasium.registry:
        raise unknown_env(env_id)
    return GymnasiumEnvironment(name, settings)


def import_module_of(env_id: str, module: str) -> None:
    """Import the module that registers an environment, whatever it does then."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"env={env_id!r} names a module that cannot be imported ({first_line(error)}): install what is missing, or "
            "give the command where the module is."
        ) from None
    except (Exception, SystemExit) as error:
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"env={env_id!r} names a module that fails while it is imported ({cause}).") from None
    remember(env_id)


def envpool_env(name: str, settings: Settings) -> HostEnvironment:
    from isobatch.envs.envpool_backend import EnvPoolEnvironment

    if (settings.vectorization, settings.autoreset) != (USUAL.vectorization, USUAL.autoreset):
        raise UsageError("vectorization and autoreset are for Gymnasium; EnvPool has its own: leave them out.")
    return EnvPoolEnvironment(name, settings)
