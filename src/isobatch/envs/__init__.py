"""Environments by id: those of gymnax, and probes whose values are known."""

from __future__ import annotations

from functools import cache

from isobatch.envs.gymnax_envs import BROKEN, GymnaxEnvironment, gymnax_ids
from isobatch.envs.interface import Environment
from isobatch.envs.probes import PROBES
from isobatch.errors import UsageError, near_matches


def env_ids() -> list[str]:
    """Every id that `make_env` accepts."""
    return [*gymnax_ids(), *PROBES]


@cache
def make_env(env_id: str) -> Environment:
    """The environment of this id: one object per id, so that compiled programs are shared."""
    if env_id in PROBES:
        return PROBES[env_id]
    if env_id in BROKEN:
        raise UsageError(f"env={env_id!r} is not available: {BROKEN[env_id]}; use another id from `isobatch envs`.")
    if env_id not in gymnax_ids():
        raise UsageError(
            f"env={env_id!r} is unknown{near_matches(env_id, env_ids()) or '; `isobatch envs` lists the ids.'}"
        )
    return GymnaxEnvironment(env_id)
