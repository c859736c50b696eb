"""Tests that need what a machine may not have are skipped there, with the reason."""

import functools
import importlib.util

import pytest

import isobatch as ib
from isobatch.envs import catalog
from isobatch.envs.registry import make_env

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")
needs_envpool = pytest.mark.skipif(not catalog.is_installed(), reason="the extra envpool is not installed")


@functools.cache
def why_no_procgen() -> str:
    """What keeps Procgen from running here, or nothing."""
    try:
        make_env("envpool/CoinrunEasy-v0")
    except ib.UsageError as error:
        return str(error)
    return ""


needs_procgen = pytest.mark.skipif(bool(why_no_procgen()), reason=why_no_procgen())
