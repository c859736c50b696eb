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
    """A library whose settings can be read and written, by its name.

    Args:
        name: a key of `LIBRARIES`: zoo, cleanrl, rllib, ...

    Returns:
        What the functions of this module take as `library`.

    Example:
        >>> import isobatch as ib
        >>> ib.interop.library("cleanrl").title
        'CleanRL'
    """
    if name not in LIBRARIES:
        raise unknown_name(f"library {name!r}", name, LIBRARIES)
    return LIBRARIES[name]


def called_elsewhere(name: str) -> list[str]:
    """The settings here that some library calls so.

    Args:
        name: a setting of any library, as `lr`.

    Returns:
        Names of settings here, none if no library has it.

    Example:
        >>> import isobatch as ib
        >>> ib.interop.called_elsewhere("n_envs")
        ['num_envs']
    """
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
    """Hyperparameters in a library's own words; a text that looks like another library's is refused, with its name.

    Args:
        library: of `library(name)`.
        text: a file or command line of it.
        env: which environment, where the text has several.
        algo: ppo, or another one that the library has.
        overrides: settings of ours that win over the text's.

    Returns:
        Its `config` here, and what `answer` needs to write it back.

    Example:
        >>> import isobatch as ib
        >>> zoo = ib.interop.library("zoo")
        >>> text = "{n_envs: 8, n_steps: 32, batch_size: 64, n_timesteps: 1e5, policy: MlpPolicy}"
        >>> ib.interop.read(zoo, text, env="CartPole-v1").config.num_minibatches
        4
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
