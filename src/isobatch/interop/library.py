"""Read another library's hyperparameters as a `Config`, and write a `Config` back in its words.

A setting without a counterpart is kept as it stood and listed. A setting keeps its spelling (`lin_0.001`,
`!!float 1e6`, a batch_size above the rollout) for as long as it still says what the config says, and a text that
settings were read from is changed only where they change. What a library has no words for is listed, with what happens
there instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from isobatch.advice.kl_control import KlControl
from isobatch.errors import UsageError, near_matches
from isobatch.interop.form import FLAT_YAML, Form
from isobatch.interop.keys import REQUIRED, UNNAMED, Key, Known, Raw, bare_name, find, get, leaves, put, tidy
from isobatch.interop.unsaid import consequence, unsaid
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName

# The clip ranges of most libraries.
CONSTANT_RANGES: Mapping[str, object] = dict(clip_schedule="constant", value_clip_schedule="constant")
# What PPO is wherever nothing else is said; PyTorch's epsilon.
CLIPPED_PPO: Mapping[str, object] = dict(
    CONSTANT_RANGES, objective="clip", proximal_policy="behavior", optimizer="adam", optimizer_eps=1e-8
)


@dataclass(frozen=True)
class Library:
    """How a library names the hyperparameters of policy optimization."""

    name: str
    title: str
    batch_size: str
    """What "batch size" means in it, in one sentence."""
    algorithms: Mapping[str, tuple[Key, ...]]
    """Its settings for each algorithm, in an order in which they can be read one after the other."""
    fixed: Mapping[str, Mapping[str, object]]
    """Our settings that it always has, for each algorithm."""
    form: Form = FLAT_YAML
    """How its files are read and changed."""
    control: Callable[[Raw], KlControl | None] = lambda raw: None
    """Its settings by name -> what steers by the KL divergence, if anything does."""
    remarks: Callable[[Raw], list[str]] = lambda raw: []
    """Its settings by name -> what the rules, or a run here, do not know of them."""
    only_there: Callable[[Raw], list[str]] = lambda raw: []
    """Its settings by name -> what a run elsewhere would not have of them, though they were read."""
    differences: Callable[[Config], list[str]] = lambda config: []
    """What it computes otherwise than we do from the same settings, each with its size."""
    rounds_up: bool = False
    """Whether a run that is no whole number of iterations has one more; ours has one less."""


@dataclass(frozen=True)
class LibrarySettings:
    """Hyperparameters that came from another library."""

    library: Library
    algo: str
    env: str | None
    settings: SettingsByName
    """As they were given."""
    config: Config
    source: str | None = None
    """The text that they were read from."""
    overridden: frozenset[str] = frozenset()
    """Settings of ours that were given beside them."""

    @property
    def kept(self) -> list[str]:
        """Settings that have no counterpart here; they are written back as they stood."""
        known = self._known()
        kept = []
        for leaf, _ in leaves(self.settings):
            name = next((name for name in known if _within(leaf, name) and find(self.settings, (name,))), None)
            rest = known[name].rest(get(self.settings, name)) if name else ""
            kept += [leaf] if name is None else [f"{name} ({rest})"] if rest else []
        return list(dict.fromkeys(kept))  # a mapping has several leaves

    @property
    def doubtful(self) -> list[str]:
        """Settings that are not known and are spelled almost like one that is known and was not given."""
        known = self._known()
        absent = [name for name, key in known.items() if not find(self.settings, key.names)]
        unknown = [leaf for leaf, _ in leaves(self.settings) if not any(_within(leaf, name) for name in known)]
        hints = {leaf: near_matches(leaf, absent, cutoff=0.85) for leaf in unknown}
        return [f"{leaf} is not a setting of {self.library.title}{hint}" for leaf, hint in hints.items() if hint]

    @property
    def control(self) -> KlControl | None:
        """What steers the step size by the KL divergence, if anything does."""
        return self.library.control(self._setting)

    @property
    def remarks(self) -> list[str]:
        """What the rules, or a run here, do not know of these settings, and whose they are."""
        shared = self.library.form.shared(self.source, self.env) if self.source else None
        whose = (
            f"{self.env} has no settings of its own in the file: it takes those of {shared!r}, and what changes there "
            "changes for all that take them"
        )
        return [*([whose] if shared else []), *self.library.remarks(self._setting)]

    @property
    def only_there(self) -> list[str]:
        """What a run elsewhere would not have of settings that were read."""
        return self.library.only_there(self._setting)

    def _setting(self, name: str) -> object:
        return _raw(self.library.algorithms[self.algo], self.settings, name)

    def _known(self) -> dict[str, Key]:
        return {name: key for key in self.library.algorithms[self.algo] for name in key.names}

    def write(self, after: Config) -> SettingsByName:
        """The settings that make the library do what `after` says, as far as it can."""
        return write(self.library, self.algo, after, self.settings, self.config)

    def text(self, after: Config) -> str:
        """The text that they were read from, with the settings of `after`."""
        settings = self.write(after)
        if self.source is None:
            return self.library.form.render(settings, self.env)
        edited = self.library.form.edit(self.source.replace("\r\n", "\n"), settings, self.env)
        return edited.replace("\n", "\r\n") if "\r\n" in self.source else edited


def from_settings(
    library: Library,
    settings: SettingsByName,
    *,
    env: str | None = None,
    algo: str = "ppo",
    overrides: Mapping[str, object] | None = None,
) -> LibrarySettings:
    """As `read`, from a mapping that is already parsed.

    Args:
        library: of `library(name)`.
        settings: hyperparameters in its words, by name.
        env: an environment.
        algo: ppo, or another one that the library has.
        overrides: settings of ours that win over them.

    Returns:
        Its `config` here, and what `answer` needs to write it back.

    Example:
        >>> import isobatch as ib
        >>> settings = dict(n_envs=8, n_steps=32, batch_size=64, n_timesteps=100_000)
        >>> ib.interop.from_settings(ib.interop.library("zoo"), settings, env="CartPole-v1").config.num_minibatches
        4
    """
    if algo not in library.algorithms:
        known = ", ".join(library.algorithms)
        raise UsageError(f"algo={algo!r} cannot be read from {library.title}: use {known}.")
    keys, replaced = library.algorithms[algo], dict(overrides or {})
    ours: SettingsByName = dict(library.fixed[algo]) | {"algo": algo, "env": env or UNNAMED}
    for key in keys:
        value = _raw(keys, settings, key.names[0])
        if key.fields and set(key.fields) <= set(replaced):
            continue  # what is said beside the file need not be right in it
        if value is REQUIRED or key.is_outside(value):
            flags = " and ".join("--" + field.replace("_", "-") for field in key.fields)
            raise UsageError(f"{key.names[0]} is missing from the {library.title} settings: add it, or give {flags}.")
        ours |= key.read(value, Known(ours | replaced, lambda n: _raw(keys, settings, n)))
    config = Config.from_dict(ours | replaced)
    return LibrarySettings(library, algo, env, copy.deepcopy(settings), config, overridden=frozenset(replaced))


def write(
    library: Library,
    algo: str,
    config: Config,
    before: Mapping[str, object] | None = None,
    config_before: Config | None = None,
) -> SettingsByName:
    """A config in a library's words; what stood `before` and still holds keeps its place and its spelling.

    Args:
        library: of `library(name)`.
        algo: one that the library has.
        config: what to write.
        before: its settings so far, if there are any.
        config_before: the config that they were read as.

    Returns:
        Its settings by name.

    Example:
        >>> import isobatch as ib
        >>> config = ib.preset("ppo", "CartPole-v1", num_envs=8, num_steps=32, num_minibatches=2)
        >>> ib.interop.write(ib.interop.library("zoo"), "ppo", config)["batch_size"]
        128
    """
    keys = library.algorithms[algo]
    settings: SettingsByName = copy.deepcopy(dict(before or {}))
    for key in keys:
        name = find(settings, key.names)
        old = get(settings, name) if name else key.default
        known = Known(config.to_dict(), lambda n: _raw(keys, settings, n), config_before)
        if key.is_outside(old):
            continue
        if old is REQUIRED or not key.says(old, config, known):
            value = tidy(key.write(config, None if old is REQUIRED else old, known))
            if name or value != old:  # a default that is as near as the library gets needs no words
                put(settings, name or key.names[0], value)
    return settings


@dataclass(frozen=True)
class Answer:
    """A config in the words of a library."""

    library: Library
    settings: SettingsByName
    text: str
    """Their whole text: a file that they came from, with the changes in it."""
    excerpt: str
    """The part of the text that is about this config."""
    kept: list[str]
    """Settings that were kept as they stood, without a counterpart here."""
    left_behind: list[str]
    """Settings of the library they came from that this one was not told."""
    unsaid: SettingsByName
    """Ours that this library has no setting for: field name -> value."""
    consequences: dict[str, str]
    """What happens there to each of them."""
    also_changed: list[str]
    """Other environments of the file that take settings from this one, and changed with it."""
    differences: list[str]
    """What this library computes otherwise than the one the settings came from, or than isobatch."""


def answer(after: Config, source: LibrarySettings | None, library: Library) -> Answer:
    """A config for a library, with what it has no words for and what it computes otherwise.

    Args:
        after: what to write.
        source: what it came from, if it was read from a library, this one or another.
        library: the one it is for.

    Returns:
        `text` and `settings` in its words; `unsaid`, `kept`, `left_behind` and `differences`.

    Example:
        >>> import isobatch as ib
        >>> zoo = ib.interop.library("zoo")
        >>> text = "{n_envs: 8, n_steps: 32, batch_size: 64, n_timesteps: 1e5}"
        >>> before = ib.interop.read(zoo, text, env="CartPole-v1")
        >>> after = ib.rescale(before.config, num_envs=4, keep="minibatch-count").after
        >>> ib.interop.answer(after, before, zoo).settings["batch_size"]
        32
    """
    kept: list[str] = []
    left_behind: list[str] = []
    also_changed: list[str] = []
    kept_here = source is not None and library is source.library
    if source is not None and kept_here:
        algo, env, kept = source.algo, source.env, source.kept
        settings, text = source.write(after), source.text(after)
        if source.source is not None:
            also_changed = library.form.side_effects(source.source, text, env)
    else:
        algo, env = after.algo if after.algo in library.algorithms else "ppo", bare_name(after.env)
        left_behind = [*source.kept, *source.only_there] if source else []
        settings = write(library, algo, after)
        text = library.form.render(settings, env)
    keys, ours = library.algorithms[algo], after.to_dict()
    not_in_file = [key for key in keys if key.is_outside(_raw(keys, settings, key.names[0]))]
    outside = {field: ours[field] for key in not_in_file for field in key.fields}
    beside = {name: ours[name] for name in source.overridden & {"num_envs"}} if source and kept_here else {}
    there = from_settings(library, settings, env=env, algo=algo, overrides=outside | beside).config
    missing = unsaid(after, there) | outside
    known = ({f for key in keys for f in key.fields} | set(library.fixed[algo])) - set(outside)
    return Answer(
        library=library,
        settings=settings,
        text=text,
        excerpt=library.form.excerpt(text, env),
        kept=kept,
        left_behind=left_behind,
        unsaid=missing,
        consequences={name: consequence(name, there, known=name in known, title=library.title) for name in missing},
        also_changed=also_changed,
        differences=[] if source and source.library is library else library.differences(there),
    )


def _raw(keys: tuple[Key, ...], settings: Mapping[str, object], first_name: str) -> object:
    key = next((key for key in keys if key.names[0] == first_name), None)
    if key is None:
        return None
    name = find(settings, key.names)
    return get(settings, name) if name else key.default


def _within(name: str, known: str) -> bool:
    return name == known or name.startswith(known + ".")
