"""Environments of Gymnasium, by any id of its registry, vectorized by Gymnasium itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from isobatch.envs.guard import GuardError, Recipe, guarded, silent_logger
from isobatch.envs.host_interface import FaultError, HostEnvironment, VectorStep
from isobatch.envs.host_spaces import Actions, Observations, batched
from isobatch.envs.interface import Settings
from isobatch.envs.watchdog import START_SECONDS, HangError, Watched, closed_in_time
from isobatch.errors import RunError, UsageError, first_line
from isobatch.executors.process_count import ENV_BYTES, check_process_count

MODES = {
    "disabled": AutoresetMode.DISABLED,
    "next-step": AutoresetMode.NEXT_STEP,
    "same-step": AutoresetMode.SAME_STEP,
}


class GymnasiumEnvironment(HostEnvironment):
    """What an environment looks like, found out by making one; and vectors of it."""

    def __init__(
        self, env_id: str, settings: Settings, constructor: Callable[..., gymnasium.Env] | None = None
    ) -> None:
        """`constructor` makes it, where `env_id` is not of Gymnasium's registry."""
        self.env_id, self.kwargs = env_id, json.loads(settings.kwargs)
        self.in_parallel = self.in_processes = settings.vectorization == "async"
        self.autoreset = settings.autoreset
        self.replays = self.autoreset == "disabled"
        self.constructor = constructor or partial(gymnasium.make, env_id, disable_env_checker=True)
        one = self._first()
        self._recipe = Recipe(partial(self.constructor, **self.kwargs), one.observation_space, one.action_space)
        self.observations = Observations(env_id, one.observation_space)
        self.actions = Actions(env_id, one.action_space, settings.rescale_actions)
        self.obs_shape, self.obs_dtype = self.observations.shape, self.observations.dtype
        self.action_space = self.actions.space
        self.max_steps = int((one.spec.max_episode_steps if one.spec else None) or 0)
        closed_in_time(one.close)

    def _first(self) -> gymnasium.Env:
        """One to look at, unless it hangs over being made."""
        try:
            return Watched(lambda beat: self.make(), START_SECONDS).wait()
        except HangError:
            limit = f"{START_SECONDS:g} seconds"
            raise RunError(
                f"env={self.env_id!r} was not made within {limit}: see what its constructor waits for."
            ) from None

    def make(self, **kwargs: object) -> gymnasium.Env:
        """One environment, or a sentence that says why there is none."""
        try:
            return self.constructor(**(self.kwargs | kwargs))
        except gymnasium.error.DependencyNotInstalled as error:
            if "box2d" in str(error).lower():
                install = "pip install 'isobatch[box2d]'"
                raise UsageError(f"env={self.env_id!r} needs Box2D, which is not installed: {install}.") from None
            raise UsageError(
                f"env={self.env_id!r} needs a package that is not installed: {first_line(error)}"
            ) from None
        except (ImportError, gymnasium.error.Error) as error:
            raise UsageError(f"env={self.env_id!r} cannot be made: {first_line(error)}") from None
        except Exception as error:
            cause = f"{type(error).__name__}: {first_line(error)}"
            hint = f"; its env_kwargs are {self.kwargs}" if self.kwargs else ""
            raise UsageError(f"env={self.env_id!r} cannot be made ({cause}){hint}.") from None

    def open(self, seeds: list[int]) -> GymnasiumVector:
        if self.in_processes:
            check_process_count("vectorization='async' of so many num_envs", len(seeds), ENV_BYTES)
        running = [0]
        makers = [partial(guarded, self._recipe, place, running) for place in range(len(seeds))]
        mode = MODES[self.autoreset]
        try:
            # Not forked: JAX has threads, and a fork of a process with threads may never wake up.
            vector: SyncVectorEnv | Workers = (
                Workers(makers, copy=False, context="forkserver", autoreset_mode=mode)
                if self.in_processes
                else SyncVectorEnv(makers, copy=False, autoreset_mode=mode)
            )
        except Exception as error:
            raise FaultError(f"could not be started ({type(error).__name__}: {first_line(error)})") from None
        return GymnasiumVector(vector, running, self.observations, self.actions)


