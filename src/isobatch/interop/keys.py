"""One setting of another library and what it says in our terms, and nested mappings addressed by dotted names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from isobatch.errors import UsageError, brief
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.geometry import divisors
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.schedules import ADAPTIVE

REQUIRED = object()
"""Default of a setting that has none."""
OUTSIDE = object()
"""Default of a setting that is not the library's own to make: it has to be given beside its file."""

UNNAMED = "unnamed"
"""Environment of settings that do not say theirs."""

Raw = Callable[[str], object]
"""Settings of theirs, by the first of their names; the default where one is not given."""


@dataclass(frozen=True)
class Known:
    """What is known while a setting is read or written."""

    settings: Mapping[str, object]
    """Ours, by field name."""
    raw: Raw
    before: Config | None = None
    """Ours as they were read, where they are being changed."""

    def size(self, name: str) -> int:
        """A size of ours."""
        return parse_value(name, self.settings[name], int)

    @property
    def samples(self) -> int:
        """Of an iteration."""
        return self.size("num_envs") * self.size("num_steps")


Read = Callable[[object, Known], SettingsByName]
Write = Callable[[Config, object, Known], object]


def nothing_more(value: object) -> str:
    return ""


@dataclass(frozen=True)
class Key:
    """A setting of theirs. `read` and `write` are each other's inverse as far as the library can say it."""

    names: tuple[str, ...]
    """Today's name first, then older ones; dots for nesting."""
    fields: tuple[str, ...]
    """Fields of ours that it decides."""
    default: object
    """What the library takes when it is not given."""
    read: Read
    write: Write
    """Their value from our config and from what stood there before."""
    rest: Callable[[object], str] = nothing_more
    """What a value says beyond our fields, in a word; it is kept."""
    absent: Callable[[object], bool] = lambda value: False
    """Whether a value says that it is to be filled in by a script."""

    def is_outside(self, value: object) -> bool:
        """Whether the setting is made elsewhere, so that it has to be given beside the file."""
        return value is OUTSIDE or (value is not REQUIRED and self.absent(value))

    def says(self, value: object, config: Config, known: Known) -> bool:
        """Whether this spelling of the setting means what `config` says."""
        try:
            read = self.read(value, known)
        except UsageError:
            return False
        flat = config.to_dict()
        return all(flat[name] == meaning for name, meaning in read.items())


def key(
    names: str, fields: str, default: object, read: Read, write: Write, rest: Callable[[object], str] = nothing_more
) -> Key:
    """A key from names and fields between blanks."""
    return Key(tuple(names.split()), tuple(fields.split()), default, read, write, rest)


def as_is(names: str, default: object, rest: Callable[[object], str] = nothing_more) -> Key:
    """A setting that others are read with, or that has a meaning we know and no counterpart: it never changes."""
    return key(names, "", default, lambda value, known: {}, lambda config, old, known: old, rest)


def whole(names: str, field: str, default: object) -> Key:
    """A size that is called otherwise."""
    first = names.split()[0]
    return key(
        names,
        field,
        default,
        lambda value, known: {field: parse_value(first, value, int)},
        lambda config, old, known: config.to_dict()[field],
    )


def number(names: str, field: str, default: object, times: float = 1.0) -> Key:
    """A hyperparameter that is called otherwise; ours is `times` theirs."""
    first = names.split()[0]
    return key(
        names,
        field,
        default,
        lambda value, known: {field: parse_value(first, value, float) * times},
        lambda config, old, known: getattr(config.hypers, field) / times,
    )


def bound(names: str, field: str, default: object, off: object = None) -> Key:
    """A limit that `off` (nothing, or for a number also whatever is below it) switches off; ours is then infinite."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        size = 0.0 if value is None else parse_value(first, value, float)
        return {field: size if size > 0 else INF}

    def write(config: Config, old: object, known: Known) -> object:
        size = getattr(config.hypers, field)
        return off if size == INF else size

    return key(names, field, default, read, write)


def value_clip(names: str, default: object, off: object = None) -> Key:
    """The range in which the value loss may clip, or `off`."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        size = 0.0 if value is None else parse_value(first, value, float)
        return {"clip_value_loss": True, "value_clip_eps": size} if size > 0 else {"clip_value_loss": False}

    def write(config: Config, old: object, known: Known) -> object:
        return config.hypers.value_clip_eps if config.clip_value_loss else off

    return key(names, "clip_value_loss value_clip_eps", default, read, write)


def one_clip(names: str, default: object) -> Key:
    """One range for the policy's ratio and for the value loss, where that is clipped at all."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        size = parse_value(first, value, float)
        return {"clip_eps": size, "value_clip_eps": size}

    return key(names, "clip_eps value_clip_eps", default, read, lambda config, old, known: config.hypers.clip_eps)


def adaptive(names: str, default: object, on: object, off: object) -> Key:
    """A schedule of the learning rate that follows the KL divergence, or whatever else there is."""

    def write(config: Config, old: object, known: Known) -> object:
        if config.lr_schedule == ADAPTIVE:
            return on
        return off if old == on or old is None else old

    return key(
        names,
        "lr_schedule",
        default,
        lambda value, known: {"lr_schedule": ADAPTIVE if value == on else "constant"},
        write,
    )


def stop_at(names: str, default: object, times: float, off: object = None) -> Key:
    """A KL divergence at which the gradient steps of an iteration end: ours end at 1.5 times `target_kl`."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        target = 0.0 if value in (None, "None") else parse_value(first, value, float)
        return {"stop_at_target_kl": True, "target_kl": target * times} if target else {"stop_at_target_kl": False}

    def write(config: Config, old: object, known: Known) -> object:
        return config.hypers.target_kl / times if config.stop_at_target_kl else off

    return key(names, "stop_at_target_kl target_kl", default, read, write)


