"""Read another library's hyperparameters as a `Config`, and write a `Config` back in its words.

Nothing is lost on the way: a setting without a counterpart is kept as it stood and listed, and a setting keeps its
spelling (`lin_0.001`, `!!float 1e6`, a batch_size above the rollout) for as long as it still says what the config says.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from isobatch.errors import UsageError, near_matches
from isobatch.interop.keys import OUTSIDE, REQUIRED, Key, Known, find, get, leaves, put
from isobatch.settings.config import Config


@dataclass(frozen=True)
class Library:
    """How a library names the hyperparameters of policy optimization."""

    name: str
    title: str
    batch_size: str
    """What "batch size" means in it, in one sentence."""
    algorithms: Mapping[str, tuple[Key, ...]]
    """Its settings for each algorithm, in an order in which they can be read one after the other."""
    fixed: Mapping[str, Mapping[str, Any]]
    """Our settings that it always has, for each algorithm."""
    parse: Callable[[str, str | None], tuple[dict[str, Any], str | None]]
    """Text and environment -> its settings, and the environment that they are for."""
    render: Callable[[Mapping[str, Any], str | None], str]
    """Settings and environment -> text, the inverse of `parse`."""


@dataclass(frozen=True)
class Foreign:
    """Hyperparameters that came from another library."""

    library: Library
    algo: str
    env: str | None
    settings: dict[str, Any]
    """As they were given."""
    config: Config

    @property
    def kept(self) -> list[str]:
        """Settings that have no counterpart here; they are written back as they stood."""
        keys = self.library.algorithms[self.algo]
        known = {name: key for key in keys for name in key.names}
        kept = []
        for leaf in leaves(self.settings):
            key = next((key for name, key in known.items() if _within(leaf, name)), None)
            rest = key.rest(get(self.settings, leaf)) if key else ""
            kept += [leaf] if key is None else [f"{leaf} ({rest})"] if rest else []
        return kept

    def unsaid(self, after: Config) -> dict[str, Any]:
        """What changed in use and the library has no setting for: field name -> value."""
        keys = self.library.algorithms[self.algo]
        said = {f for key in keys for f in key.fields if key.default is not OUTSIDE or find(self.settings, key.names)}
        before, now = self.config.to_dict(), after.to_dict()
        idle = set() if after.proximal_policy == "ewma" else {"beta_prox"}
        return {n: now[n] for n in now if now[n] != before[n] and n not in said | idle}

    def write(self, after: Config) -> dict[str, Any]:
        """The settings that make the library do what `after` says, as far as it can."""
        return write(self.library, self.algo, after, self.settings)

    def text(self, after: Config) -> str:
        return self.library.render(self.write(after), self.env)


def read(
    library: Library,
    text: str,
    *,
    env: str | None = None,
    algo: str = "ppo",
    overrides: Mapping[str, Any] | None = None,
) -> Foreign:
    """Hyperparameters in the library's own words; `overrides` are settings of ours that win over them."""
    settings, env = library.parse(text, env)
    return from_settings(library, settings, env=env, algo=algo, overrides=overrides)


def from_settings(
    library: Library,
    settings: dict[str, Any],
    *,
    env: str | None = None,
    algo: str = "ppo",
    overrides: Mapping[str, Any] | None = None,
) -> Foreign:
    """As `read`, from a mapping that is already parsed."""
    if algo not in library.algorithms:
        known = ", ".join(library.algorithms)
        raise UsageError(f"algo={algo!r} cannot be read from {library.title}: use {known}.")
    ours: dict[str, Any] = dict(library.fixed[algo]) | {"algo": algo, "env": env or "unnamed"}
    replaced = dict(overrides or {})
    for key in library.algorithms[algo]:
        value = _raw(library.algorithms[algo], settings, key.names[0])
        if value is REQUIRED or value is OUTSIDE:
            if set(key.fields) <= set(replaced):
                continue
            flags = " and ".join("--" + field.replace("_", "-") for field in key.fields)
            raise UsageError(f"{key.names[0]} is missing from the {library.title} settings: add it, or give {flags}.")
        ours |= key.read(value, Known(ours | replaced, lambda n: _raw(library.algorithms[algo], settings, n)))
    return Foreign(library, algo, env, copy.deepcopy(settings), Config.from_dict(ours | replaced))


def write(library: Library, algo: str, config: Config, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`config` in the library's words; what stood `before` and still holds keeps its place and its spelling."""
    keys = library.algorithms[algo]
    settings: dict[str, Any] = copy.deepcopy(dict(before or {}))
    for key in keys:
        name = find(settings, key.names)
        old = get(settings, name) if name else key.default
        known = Known(config.to_dict(), lambda n: _raw(keys, settings, n))
        if old is OUTSIDE:
            continue
        if old is REQUIRED or not key.says(old, config, known):
            put(settings, name or key.names[0], key.write(config, None if old is REQUIRED else old, known))
    return settings


@dataclass(frozen=True)
class Answer:
    """A config in the words of a library."""

    library: Library
    settings: dict[str, Any]
    text: str
    kept: list[str]
    """Settings that were kept as they stood, without a counterpart here."""
    left_behind: list[str]
    """Settings of the library they came from that this one was not told."""
    unsaid: dict[str, Any]
    """Ours that this library has no setting for: field name -> value."""


def answer(after: Config, source: Foreign | None, library: Library) -> Answer:
    """`after` for `library`, where it may have come from (`source`) or not."""
    if source is not None and library is source.library:
        settings = source.write(after)
        text = library.render(settings, source.env)
        return Answer(library, settings, text, source.kept, [], source.unsaid(after))
    algo = after.algo if after.algo in library.algorithms else "ppo"
    settings = write(library, algo, after)
    outside = {f: after.to_dict()[f] for k in library.algorithms[algo] if k.default is OUTSIDE for f in k.fields}
    read_back = from_settings(library, settings, env=after.env, algo=algo, overrides=outside).config.to_dict()
    idle = {"algo"} | (set() if after.proximal_policy == "ewma" else {"beta_prox"})
    unsaid = {n: v for n, v in after.to_dict().items() if v != read_back[n] and n not in idle} | outside
    return Answer(library, settings, library.render(settings, after.env), [], source.kept if source else [], unsaid)


def _raw(keys: tuple[Key, ...], settings: Mapping[str, Any], first_name: str) -> Any:
    key = next(key for key in keys if key.names[0] == first_name)
    name = find(settings, key.names)
    return get(settings, name) if name else key.default


def _within(name: str, known: str) -> bool:
    return name == known or name.startswith(known + ".")


def find_library(name: str, libraries: Mapping[str, Library]) -> Library:
    if name not in libraries:
        raise UsageError(
            f"library {name!r} is unknown{near_matches(name, libraries) or '; use ' + ', '.join(libraries) + '.'}"
        )
    return libraries[name]
