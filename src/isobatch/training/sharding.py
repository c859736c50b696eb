"""How the seeds and the shards of a run lie on devices: a mesh with the axes `seeds` and `shards`.

The learner of a seed is replicated over its row of the mesh; its environments, and what was collected from them, are
cut along their axis. Which device has which shards changes nothing but the rounding of sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled
from jax.tree_util import GetAttrKey
from jaxtyping import Array, PyTree

from isobatch.errors import UsageError
from isobatch.learning.state import TrainState
from isobatch.networks.shards import DEVICES, HERE, one_on_each_device
from isobatch.rollouts.compiling import COMPILER_OPTIONS
from isobatch.rollouts.env_groups import LocalEnvs
from isobatch.rollouts.host_rollout import HostState, replaced
from isobatch.rollouts.segment import EnvCarry
from isobatch.settings.geometry import divisors

SEEDS = "seeds"
WHOLE = -1  # stands for the axis of environments in what every shard has in common
Tree = TypeVar("Tree", bound=PyTree)
READ = -2  # the same, of a result that every process reads


@dataclasses.dataclass(frozen=True)
class ShardLayout:
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

    def from_local(self, tree: Tree, axes: PyTree) -> Tree:
        """Arrays of all processes as one, from those of the environments that step in this process."""

        def put(axis: int, branch: PyTree) -> PyTree:
            sharding = NamedSharding(self.mesh, _spec(axis))
            return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), branch)

        return jax.tree.map(put, axes, tree)

    def local_envs(self, num_envs: int) -> LocalEnvs:
        """Those that step in this process, where environments step outside."""
        count, shards = num_envs // jax.process_count(), self.num_shards // jax.process_count()
        return LocalEnvs(count, count * jax.process_index(), shards)

    def gather(self, states: TrainState) -> TrainState:
        """Whole states, in every process; where one process has all of them, as they are."""
        if jax.process_count() == 1:
            return states
        if isinstance(states.envs.obs, np.ndarray):  # environments that step outside are known to their process alone
            axes = env_axes(states).envs
            envs = jax.tree.map(_gather_local, axes, with_equal_memory(states.envs))
            states = replaced(states, envs=jax.tree.map(np.asarray, envs))
            return replaced(jax.tree.map(_gather, replaced(states, envs=None)), envs=states.envs)
        return jax.tree.map(_gather, states)

    def shardings(self, axes: PyTree) -> PyTree:
        """How the leaves of a tree, whose axes of environments these are, lie on the mesh; seeds are in front."""
        return jax.tree.map(lambda axis: NamedSharding(self.mesh, _spec(axis)), axes)

    def compiled(
        self,
        function: Callable[..., tuple[PyTree, ...]],
        ins: tuple[PyTree, ...],
        common: int,
        outs: tuple[PyTree, ...],
        args: tuple[PyTree, ...],
        donate: int | tuple[int, ...] = (),
    ) -> Compiled:
        """A function written for a shard of a seed, for all of them, compiled for arguments of these shapes.

        `ins` and `outs` as in `over_shards`; what follows them are `common` arguments that all seeds share.
        """
        of_device = over_shards(function, (*ins, *[WHOLE] * common), outs, self.shards_here)
        same, whole = PartitionSpec(), self.replicated
        sharded = jax.shard_map(
            jax.vmap(of_device, in_axes=(*[0] * len(ins), *[None] * common)),
            mesh=self.mesh,
            in_specs=(*(jax.tree.map(_spec, axes) for axes in ins), *[same] * common),
            out_specs=tuple(jax.tree.map(_spec, axes) for axes in outs),
            check_vma=False,
        )
        jitted = jax.jit(
            sharded,
            donate_argnums=donate,
            in_shardings=(*(self.shardings(axes) for axes in ins), *[whole] * common),
            out_shardings=tuple(whole if axes == READ else self.shardings(axes) for axes in outs),
        )
        options = COMPILER_OPTIONS if self.mesh.devices.flat[0].platform == "cpu" else None
        return jitted.lower(*args).compile(compiler_options=options)


def layout_for(num_shards: int, num_seeds: int, devices: int = 0, one_row: bool = False) -> ShardLayout | None:
    """Shards on so many devices a seed, 0 for as many as there are and can be used; seeds share what is left.

    With `one_row` each of these devices has all seeds. None for a run of one shard, whose seeds alone are spread.
    """
    there, processes = jax.devices(), jax.process_count()
    check_devices(devices, num_shards, len(there), processes)
    if num_shards == 1:
        return None
    per_seed = devices or max(n for n in usable_devices(num_shards, processes) if n <= len(there))
    rows = 1 if one_row else max(n for n in divisors(num_seeds) if n * per_seed <= len(there))
    # Every process has a part of every seed, so that each can act and report for all of them.
    columns = per_seed // processes
    grid = np.array(there).reshape(processes, -1)[:, : rows * columns].reshape(processes, rows, columns)
    return ShardLayout(Mesh(np.swapaxes(grid, 0, 1).reshape(rows, per_seed), (SEEDS, DEVICES)), num_shards)


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


def _spec(axis: int) -> PartitionSpec:
    return PartitionSpec(SEEDS) if axis in (WHOLE, READ) else PartitionSpec(SEEDS, *[None] * axis, DEVICES)


def local_part(tree: PyTree, axes: PyTree) -> PyTree:
    """What this process has of arrays along their environments, in NumPy."""
    return jax.tree.map(lambda axis, branch: jax.tree.map(lambda leaf: _local_part(leaf, axis), branch), axes, tree)


def _local_part(leaf: Array, axis: int) -> np.ndarray:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    if axis == WHOLE:
        return np.asarray(leaf.addressable_data(0))
    parts = {shard.index[axis + 1].start or 0: np.asarray(shard.data) for shard in leaf.addressable_shards}
    return np.concatenate([parts[start] for start in sorted(parts)], axis=axis + 1)


def local_copy(tree: Tree) -> Tree:
    """What every device has, on one device of this process."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def is_key(leaf: PyTree) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def with_equal_memory(envs: EnvCarry) -> EnvCarry:
    """Remembered actions [S, L, N, ...], of as many steps in every process: the last ones are those of the episodes."""
    from jax.experimental import multihost_utils

    actions = np.asarray(envs.state.actions)
    longest = int(np.max(multihost_utils.process_allgather(np.array(actions.shape[1], np.int32))))
    missing = [(0, 0), (longest - actions.shape[1], 0), *[(0, 0)] * (actions.ndim - 2)]
    return replaced(envs, state=replaced(envs.state, actions=np.pad(actions, missing)))