def choice(names: str, field: str, default: object, on: object, off: object, other: bool = True) -> Key:
    """A switch of theirs that chooses between two values of ours; `other` is what is nearest to a third one.

    Advantages that are normalized over other samples are not advantages that are not normalized.
    """
    first = names.split()[0]
    return key(
        names,
        field,
        default,
        lambda value, known: {field: on if parse_value(first, value, bool) else off},
        lambda config, old, known: config.to_dict()[field] != off if other else config.to_dict()[field] == on,
    )


def environment(names: str, default: str | None) -> Key:
    """The name of the environment, as Gymnasium has it."""
    return key(
        names,
        "env",
        default,
        lambda value, known: {"env": str(value)},
        lambda config, old, known: old if config.env == UNNAMED else bare_name(config.env),
    )


def bare_name(env: str) -> str:
    """The name of an environment without the backend that we put before it."""
    return env.removeprefix("gymnasium/").removeprefix("envpool/")


def rollout(names: str, default: object, shares: Callable[[Known], int] = lambda known: 1) -> Key:
    """The samples of an iteration, of all environments, in equal `shares` of which the setting is one; T follows."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        total, envs = parse_value(first, value, int) * shares(known), known.size("num_envs")
        if total < 1 or total % envs:
            low = total // envs * envs
            near = " or ".join(str(size) for size in (low, low + envs) if size > 0)
            raise UsageError(
                f"{first}={value} is not a whole number of steps for {envs} environments: use a total of {near}."
            )
        return {"num_steps": total // envs}

    return key(
        names,
        "num_steps",
        default,
        read,
        lambda config, old, known: share(config.geometry.iteration_batch, shares(known), first),
    )


def minibatch_size(
    names: str,
    default: object,
    where: str,
    shares: Callable[[Known], int] = lambda known: 1,
    *,
    at_most_all: bool = False,
) -> Key:
    """The samples of a gradient step; `at_most_all`: more than there are means all of them."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        samples = known.samples
        size = parse_value(first, value, int) * shares(known)
        if known.before and samples < size <= known.before.geometry.iteration_batch:
            raise UsageError(f"{first}={size} said a size, not all of the rollout: write the new one.")
        return {"num_minibatches": minibatch_count(first, min(size, samples) if at_most_all else size, samples, where)}

    return key(
        names,
        "num_minibatches",
        default,
        read,
        lambda config, old, known: share(config.geometry.optimization_batch, shares(known), first),
    )


def share(total: int, parts: int, name: str) -> int:
    if total % parts:
        raise UsageError(f"{name}: {total} samples cannot be shared by {parts}; choose another size.")
    return total // parts


def minibatch_count(name: str, size: int, iteration_batch: int, where: str) -> int:
    """How many minibatches of `size` samples an iteration has; libraries that allow a rest are asked not to."""
    if size < 1 or iteration_batch % size:
        near = sorted(sorted(divisors(iteration_batch), key=lambda d: abs(d - size))[:2])
        raise UsageError(
            f"{name}={size} does not evenly divide {where} = {iteration_batch}, so its last minibatch would be "
            f"smaller than the others; use {' or '.join(map(str, near))}."
        )
    return iteration_batch // size


def iterations(names: str, default: object, steps: Callable[[Known], int] | None = None) -> Key:
    """The length of a run in iterations, or in units of so many environment `steps`."""
    first = names.split()[0]

    def unit(known: Known) -> int:
        return steps(known) if steps else known.samples

    return key(
        names,
        "total_timesteps",
        default,
        lambda value, known: {"total_timesteps": parse_value(first, value, int) * unit(known)},
        lambda config, old, known: math.ceil(config.total_timesteps / unit(known)),
    )


def tidy(value: object) -> object:
    """A number without the last digits that arithmetic left: 0.00030000000000000003 is 0.0003."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    short = float(f"{value:.12g}")
    return short if math.isclose(short, value, rel_tol=1e-14) else value


def find(mapping: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    """The first of these dotted names that the mapping holds."""
    return next((name for name in names if _holder(mapping, name) is not None), None)


def get(mapping: Mapping[str, object], name: str) -> object:
    holder = _holder(mapping, name)
    assert holder is not None
    return holder[name.rpartition(".")[2]]


def put(mapping: SettingsByName, name: str, value: object) -> None:
    """Set a dotted name, making the mappings on the way."""
    *way, last = name.split(".")
    for part in way:
        if mapping.get(part) is None:
            mapping[part] = {}
        inner = mapping[part]
        if not isinstance(inner, dict):
            raise UsageError(f"{name} cannot be written: {part}={brief(inner)} is no mapping; make it one.")
        mapping = inner
    mapping[last] = value


def leaves(mapping: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Everything that is not a mapping itself, by dotted names, which may not lead back: a key can have a dot in it."""
    for name, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _holder(mapping: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    *way, last = name.split(".")
    for part in way:
        inner = mapping.get(part)
        if not isinstance(inner, Mapping):
            return None
        mapping = inner
    return mapping if last in mapping else None
