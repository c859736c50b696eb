"""How the seeds and the shards of a run lie on devices: a mesh with the axes `seeds` and `shards`.

The learner of a seed is replicated over its row of the mesh; its environments, and what was collected from them, are
cut along their axis. Which device has which shards changes nothing but the rounding of sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import GetAttrKey
from jaxtyping import Array, PyTree

from isobatch.errors import UsageError
from isobatch.learning.state import TrainState
from isobatch.networks.shards import DEVICES, HERE
from isobatch.rollouts.host_rollout import HostState
from isobatch.settings.geometry import divisors

SEEDS = "seeds"
WHOLE = -1  # stands for the axis of environments in what every shard has in common


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the shards of a run are."""

    mesh: Mesh
    num_shards: int

    @property
    def shards_here(self) -> int:
        """On each device."""
        return self.num_shards // self.mesh.shape[DEVICES]

    @property
    def replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    def place(self, states: TrainState) -> TrainState:
        """States that may lie anywhere, where they belong. All processes have all of them."""
        shardings = self.shardings(env_axes(states))
        if jax.process_count() == 1:
            return jax.device_put(states, shardings)

        def place(leaf: Array, sharding: NamedSharding) -> Array:
            if is_key(leaf):
                return jax.random.wrap_key_data(place(jax.random.key_data(leaf), sharding))
            whole = np.asarray(leaf)
            return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

        return jax.tree.map(place, states, shardings)

    def gather(self, states: TrainState) -> TrainState:
        """Whole states, in every process; where one process has all of them, as they are."""
        return states if jax.process_count() == 1 else jax.tree.map(_gather, states)

    def specs(self, axes: PyTree) -> PyTree:
        """How the leaves of a tree, whose axes of environments these are, lie on the mesh; seeds are in front."""
        return jax.tree.map(lambda axis: PartitionSpec(SEEDS, *[None] * axis, *[DEVICES] * (axis != WHOLE)), axes)

    def shardings(self, axes: PyTree) -> PyTree:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs(axes))


def layout_for(num_shards: int, num_seeds: int, devices: int = 0) -> Layout | None:
    """Shards on so many devices a seed, 0 for as many as there are and can be used; seeds share what is left.

    None for a run of one shard, whose seeds alone are spread over devices.
    """
    there, processes = jax.devices(), jax.process_count()
    check_devices(devices, num_shards, len(there), processes)
    if num_shards == 1:
        return None
    per_seed = devices or max(n for n in usable_devices(num_shards, processes) if n <= len(there))
    rows = max(n for n in divisors(num_seeds) if n * per_seed <= len(there))
    # Every process has a part of every seed, so that each can act and report for all of them.
    columns = per_seed // processes
    grid = np.array(there).reshape(processes, -1)[:, : rows * columns].reshape(processes, rows, columns)
    return Layout(Mesh(np.swapaxes(grid, 0, 1).reshape(rows, per_seed), (SEEDS, DEVICES)), num_shards)


def usable_devices(num_shards: int, processes: int) -> list[int]:
    """The numbers of devices that can share so many shards evenly, as many in each process."""
    return [n for n in divisors(num_shards) if n % processes == 0]


def check_devices(devices: int, num_shards: int, there: int, processes: int = 1) -> None:
    """Raise unless so many devices exist and can share the shards evenly."""
    if num_shards % processes:
        raise UsageError(
            f"num_shards={num_shards} cannot be shared by {processes} processes evenly: use a multiple of {processes}."
        )
    if devices > there:
        raise UsageError(
            f"devices={devices}: JAX has {there} here. Use at most that, or for several on a CPU set "
            f"JAX_NUM_CPU_DEVICES={devices} before JAX starts."
        )
    if devices and devices not in usable_devices(num_shards, processes):
        usable = " or ".join(str(n) for n in usable_devices(num_shards, processes) if n <= there)
        raise UsageError(
            f"devices={devices} cannot share the num_shards={num_shards} of this run evenly: use {usable}."
        )


def is_key(leaf: PyTree) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _gather(leaf: Array) -> Array:
    from jax.experimental import multihost_utils

    if is_key(leaf):
        return jax.random.wrap_key_data(_gather(jax.random.key_data(leaf)))
    return multihost_utils.process_allgather(leaf, tiled=True)


def env_axes(state: TrainState) -> PyTree:
    """For each leaf of a seed's state the axis of its environments, or WHOLE."""
    host = {"run_seed": WHOLE, "actions": 1} if isinstance(state.envs.state, HostState) else {}

    def axis(path: tuple[GetAttrKey, ...], _: Array) -> int:
        match [getattr(key, "name", "") for key in path]:
            case ["envs", "state", name]:
                return host.get(name, 0)
            case ["envs", *_] | ["learning", "reward_scale", "discounted_return"]:
                return 0
            case ["queue", *_] | ["learning", "phase", *_]:  # iterations and steps are in front
                return 2
        return WHOLE

    return jax.tree_util.tree_map_with_path(axis, state)


def over_shards(
    function: Callable[..., tuple[PyTree, ...]], ins: tuple[PyTree, ...], outs: tuple[PyTree, ...], shards_here: int
) -> Callable[..., tuple[PyTree, ...]]:
    """A function written for a shard, for all shards of a device.

    `ins` and `outs` are the axes of environments of its arguments and results: for each a tree like it, or WHOLE alone
    for what is common to all shards.
    """
    mapped = jax.vmap(function, _for_vmap(ins), _for_vmap(outs), axis_name=HERE, axis_size=shards_here)

    def of_all(*args: PyTree) -> tuple[PyTree, ...]:
        parts = [_each(lambda leaf, axis: _cut(leaf, axis, shards_here), *pair) for pair in zip(args, ins, strict=True)]
        return tuple(_each(_join, *pair) for pair in zip(mapped(*parts), outs, strict=True))

    return of_all


def on_one_device(
    function: Callable[..., tuple[PyTree, ...]], ins: tuple[PyTree, ...], outs: tuple[PyTree, ...], num_shards: int
) -> Callable[..., tuple[PyTree, ...]]:
    """`over_shards`, of all of them, for a program without a mesh."""
    of_all = over_shards(function, ins, outs, num_shards)
    alone = jax.vmap(of_all, in_axes=None, axis_name=DEVICES, axis_size=1)
    return lambda *args: jax.tree.map(lambda leaf: leaf[0], alone(*args))


def _for_vmap(axes: PyTree) -> PyTree:
    return jax.tree.map(lambda axis: None if axis == WHOLE else axis, axes)


def _each(change: Callable[[Array, int], Array], tree: PyTree, axes: PyTree) -> PyTree:
    """Changed where there is an axis of environments."""
    if axes is WHOLE:
        return tree
    return jax.tree.map(lambda axis, leaf: leaf if axis == WHOLE else change(leaf, axis), axes, tree)


def _cut(leaf: Array, axis: int, parts: int) -> Array:
    shape = leaf.shape
    return leaf.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])


def _join(leaf: Array, axis: int) -> Array:
    shape = leaf.shape
    return leaf.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
