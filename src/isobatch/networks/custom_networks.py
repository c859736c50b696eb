"""Networks of a user's own, by name, as pytrees of nothing but arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from isobatch.envs.spaces import Space
from isobatch.errors import UsageError, near_matches
from isobatch.networks.actor_critic import Networks
from isobatch.settings.config import Config

STANDARD = "standard"
Factory = Callable[[Config, tuple[int, ...], Space, int], Networks]
_REGISTERED: dict[str, Factory] = {}
P = ParamSpec("P")
R = TypeVar("R")


def register_networks(name: str, factory: Factory) -> str:
    """Let `networks=name` mean networks of one's own, in this process; returns the name.

    They train with PPO, PPO-EWMA, A2C and REINFORCE. An auxiliary phase (PPG), a diagnosis and an export need the
    layers of the networks of this package.

    Args:
        name: what `config.yaml` keeps; whoever resumes or loads a run registers the same factory first.
        factory: (config, obs_shape, action_space, seed) -> a freshly initialized `Networks`. It is called once for each
            seed, outside any compiled program, and gives networks of the same shapes for all seeds.

    Returns:
        The name, for `Config.replace(networks=...)`.

    Example:
        >>> import isobatch as ib
        >>> def wide(config, obs_shape, action_space, seed):
        ...     return ib.make_actor_critic(config.replace(hidden_sizes=(256,)), obs_shape, action_space, seed)
        >>> ib.register_networks("wide", wide)
        'wide'
    """
    if name == STANDARD:
        raise UsageError(f"name={name!r} are the networks of this package: use another name.")
    if not callable(factory):
        raise UsageError(f"factory={factory!r} is no function: use one of config, obs_shape, action_space and seed.")
    _REGISTERED[name] = factory
    return name


def registered_networks(name: str) -> Factory | None:
    return _REGISTERED.get(name)


def make_custom_networks(config: Config, obs_shape: tuple[int, ...], action_space: Space, seed: int) -> Networks:
    """What the registered function makes, checked."""
    factory = _REGISTERED.get(config.networks)
    if factory is None:
        raise UsageError(
            f"networks={config.networks!r} is not registered in this process: use {STANDARD}, or register the function "
            f"first with isobatch.register_networks{near_matches(config.networks, [STANDARD, *_REGISTERED]) or '.'}"
        )
    networks = factory(config, obs_shape, action_space, seed)
    if not isinstance(networks, Networks):
        raise UsageError(
            f"networks={config.networks!r} made a {type(networks).__name__}: derive it from isobatch.Networks."
        )
    return jax.tree_util.tree_map_with_path(only_arrays, networks)


@jax.tree_util.register_static
class StaticFunction(Generic[P, R]):
    """A function among the leaves of a module, such as the activation of `eqx.nn.MLP`: can be called, but is no leaf.

    It equals every other one of the same name in the same module: a factory may define a new one for each seed.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.name = (getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function)))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticFunction) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def only_arrays(path: jax.tree_util.KeyPath, leaf: object) -> Array | np.ndarray | StaticFunction:
    """A leaf of a user's networks that optimizers, averages and checkpoints can have: an array of real numbers."""
    if isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    if callable(leaf):
        return StaticFunction(leaf)
    where = jax.tree_util.keystr(path, simple=True, separator=".")
    raise UsageError(
        f"networks has {where}={leaf!r}, which cannot be trained: use an array of floats, or eqx.field(static=True)."
    )