def _gather_local(axis: int, leaf: np.ndarray) -> np.ndarray:
    """Of the environments of all processes, along their axis; seeds are in front."""
    from jax.experimental import multihost_utils

    if axis == WHOLE:
        return leaf
    every = np.asarray(multihost_utils.process_allgather(np.asarray(leaf)))
    return np.concatenate(list(every.reshape(jax.process_count(), *leaf.shape)), axis=axis + 1)


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
    if shards_here == 1:

        def of_one(*args: PyTree) -> tuple[PyTree, ...]:
            with one_on_each_device():
                return function(*args)

        return of_one
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
    return jax.tree.map(lambda axis: None if axis in (WHOLE, READ) else axis, axes)


def _each(change: Callable[[Array, int], Array], tree: PyTree, axes: PyTree) -> PyTree:
    """Changed where there is an axis of environments; `axes` may be those of whole branches."""

    def of_branch(axis: int, branch: PyTree) -> PyTree:
        return branch if axis in (WHOLE, READ) else jax.tree.map(lambda leaf: change(leaf, axis), branch)

    return jax.tree.map(of_branch, axes, tree)


def _cut(leaf: Array, axis: int, parts: int) -> Array:
    shape = leaf.shape
    return leaf.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])


def _join(leaf: Array, axis: int) -> Array:
    shape = leaf.shape
    return leaf.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
