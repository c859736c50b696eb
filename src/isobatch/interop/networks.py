"""Networks of other libraries: the layers and the activation of the policy, which the value network here has too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isobatch.errors import UsageError
from isobatch.interop.keys import Key, Known, Raw, as_is, key
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value

ACTIVATIONS = {"tanh": "tanh", "relu": "relu", "elu": "elu", "silu": "silu", "swish": "silu", "gelu": "gelu"}
"""Names that libraries have for activations, in small letters, and ours."""

NATURE: SettingsByName = {
    "encoder": "nature",
    "channels": [32, 64, 64],
    "hidden_sizes": [512],
    "activation": "relu",
    "arrangement": "shared",
}
"""The convolutions of Mnih (2015) with 512 features that policy and value share, as most libraries play Atari."""

OF_POLICY = "the value network has the policy's layers here"


def sizes(value: object) -> list[int] | None:
    """Widths of layers, or nothing where a value is something else."""
    if not isinstance(value, list | tuple) or not value:
        return None
    try:
        widths = [parse_value("a layer", width, int) for width in value]
    except UsageError:
        return None
    return widths if min(widths) > 0 else None


def layers(names: str, default: Sequence[int] | None) -> Key:
    """Widths of the policy's layers."""

    def read(value: object, known: Known) -> SettingsByName:
        widths = sizes(value)
        return {} if widths is None else {"hidden_sizes": widths}

    return key(
        names,
        "hidden_sizes",
        None if default is None else list(default),
        read,
        lambda config, old, known: like(old, config.hidden_sizes),
        lambda value: "" if value is None or sizes(value) else "no widths of layers, so it is not read",
    )


def like(old: object, widths: Sequence[int]) -> object:
    """A tuple stays one: Python files have both."""
    return tuple(widths) if isinstance(old, tuple) else list(widths)


def named(activation: object) -> str | None:
    """Our name of an activation: elu, nn.ELU, torch.nn.ELU or the class itself."""
    text = activation.__name__ if isinstance(activation, type) else str(activation)
    return ACTIVATIONS.get(text.rpartition(".")[2].lower())


def activation(names: str, default: str) -> Key:
    """The activation of the policy's layers."""

    def read(value: object, known: Known) -> SettingsByName:
        ours = named(value)
        return {} if ours is None else {"activation": ours}

    def write(config: Config, old: object, known: Known) -> object:
        return "swish" if config.activation == "silu" and default == "swish" else config.activation

    return key(
        names,
        "activation",
        default,
        read,
        write,
        lambda value: "" if named(value) else f"{value}: {Config().activation} here",
    )


def separate(names: str, default: bool, *, shared_if: bool = False) -> Key:
    """Whether policy and value have networks of their own, or share layers if it is `shared_if`."""
    first = names.split()[0]

    def read(value: object, known: Known) -> SettingsByName:
        return {"arrangement": "shared" if parse_value(first, value, bool) == shared_if else "dual"}

    return key(
        names,
        "arrangement",
        default,
        read,
        lambda config, old, known: (config.arrangement == "dual") != shared_if,
    )


def of_value(names: str, default: Sequence[int] | None) -> Key:
    """Widths of the value network's layers, which `other_value_network` speaks of."""
    return as_is(names, None if default is None else list(default))


def other_value_network(policy: str, value: str) -> Callable[[Raw], list[str]]:
    """Settings -> a sentence where the layers of the value network, by their names there, are not the policy's."""

    def sentences(raw: Raw) -> list[str]:
        ours, theirs = sizes(raw(policy)), sizes(raw(value))
        if ours is None or theirs is None or ours == theirs:
            return []
        return [f"{value} {theirs} are not {policy} {ours}: {OF_POLICY}"]

    return sentences
