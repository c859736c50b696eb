"""The environment of a run, to be looked at."""

from __future__ import annotations

from functools import partial

from isobatch.envs.envpool_backend import EnvPoolEnvironment
from isobatch.envs.gymnasium_backend import GymnasiumEnvironment
from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import as_played, environment_of
from isobatch.errors import UsageError
from isobatch.rendering.host_scenes import EnvPoolScene, GymnasiumScene
from isobatch.rendering.jax_scenes import PAINTINGS, JaxScene
from isobatch.rendering.scenes import Scene
from isobatch.rendering.watched_scene import WatchedScene
from isobatch.settings.config import Config
from isobatch.settings.options import Options


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
