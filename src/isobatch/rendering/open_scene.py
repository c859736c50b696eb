"""The environment of a run, to be looked at."""

from __future__ import annotations

from isobatch.envs import as_played, env_of, is_host
from isobatch.envs.envpool_backend import EnvPoolEnvironment
from isobatch.errors import UsageError
from isobatch.rendering.host_scenes import EnvPoolScene, GymnasiumScene
from isobatch.rendering.jax_scenes import PAINTINGS, JaxScene
from isobatch.rendering.scenes import Scene
from isobatch.settings.config import Config


def open_scene(config: Config) -> Scene:
    """One copy of the environment, ready to be reset; UsageError if it cannot be drawn."""
    env = env_of(as_played(config))
    if is_host(env):
        return EnvPoolScene(env) if isinstance(env, EnvPoolEnvironment) else GymnasiumScene(env)
    if config.env not in PAINTINGS:
        raise UsageError(f"env={config.env!r} cannot be drawn: of those written in JAX, {', '.join(PAINTINGS)} can.")
    return JaxScene(env, PAINTINGS[config.env])
