"""The environment of a run, to be looked at: what it does wrong ends it with a sentence, as it ends training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from isobatch.envs.envpool_backend import EnvPoolEnvironment
from isobatch.envs.gymnasium_backend import GymnasiumEnvironment
from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.host_spaces import Action
from isobatch.envs.registry import as_played, environment_of
from isobatch.envs.watchdog import START_SECONDS, HangError, Worker, closed_in_time
from isobatch.errors import RunError, UsageError, first_line
from isobatch.rendering.canvas import Size
from isobatch.rendering.host_scenes import EnvPoolScene, GymnasiumScene
from isobatch.rendering.jax_scenes import PAINTINGS, JaxScene
from isobatch.rendering.scenes import Observation, Scene
from isobatch.settings.config import Config
from isobatch.settings.options import Options

T = TypeVar("T")


def open_scene(config: Config, env_timeout: float = Options.env_timeout) -> Scene:
    """One copy of the environment, ready to be reset; UsageError if it cannot be drawn.

    One outside JAX ends it with a RunError where it fails or does not answer within `env_timeout` seconds.
    """
    env = environment_of(as_played(config))
    if isinstance(env, EnvPoolEnvironment):
        return WatchedScene(partial(EnvPoolScene, env), config.env, env_timeout)
    if isinstance(env, GymnasiumEnvironment):
        return WatchedScene(partial(GymnasiumScene, env), config.env, env_timeout)
    assert not isinstance(env, HostEnvironment)
    if config.env not in PAINTINGS:
        raise UsageError(f"env={config.env!r} cannot be drawn: of those written in JAX, {', '.join(PAINTINGS)} can.")
    return JaxScene(env, PAINTINGS[config.env])


class WatchedScene:
    """Everything happens in one thread, since some drawing libraries ask for that."""

    def __init__(self, open_scene: Callable[[], Scene], env_id: str, time_limit: float) -> None:
        self._env_id, self._time_limit = env_id, time_limit
        self._worker = Worker()
        self._scene = self._call(open_scene, max(time_limit, START_SECONDS))
        self.fps, self.legend = self._scene.fps, self._scene.legend

    def reset(self, seed: int) -> Observation:
        return self._call(lambda: self._scene.reset(seed), max(self._time_limit, START_SECONDS))

    def step(self, action: Action) -> tuple[Observation, float, bool]:
        return self._call(lambda: self._scene.step(action), self._time_limit)

    def draw(self, size: Size) -> np.ndarray:
        return self._call(lambda: self._scene.draw(size), self._time_limit)

    def close(self) -> None:
        closed_in_time(lambda: self._worker.call(self._scene.close, float("inf")))
        self._worker.end()

    def _call(self, work: Callable[[], T], limit: float) -> T:
        try:
            return self._worker.call(work, limit)
        except HangError:
            what = f"did not answer within {limit:g} seconds (env_timeout)"
        except (RunError, UsageError):
            raise
        except Exception as error:
            what = f"raised {type(error).__name__}: {first_line(error)}"
        raise RunError(f"an environment ({self._env_id}) {what}.")
