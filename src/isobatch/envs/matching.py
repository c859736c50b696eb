"""Environments under the names that other libraries have for them."""

from __future__ import annotations

import re

from isobatch.envs.catalog import IN_JAX, check_env_id, envpool_ids
from isobatch.errors import UsageError

ATARI = re.compile(r"^(ALE/)?(?P<game>[A-Za-z0-9]+?)(NoFrameskip)?-v[45]$")
VERSION = re.compile(r"^(?P<name>.*)-v(?P<number>\d+)$")


def matched_env(name: str) -> tuple[str, str]:
    """The id of an environment here, and a sentence where that is not quite the same."""
    if name == "unnamed":
        raise UsageError("env is missing: the settings do not name an environment; give --env NAME.")
    if name in IN_JAX or ":" in name or name.startswith(("gymnasium/", "envpool/")):
        check_env_id(name)
        return name, ""
    import gymnasium

    if name in gymnasium.registry:
        return f"gymnasium/{name}", ""
    atari = ATARI.match(name)
    if atari and f"{atari['game']}-v5" in envpool_ids():
        return (
            f"envpool/{atari['game']}-v5",
            f"{name} is envpool/{atari['game']}-v5 here, with its frame skip and stack",
        )
    other = _other_version(name, list(gymnasium.registry))
    if other:
        return f"gymnasium/{other}", f"{name} is not in this Gymnasium, {other} takes its place"
    if name in envpool_ids():
        return f"envpool/{name}", ""
    check_env_id(name)
    return name, ""


def _other_version(name: str, ids: list[str]) -> str | None:
    """The newest version of an environment that is there."""
    wanted = VERSION.match(name)
    if wanted is None:
        return None
    matches = [match for one in ids if (match := VERSION.match(one)) and match["name"] == wanted["name"]]
    return max(matches, key=lambda match: int(match["number"]))[0] if matches else None
