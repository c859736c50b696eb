"""Hyperparameters of other libraries, read as a `Config` and written back in their own words.

What "batch size" means differs between them, which is why nothing here is called that; each module says it for its
library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from isobatch.errors import UsageError, unknown_name
from isobatch.interop import (
    brax,
    cleanrl,
    ml_agents,
    pufferlib,
    rl_games,
    rllib,
    rsl_rl,
    skrl,
    stable_baselines3,
    torchrl,
)
from isobatch.interop.detection import check_whose, refusal
from isobatch.interop.library import Answer, Library, LibrarySettings, answer, from_settings, write

MODULES = (stable_baselines3, cleanrl, rllib, torchrl, skrl, rsl_rl, rl_games, brax, pufferlib, ml_agents)
LIBRARIES: dict[str, Library] = {module.LIBRARY.name: module.LIBRARY for module in MODULES}


def library(name: str) -> Library:
    """The library of that name, or a UsageError."""
    if name not in LIBRARIES:
        raise unknown_name(f"library {name!r}", name, LIBRARIES)
    return LIBRARIES[name]


def called_elsewhere(name: str) -> list[str]:
    """The settings here that some library calls so: lr, n_envs."""
    keys = [key for library in LIBRARIES.values() for keys in library.algorithms.values() for key in keys]
    fields = [key.fields for key in keys if name in (each.rpartition(".")[2] for each in key.names)]
    return list(dict.fromkeys(sum(fields, ())))


def read(
    library: Library,
    text: str,
    *,
    env: str | None = None,
    algo: str = "ppo",
    overrides: Mapping[str, object] | None = None,
) -> LibrarySettings:
    """Hyperparameters in the library's own words; `overrides` are settings of ours that win over them.

    A text that looks like another library's is refused, with its name.
    """
    try:
        settings, env = library.form.parse(text, env)
    except UsageError as error:
        raise refusal(library, text, LIBRARIES.values(), error) from None
    check_whose(library, settings, text, LIBRARIES.values())
    return replace(from_settings(library, settings, env=env, algo=algo, overrides=overrides), source=text)


__all__ = [
    "LIBRARIES", "Answer", "Library", "LibrarySettings", "answer", "called_elsewhere", "from_settings", "library",
    "read", "write",
]  # fmt: skip