class Workers(AsyncVectorEnv):
    """Prints no tracebacks of its workers: what went wrong is said in one sentence."""

    def _raise_if_errors(self, successes: list[bool] | tuple[bool]) -> None:
        with silent_logger():
            super()._raise_if_errors(successes)


class GymnasiumVector:
    """M environments behind Gymnasium's vector API."""

    def __init__(
        self, vector: SyncVectorEnv | Workers, running: list[int], observations: Observations, actions: Actions
    ) -> None:
        self._vector, self._running = vector, running
        self._observations, self._actions = observations, actions
        self._sent: np.ndarray | None = None

    def reset(self, seeds: list[int], which: np.ndarray) -> np.ndarray:
        options = None if which.all() else {"reset_mask": which}
        try:
            return self._observations.convert(self._vector.reset(seed=[*seeds], options=options)[0])
        except Exception as error:
            raise self._fault(error) from None

    def send(self, actions: np.ndarray) -> None:
        self._sent = self._actions.convert(actions)
        if isinstance(self._vector, Workers):
            try:
                self._vector.step_async(self._sent)
            except Exception as error:
                raise self._fault(error) from None

    def receive(self) -> VectorStep:
        try:
            vector = self._vector
            moved = vector.step_wait() if isinstance(vector, Workers) else vector.step(self._sent)
        except Exception as error:
            raise self._fault(error) from None
        obs, reward, terminated, truncated, info = moved
        return VectorStep(self._observations.convert(obs), reward, terminated, truncated, self._final(info))

    def _final(self, info: dict) -> dict[int, np.ndarray]:
        """Of the mode same-step: what the episodes ended with."""
        if "final_obs" not in info:
            return {}
        ended = np.flatnonzero(info["_final_obs"])
        return {int(i): self._observations.convert(batched(info["final_obs"][i]))[0] for i in ended}

    def xla_stepper(self) -> None:
        """Python steps them."""

    def suspects(self) -> list[int]:
        if not isinstance(self._vector, Workers):
            return [self._running[0]]
        return [i for i, pipe in enumerate(self._vector.parent_pipes) if pipe is None or not pipe.poll(0)]

    def _fault(self, error: Exception) -> FaultError:
        if isinstance(error, GuardError):
            at, _, what = str(error).partition("|")
            return FaultError(what, int(at))
        dead = self._dead(error)
        if dead:
            place, process = dead[0]
            return FaultError(f"died: its process ended with code {process.exitcode}", place)
        running = None if self._processes else self._running[0]
        return FaultError(f"failed ({type(error).__name__}: {first_line(error)})", running)

    @property
    def _processes(self) -> list[BaseProcess]:
        """Of the environments, where each has one."""
        return self._vector.processes if isinstance(self._vector, Workers) else []

    def _dead(self, error: Exception) -> list[tuple[int, BaseProcess]]:
        """Places whose process has ended, and the process."""
        processes = self._processes
        if processes and isinstance(error, EOFError | OSError):  # a pipe ends a moment before its process
            connection.wait([process.sentinel for process in processes], timeout=2.0)
        return [(place, process) for place, process in enumerate(processes) if not process.is_alive()]

    def close(self) -> None:
        try:
            if isinstance(self._vector, Workers):
                for process in self._processes:  # deaf to the signal by which Gymnasium ends them
                    process.kill()
                self._vector._state = AsyncState.DEFAULT  # or it would wait for the dead
                self._vector.close(terminate=True)
            else:
                self._vector.close()
        except Exception:  # what cannot be closed goes with the process, silently
            self._vector.closed = True

    def abandon(self) -> None:
        for process in self._processes:
            process.kill()
        self._vector.closed = True
