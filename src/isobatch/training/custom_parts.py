"""A user's own environment, networks and learning-rate schedule: a config names them, registries hold them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import gymnasium

from isobatch.envs.interface import Environment
from isobatch.envs.registry import Constructor, register_env, registered_env
from isobatch.networks.custom_networks import Factory, register_networks, registered_networks
from isobatch.settings.config import Config
from isobatch.settings.schedules import Schedule, register_schedule, registered_schedule

T = TypeVar("T")


def with_custom_parts(
    config: Config,
    env: Environment | gymnasium.Env | Constructor | None = None,
    networks: Factory | None = None,
    learning_rate_schedule: Schedule | None = None,
) -> Config:
    """`config` with the names under which these objects are registered now."""
    changes = {}
    if env is not None:
        changes["env"] = _register(env, register_env, registered_env)
    if networks is not None:
        changes["networks"] = _register(networks, register_networks, registered_networks)
    if learning_rate_schedule is not None:
        changes["lr_schedule"] = _register(learning_rate_schedule, register_schedule, registered_schedule)
    return config.replace(**changes) if changes else config


def _register(part: T, register: Callable[[str, T], str], registered: Callable[[str], object | None]) -> str:
    """Under its name, or that with a number where another object has it: earlier results still mean theirs."""
    name, number = _name_of(part), 1
    while (other := registered(_numbered(name, number))) is not None and not _same(other, part):
        number += 1
    return _numbered(name, number) if other is not None else register(_numbered(name, number), part)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _same(one: object, other: object) -> bool:
    """The same object, or one of a class that says when its objects are equal, such as a dataclass."""
    return one is other or (type(one) is type(other) and isinstance(equal := one == other, bool) and equal)


def _name_of(part: object) -> str:
    """Of its class, or of the function that it is."""
    if isinstance(part, functools.partial):
        return _name_of(part.func)
    if isinstance(part, gymnasium.Env):
        return type(part.unwrapped).__name__
    return getattr(part, "__name__", type(part).__name__).replace("<lambda>", "lambda")


class CustomParts:
    """The objects behind the names of a config, compared by identity: a part of the key of what is compiled with them,
    which also keeps them alive."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CustomParts) and all(a is b for a, b in zip(self.parts, other.parts, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))


def learning_parts(config: Config) -> CustomParts:
    """Those that matter to learning, wherever the data comes from."""
    return CustomParts(registered_networks(config.networks), registered_schedule(config.lr_schedule))


def custom_parts(config: Config) -> CustomParts:
    """All of them; None where a config names one of this package."""
    return CustomParts(registered_env(config.env), *learning_parts(config).parts)
