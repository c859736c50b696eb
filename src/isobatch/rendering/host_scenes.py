"""Environments of Gymnasium and EnvPool, which draw themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import gymnasium
import jax
import numpy as np

from isobatch.envs.envpool_backend import EnvPoolEnvironment, Pool, make_pool
from isobatch.envs.gymnasium_backend import GymnasiumEnvironment
from isobatch.envs.host_spaces import Action
from isobatch.errors import UsageError, first_line
from isobatch.rendering.canvas import Size, resized
from isobatch.rendering.scenes import Legend, Observation

DEFAULT_FPS = 30.0  # of environments that do not say
GAME_FPS = 15.0  # of Procgen, and of Atari at four frames a step
DRAWING_SECONDS = 120.0  # that the first picture may take
RENDER_KWARGS = {"render_mode": "rgb_array"}
DRAW_ONCE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import envpool
pool = envpool.make_gymnasium(sys.argv[1], num_envs=1, **json.loads(sys.argv[2]))
pool.reset()
pool.render()
"""


class GymnasiumScene:
    legend: Legend = ()

    def __init__(self, env: GymnasiumEnvironment) -> None:
        self._id = env.env_id
        be_silent()
        self._env = env.make(**RENDER_KWARGS)
        modes = self._env.metadata.get("render_modes", [])
        if "rgb_array" not in modes:
            raise UsageError(
                f"env={self._id!r} cannot be drawn: its render modes are {modes}, and rgb_array is needed."
            )
        self.fps = float(self._env.metadata.get("render_fps") or DEFAULT_FPS)
        self._env.reset(seed=0)
        try:
            self._env.render()  # now, rather than after an evaluation
        except gymnasium.error.DependencyNotInstalled as error:
            raise UsageError(f"env={self._id!r} needs a package to be drawn: {first_line(error)}") from None
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"env={self._id!r} cannot be drawn here ({why}).") from None

    def reset(self, seed: int) -> Observation:
        return self._env.reset(seed=seed)[0]

    def step(self, action: Action) -> tuple[Observation, float, bool]:
        obs, reward, terminated, truncated, _ = self._env.step(action)
        return obs, float(reward), bool(terminated or truncated)

    def draw(self, size: Size) -> np.ndarray:
        return resized(np.asarray(self._env.render(), np.uint8), size)

    def close(self) -> None:
        self._env.close()


def be_silent() -> None:
    """Many environments draw with pygame, which looks for a sound card and a display, and complains of none."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and sys.platform == "linux":
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


class EnvPoolScene:
    """A pool of one, made anew for each episode: a pool's seed is given when it is made."""

    legend: Legend = ()

    def __init__(self, env: EnvPoolEnvironment) -> None:
        self.fps = GAME_FPS if env.obs_dtype == "uint8" else DEFAULT_FPS
        self._env = env
        self._pool: Pool | None = None
        self._kwargs = env.kwargs | RENDER_KWARGS
        check_drawing(env.env_id, self._kwargs)

    def reset(self, seed: int) -> Observation:
        self.close()
        self._pool = make_pool(self._env.env_id, self._kwargs, num_envs=1, seed=seed)
        return first(self._pool.reset()[0])

    def step(self, action: Action) -> tuple[Observation, float, bool]:
        assert self._pool is not None  # since the first reset
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(action)[None])
        return first(obs), float(reward[0]), bool(terminated[0] | truncated[0])

    def draw(self, size: Size) -> np.ndarray:
        assert self._pool is not None
        return resized(self._pool.render()[0], size)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


def check_drawing(env_id: str, kwargs: Mapping[str, object]) -> None:
    """Draw once in another process: without a display EnvPool's physics end the process that asks for a picture."""
    command = [sys.executable, "-c", DRAW_ONCE, env_id, json.dumps(kwargs)]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=DRAWING_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(f"env='envpool/{env_id}' cannot be drawn here: it hangs, a display may be missing.") from None
    if tried.returncode:
        why = (tried.stderr + tried.stdout).strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
        raise UsageError(f"env='envpool/{env_id}' cannot be drawn here ({why[0]}): a display may be missing.")


def first(obs: Observation) -> Observation:
    """Of a batch of one."""
    return jax.tree.map(lambda part: part[0], obs)
