"""Networks of Stable-Baselines3: `policy` and `policy_kwargs`, as arguments or as the text that rl-zoo3 evaluates.

MlpPolicy has a network each for policy and value, of two layers of 64 with tanh unless `net_arch` and `activation_fn`
say otherwise; CnnPolicy has the convolutions of Mnih (2015), and 512 features after them, for both.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from isobatch.interop.keys import Key, Known, Raw, key
from isobatch.interop.networks import NATURE, OF_POLICY, named, sizes
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName

MLP, CNN = "MlpPolicy", "CnnPolicy"
USUAL = [64, 64]
MLP_NETWORKS: SettingsByName = {"encoder": "auto", "arrangement": "dual"}
CLASSES = {"tanh": "nn.Tanh", "relu": "nn.ReLU", "elu": "nn.ELU", "silu": "nn.SiLU", "gelu": "nn.GELU"}


def policy() -> Key:
    """The kind of network; those for Dict observations and recurrent ones are taken for a plain one."""
    return key(
        "policy",
        "encoder channels hidden_sizes activation arrangement",
        MLP,
        lambda value, known: NATURE if value == CNN else MLP_NETWORKS,
        lambda config, old, known: CNN if config.encoder == NATURE["encoder"] else old or MLP,
        lambda value: "" if value in (MLP, CNN) else f"{value}: another network here",
    )


def policy_kwargs() -> Key:
    """`net_arch` and `activation_fn`; the rest of it is kept."""

    def read(value: object, known: Known) -> SettingsByName:
        parts = arguments(value)
        if known.raw("policy") == CNN:
            return {}
        ours = _activation(parts)
        widths = _of("pi", parts)
        return ({"hidden_sizes": widths} if widths else {}) | ({"activation": ours} if ours else {})

    def write(config: Config, old: object, known: Known) -> object:
        if known.raw("policy") == CNN or arguments(old):
            return old  # of arguments that were given, what is not the network's would be lost
        widths = list(config.hidden_sizes)
        parts = [f"net_arch=dict(pi={widths}, vf={widths})"] if widths != USUAL else []
        parts += [f"activation_fn={CLASSES[config.activation]}"] if config.activation != "tanh" else []
        return f"dict({', '.join(parts)})" if parts else old

    return key("policy_kwargs", "hidden_sizes activation", None, read, write, _rest)


def _rest(value: object) -> str:
    """What of the arguments is not read."""
    parts = arguments(value)
    read = {"net_arch": _of("pi", parts), "activation_fn": _activation(parts)}
    return ", ".join(sorted(name for name in parts if not read.get(name)))


def other_networks(raw: Raw) -> list[str]:
    """What is known of a network there, and is another one here."""
    parts, sentences = arguments(raw("policy_kwargs")), []
    ours, theirs = _of("pi", parts), _of("vf", parts)
    if raw("policy") == CNN and parts.keys() & {"net_arch", "activation_fn"}:
        sentences.append(
            "net_arch and activation_fn of policy_kwargs come after the 512 features of CnnPolicy there; here policy "
            "and value are linear in them"
        )
    elif ours and theirs and ours != theirs:
        sentences.append(f"net_arch has vf={theirs} and pi={ours}: {OF_POLICY}")
    return sentences


def _activation(parts: Mapping[str, object]) -> str | None:
    return named(parts.get("activation_fn", "tanh"))


def _of(network: str, parts: Mapping[str, object]) -> list[int] | None:
    """Widths of policy (pi) or value (vf): one list for both, a dict of two, or that dict in a list, as it once was."""
    given = parts.get("net_arch", USUAL)
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], Mapping):
        given = given[0]
    return sizes(given.get(network) if isinstance(given, Mapping) else given)


def arguments(value: object) -> SettingsByName:
    """The arguments of a policy: a mapping, or the text `dict(net_arch=..., activation_fn=nn.ReLU)`, never executed."""
    if isinstance(value, Mapping):
        return dict(value)
    try:
        node = ast.parse(value.strip(), mode="eval").body if isinstance(value, str) else None
    except SyntaxError:
        node = None
    made = _plain(node)
    return made if isinstance(made, dict) else {}


def _plain(node: ast.expr | None) -> object:
    """A value without names, or the text of what has some."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {str(word.arg): _plain(word.value) for word in node.keywords}
    if isinstance(node, ast.Dict) and all(isinstance(name, ast.Constant) for name in node.keys):
        names = [str(name.value) for name in node.keys if isinstance(name, ast.Constant)]
        return dict(zip(names, map(_plain, node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(part) for part in node.elts]
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node) if node else None
