"""Tests that need what a machine may not have are skipped there, with the reason; so are further cases of a check."""

import functools
import importlib.util
import os

import pytest

import isobatch as ib
from isobatch.envs import catalog
from isobatch.envs.registry import make_env

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")
ALL = os.environ.get("ISOBATCH_TEST_ALL") == "1"
one_more_case = pytest.mark.skipif(not ALL, reason="one more case of the same check: ISOBATCH_TEST_ALL=1 runs it")
needs_envpool = pytest.mark.skipif(not catalog.is_installed(), reason="the extra envpool is not installed")
needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="the extra sb3 is not installed"
)


@functools.cache
def why_no_procgen() -> str:
    """What keeps Procgen from running here, or nothing."""
    try:
        make_env("envpool/CoinrunEasy-v0")
    except ib.UsageError as error:
        return str(error)
    return ""


needs_procgen = pytest.mark.skipif(bool(why_no_procgen()), reason=why_no_procgen())
