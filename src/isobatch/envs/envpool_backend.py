"""Environments of EnvPool, an extra: many games and physics in C++, stepped by threads of its own.

An environment that has ended is reset by the next step, which steps nothing: `autoreset` is next-step.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Array

from isobatch.envs.catalog import import_envpool, missing_library, unknown_env
from isobatch.envs.host_interface import FaultError, HostEnvironment, VectorStep, XlaStep, XlaStepper
from isobatch.envs.host_spaces import Actions, Observation, Observations
from isobatch.envs.interface import Settings
from isobatch.errors import UsageError, first_line
from isobatch.executors.cores import available_cores

NO_LIMIT = 2**31 - 1
PoolStep = tuple[Observation, np.ndarray, np.ndarray, np.ndarray, object]  # the last: facts by name
XlaSend = Callable[[Array, Array], Array]
XlaReceive = Callable[[Array], tuple[Array, tuple[Array, Array, Array, Array, object]]]


class Pool(Protocol):
    """Environments of EnvPool, which has no types, as far as they are used here."""

    observation_space: object

    def reset(self) -> tuple[Observation, object]: ...

    def send(self, actions: np.ndarray) -> None: ...

    def recv(self) -> PoolStep: ...

    def step(self, actions: np.ndarray) -> PoolStep: ...

    def render(self) -> np.ndarray: ...

    def xla(self) -> tuple[np.ndarray, XlaReceive, XlaSend, object]:
        """A handle, and how to receive and send from inside a compiled program."""
        ...

    def close(self) -> None: ...


class EnvPoolEnvironment(HostEnvironment):
    """What an environment looks like, and pools of it."""

    autoreset = "next-step"
    replays = False
    in_parallel = True
    in_processes = False

    def __init__(self, env_id: str, settings: Settings) -> None:
        self.env_id, self.kwargs = env_id, json.loads(settings.kwargs)
        envpool = import_envpool()
        if env_id not in envpool.list_all_envs():
            raise unknown_env(f"envpool/{env_id}")

        with quietly(env_id, self.kwargs):
            spec = envpool.make_spec(env_id, **self.kwargs)
            seen, done = spec.gymnasium_observation_space, spec.gymnasium_action_space
        self.observations = Observations(env_id, seen)
        self.actions = Actions(env_id, done, settings.rescale_actions)
        self.obs_shape, self.obs_dtype = self.observations.shape, self.observations.dtype
        self.action_space = self.actions.space
        limit = int(spec.config.max_episode_steps)
        self.max_steps = 0 if limit >= NO_LIMIT else limit
        # Light ones are stepped from inside a compiled program, which EnvPool can on Linux. JAX takes numbers of 64
        # bits for such of 32, and the networks of images take so long that Python's share of a step is nothing.
        arrays = [*spec.state_array_spec.values(), *spec.action_array_spec.values()]
        narrow = all(np.dtype(array.dtype).itemsize <= 4 for array in arrays)
        flat = self.observations.is_box and self.obs_dtype == "float32"
        self._is_light = narrow and flat and sys.platform == "linux"

    def open(self, seeds: list[int]) -> EnvPoolVector:
        # More threads than cores slow light environments down, and two halves step at a time.
        chosen = self._is_light and "num_threads" not in self.kwargs
        threads = {"num_threads": max(1, len(available_cores()) // 2)} if chosen else {}
        pool = make_pool(self.env_id, self.kwargs, num_envs=len(seeds), seed=seeds, **threads)
        return EnvPoolVector(pool, self.observations, self.actions, self._is_light and jax.default_backend() == "cpu")


class EnvPoolVector:
    """A pool of M environments whose seeds were given when it was made."""

    def __init__(self, pool: Pool, observations: Observations, actions: Actions, steps_inside: bool) -> None:
        self._pool, self._observations, self._actions = pool, observations, actions
        self._steps_inside = steps_inside

    def reset(self, seeds: list[int], which: np.ndarray) -> np.ndarray:
        assert which.all()  # a pool resets the others itself
        return self._observations.convert(self._pool.reset()[0])

    def send(self, actions: np.ndarray) -> None:
        try:
            self._pool.send(self._actions.convert(actions))
        except Exception as error:
            raise FaultError(f"raised {type(error).__name__}: {first_line(error)}") from None

    def receive(self) -> VectorStep:
        try:
            obs, reward, terminated, truncated, _ = self._pool.recv()
        except Exception as error:
            raise FaultError(f"raised {type(error).__name__}: {first_line(error)}") from None
        return VectorStep(self._observations.convert(obs), reward, terminated, truncated, {})

    def xla_stepper(self) -> XlaStepper | None:
        if not self._steps_inside:
            return None
        handle, receive, send, _ = self._pool.xla()

        def received(handle: Array) -> tuple[Array, XlaStep]:
            handle, (obs, reward, terminated, truncated, _) = receive(handle)
            return handle, XlaStep(obs, reward, terminated, truncated)

        return XlaStepper(handle, lambda handle, actions: send(handle, self._actions.shifted(actions)), received)

    def suspects(self) -> list[int]:
        return []

    def close(self) -> None:
        self._pool.close()

    def abandon(self) -> None:
        """Its threads end with the process."""


def make_pool(env_id: str, kwargs: Mapping[str, object], **size: object) -> Pool:
    """Some environments, made quietly."""
    with quietly(env_id, kwargs):
        pool: Pool = import_envpool().make_gymnasium(env_id, **size, **kwargs)
        pool.observation_space  # noqa: B018  # which it makes, and warns about, when it is first asked for
    return pool


@contextmanager
def quietly(env_id: str, kwargs: Mapping[str, object]) -> Iterator[None]:
    """Without EnvPool's warnings, and with one sentence about why an environment cannot be made."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ImportError, OSError) as error:
        raise missing_library(error) from None
    except Exception as error:
        hint = f"; its env_kwargs are {dict(kwargs)}" if kwargs else ""
        cause = f"{type(error).__name__}: {first_line(error)}"
        raise UsageError(f"env='envpool/{env_id}' cannot be made ({cause}){hint}.") from None
