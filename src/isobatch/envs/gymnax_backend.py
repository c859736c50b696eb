"""Environments of the gymnax library behind the interface of this package, without importing all of gymnax.

`import gymnax` runs every environment, and with them seaborn, pandas, matplotlib and scipy.stats, which draw pictures
that are not used here: about two seconds, of the three that a short run takes. So the table of its ids is read from the
text of its module, and the module of one environment is imported by itself. Where gymnax is imported already, or is not
laid out as expected, `gymnax.make` does what it does.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key

from isobatch.envs.interface import State, Step
from isobatch.envs.spaces import Box, Discrete, Space


@runtime_checkable
class GymnaxDiscrete(Protocol):
    """A space of gymnax, which has no types, as far as it is used here."""

    n: int
    shape: tuple[int, ...]


@runtime_checkable
class GymnaxBox(Protocol):
    """The other one."""

    low: ArrayLike
    high: ArrayLike
    shape: tuple[int, ...]


GymnaxSpace = GymnaxDiscrete | GymnaxBox


@runtime_checkable
class GymnaxParams(Protocol):
    """Parameters of an environment of gymnax."""

    max_steps_in_episode: int


@runtime_checkable
class GymnaxEnv(Protocol):
    """An environment of gymnax."""

    default_params: GymnaxParams

    def observation_space(self, params: GymnaxParams) -> GymnaxSpace: ...

    def action_space(self, params: GymnaxParams) -> GymnaxSpace: ...

    def reset_env(self, key: Key[Array, ""], params: GymnaxParams) -> tuple[ArrayLike, State]: ...

    def step_env(
        self, key: Key[Array, ""], state: State, action: Array, params: GymnaxParams
    ) -> tuple[ArrayLike, State, ArrayLike, ArrayLike, object]: ...

    def is_truncated(self, state: State, params: GymnaxParams) -> ArrayLike: ...


class GymnaxEnvironment:
    """A gymnax environment with its default parameters: one of its registry, or an object of a user's own."""

    def __init__(self, env_id: str, env: GymnaxEnv | None = None) -> None:
        self._env, self._params = make_gymnax(env_id) if env is None else (env, env.default_params)
        observation_space = self._env.observation_space(self._params)
        # A discrete observation is a state's number: the network gets it one-hot.
        self._one_hot = int(observation_space.n) if isinstance(observation_space, GymnaxDiscrete) else 0
        self.obs_shape = (self._one_hot,) if self._one_hot else tuple(int(n) for n in observation_space.shape)
        self.obs_dtype = "bool" if env_id.endswith("-MinAtar") else "float32"  # MinAtar's images are zeros and ones
        self.action_space = _action_space(self._env.action_space(self._params))
        self.max_steps = int(self._params.max_steps_in_episode)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        obs, state = self._env.reset_env(key, self._params)
        # Some environments start with Python numbers and go on with arrays.
        return jax.tree.map(jnp.asarray, state), self._observation(obs)

    def step(self, key: Key[Array, ""], state: State, action: Array) -> Step:
        obs, new_state, reward, terminated, _ = self._env.step_env(key, state, action, self._params)
        new_state = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new_state, state)
        truncated = self._env.is_truncated(new_state, self._params)
        return Step(
            state=new_state,
            obs=self._observation(obs),
            reward=jnp.asarray(reward, jnp.result_type(float)).reshape(()),
            terminated=jnp.asarray(terminated, bool).reshape(()),
            truncated=jnp.asarray(truncated, bool).reshape(()),
        )

    def at_time(self, state: State, time: Array) -> State:
        return state.replace(time=jnp.asarray(time, state.time.dtype))

    def _observation(self, obs: ArrayLike) -> Array:
        if self._one_hot:
            return jax.nn.one_hot(obs, self._one_hot)
        return jnp.asarray(obs, bool if self.obs_dtype == "bool" else jnp.result_type(float))


def is_gymnax(env: object) -> TypeGuard[GymnaxEnv]:
    from gymnax.environments.environment import Environment

    return isinstance(env, Environment)


def _action_space(space: GymnaxSpace) -> Space:
    if isinstance(space, GymnaxDiscrete):
        return Discrete(int(space.n))
    shape = tuple(int(n) for n in space.shape)
    low, high = (
        tuple(float(v) for v in np.broadcast_to(np.asarray(b), shape).ravel()) for b in (space.low, space.high)
    )
    return Box(shape, low, high)


def make_gymnax(env_id: str) -> tuple[GymnaxEnv, GymnaxParams]:
    """As `gymnax.make`: an environment and its default parameters."""
    if "gymnax" not in sys.modules and env_id in (constructors := builtin_constructors()):
        module, name = constructors[env_id]
        try:
            with bare_packages(module):
                env = getattr(importlib.import_module(module), name)()
            return env, env.default_params
        except (ImportError, AttributeError):  # of a gymnax whose modules need their packages
            pass
    return importlib.import_module("gymnax").make(env_id)


@cache
def builtin_constructors() -> dict[str, tuple[str, str]]:
    """Id -> module and class, from the text of `gymnax.registration`; empty if they are not found there."""
    package = PathFinder.find_spec("gymnax")
    if package is None or not package.submodule_search_locations:
        return {}
    try:
        statements = ast.parse((Path(package.submodule_search_locations[0]) / "registration.py").read_text()).body
        imports = [s for s in statements if isinstance(s, ast.ImportFrom)]
        modules = {alias.name: f"{s.module}.{alias.name}" for s in imports for alias in s.names}
        values = {ast.unparse(t): s.value for s in statements for t in targets_of(s)}  # type: ignore[attr-defined]
        ids, table = ast.literal_eval(values["_BUILTIN_ENV_IDS"]), values["_builtins"]
        constructors = {
            ast.literal_eval(key): (modules[value.value.id], value.attr)
            for key, value in zip(table.keys, table.values, strict=True)
        }
        return {env_id: constructors[env_id] for env_id in ids}
    except (OSError, SyntaxError, ValueError, KeyError, AttributeError):
        return {}


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


@contextmanager
def bare_packages(module: str) -> Iterator[None]:
    """The packages above `module` are there to import from, but what is in their `__init__` is not run.

    Everything of theirs is forgotten at the end, so that a later `import gymnax` gets all of it; what was taken out of
    the module in between goes on working.
    """
    root, *names = module.split(".")[:-1]
    packages = [root]
    for name in names:
        packages.append(f"{packages[-1]}.{name}")
    try:
        path = None
        for package in packages:
            spec = PathFinder.find_spec(package, path)
            if spec is None or spec.submodule_search_locations is None:
                raise ImportError(f"no package {package}")
            bare = sys.modules[package] = ModuleType(package)
            bare.__path__ = path = list(spec.submodule_search_locations)
        yield
    finally:
        for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
            del sys.modules[name]
