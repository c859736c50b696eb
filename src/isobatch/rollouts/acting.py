"""The policies of all seeds, compiled to act for environments that step outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
from jaxtyping import Array, PyTree

from isobatch.envs.host_interface import HostEnvironment, XlaStepper
from isobatch.networks.actor_critic import Networks
from isobatch.networks.moments import Moments
from isobatch.rollouts.collector import Actor, Collector, Scanned
from isobatch.rollouts.compiling import compile_for, not_kept
from isobatch.rollouts.env_groups import LocalEnvs, group_columns
from isobatch.rollouts.host_rollout import PolicyOutput, choose, value
from isobatch.rollouts.packing import Packing, packed
from isobatch.rollouts.scan_steps import scan_length, scan_steps

# With the normalizer of observations, and where these are clipped.
Policy = tuple[Networks, Moments | None, Array | float]


class Acting:
    """Compiled functions for environments that look like these. Called with arrays of other shapes they fail."""

    def __init__(self, env: HostEnvironment, here: LocalEnvs, policy: Policy) -> None:
        self.env, self.here = env, here
        # Flat: to take networks apart at every step would take as long as to compute with small ones.
        leaves, self._structure = jax.tree.flatten(policy)
        self._seeds = leaves[0].shape[0]
        groups = group_columns(env, here.count, here.shards)
        self.num_groups = len(groups)
        key = jax.eval_shape(lambda: jax.random.key_data(jax.random.split(jax.random.key(0), self._seeds)))
        # The groups are equal: one program serves all.
        self._inputs = jax.eval_shape(lambda *args: args, leaves, key, self.raw(groups[0].stop))
        self.choose_packed = compile_for(self._choose_packed, *self._inputs)
        everyone = jax.eval_shape(lambda *args: args, *policy, self.raw(here.count))
        self.value = compile_for(jax.vmap(value), *everyone)
        self.output = jax.eval_shape(self.choose, leaves, key, self.raw(here.count))[1]
        self.packing = Packing(jax.eval_shape(lambda o: jax.tree.map(lambda leaf: leaf[0], o), self.output))

    def raw(self, *shape: int) -> jax.ShapeDtypeStruct:
        """The shape and type of observations [S, *shape, ...] as they come."""
        return jax.ShapeDtypeStruct((self._seeds, *shape, *self.env.obs_shape), self.env.obs_dtype)

    def choose(self, leaves: list[Array], keys: Array, obs: Array) -> tuple[Array, PolicyOutput]:
        networks, moments, clip = jax.tree.unflatten(self._structure, leaves)
        return jax.vmap(partial(choose, self.env))(networks, moments, clip, keys, obs)

    def _choose_packed(self, leaves: list[Array], keys: Array, obs: Array) -> tuple[Array, Array]:
        keys, output = self.choose(leaves, keys, obs)
        return keys, jax.vmap(packed)(output)

    def stepping(self, collector: Collector) -> Stepping:
        """For the running environments of a collector: with steps from inside a program, where these can be had."""
        steps, xla_steppers = collector.config.num_steps, collector.xla_steppers()
        if xla_steppers is None:
            return Stepping(self)
        length = scan_length(steps)
        return Stepping(self, self._scan_steps(xla_steppers, length), length)

    def _scan_steps(self, xla_steppers: list[XlaStepper], length: int) -> Callable[..., Scanned]:
        """`Actor.scan_steps`, of leaves too, for these very environments: their addresses are in the program."""
        leaves, key, obs = self._inputs
        handles, groups = [stepper.handle for stepper in xla_steppers], len(xla_steppers)
        steps = partial(scan_steps, xla_steppers, length, self.choose)
        with not_kept():
            compiled = compile_for(steps, leaves, handles, [key] * groups, [obs] * groups)
        return lambda leaves, keys, obs: compiled(leaves, handles, keys, obs)


class Stepping:
    """How policies act for environments that are running: step by step, or many steps in one call."""

    def __init__(self, acting: Acting, scan_steps: Callable[..., Scanned] | None = None, at_once: int = 1) -> None:
        self._acting, self._scan_steps = acting, scan_steps
        self.at_once = at_once  # steps of one call

    def actor(self, policy: PyTree) -> Actor:
        """Of these policies, a `Policy`."""
        acting, leaves = self._acting, jax.tree.leaves(policy)
        actor = Actor(partial(acting.choose_packed, leaves), partial(acting.value, *policy), acting.packing)
        if self._scan_steps is None:
            return actor
        return actor._replace(scan_steps=partial(self._scan_steps, leaves), at_once=self.at_once)
