"""The environment of a run, to be looked at."""

from __future__ import annotations

from isobatch.envs.envpool_backend import EnvPoolEnvironment
from isobatch.envs.gymnasium_backend import GymnasiumEnvironment
from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import as_played, environment_of
from isobatch.errors import UsageError
from isobatch.rendering.host_scenes import EnvPoolScene, GymnasiumScene
from isobatch.rendering.jax_scenes import PAINTINGS, JaxScene
from isobatch.rendering.scenes import Scene
from isobatch.settings.config import Config


def open_scene(config: Config) -> Scene:
    """One copy of the environment, ready to be reset; UsageError if it cannot be drawn."""
    env = environment_of(as_played(config))
    if isinstance(env, EnvPoolEnvironment):
        return EnvPoolScene(env)
    if isinstance(env, GymnasiumEnvironment):
        return GymnasiumScene(env)
    assert not isinstance(env, HostEnvironment)
    if config.env not in PAINTINGS:
        raise UsageError(f"env={config.env!r} cannot be drawn: of those written in JAX, {', '.join(PAINTINGS)} can.")
    return JaxScene(env, PAINTINGS[config.env])
