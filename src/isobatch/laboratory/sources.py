"""The one place of the laboratory that asks where an environment steps."""

from __future__ import annotations

from collections.abc import Callable

from isobatch.envs.host_interface import AnyEnvironment, HostEnvironment
from isobatch.laboratory.host_source import HostSource
from isobatch.laboratory.jax_source import JaxSource
from isobatch.laboratory.source import Source
from isobatch.learning.state import TrainState
from isobatch.settings.config import Config
from isobatch.settings.options import Options


def source_of(
    config: Config,
    env: AnyEnvironment,
    state: TrainState,
    env_timeout: float = Options.env_timeout,
    tell: Callable[[str], None] = lambda detail: None,
) -> Source:
    if isinstance(env, HostEnvironment):
        return HostSource(config, env, state, env_timeout, tell)
    return JaxSource(config, env, state)
