"""Whether an environment that somebody wrote in JAX does what the interface asks for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.interface import Environment, State, Step
from isobatch.envs.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from isobatch.errors import UsageError, first_line

ATTRIBUTES = ("obs_shape", "obs_dtype", "action_space", "max_steps", "at_time")
SPACES = (Discrete, MultiDiscrete, MultiBinary, Box)


def check_jax_env(name: str, env: object) -> Environment:
    """The environment, after tracing a reset and a step; or a sentence about the first thing that does not fit."""
    for attribute in ATTRIBUTES:
        if not hasattr(env, attribute):
            raise _misfit(name, f"has no {attribute}", "derive it from isobatch.JaxEnvironment")
    assert isinstance(env, Environment)
    try:
        hash(env)
    except TypeError:
        raise _misfit(name, "cannot be hashed", "use a plain class or @dataclass(frozen=True)") from None
    if not isinstance(env.action_space, SPACES):
        raise _misfit(name, f"has an action_space of the kind {type(env.action_space).__name__}", "use one of isobatch")
    if not isinstance(env.max_steps, int) or env.max_steps < 1:
        raise _misfit(name, f"has max_steps={env.max_steps!r}", "use the steps of its longest episode")
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
    try:
        state, obs = jax.eval_shape(env.reset, key)
        after = jax.eval_shape(env.step, key, state, _action(env))
    except Exception as error:  # whatever a user's code raises
        what = f"cannot be traced by JAX ({type(error).__name__}: {first_line(error)})"
        raise _misfit(name, what, "reset(key) gives (state, observation), step(key, state, action) a Step") from None
    if not isinstance(after, Step):
        raise _misfit(name, f"gives a {type(after).__name__} from step", "use isobatch.Step")
    for what, shown in (("reset", obs), ("step", after.obs)):
        if tuple(shown.shape) != tuple(env.obs_shape) or shown.dtype != env.obs_dtype:
            raise _misfit(
                name,
                f"shows observations {shown.dtype}{list(shown.shape)} in {what}",
                f"obs_shape and obs_dtype say {env.obs_dtype}{list(env.obs_shape)}",
            )
    if _layout(state) != _layout(after.state):
        raise _misfit(name, "has states of other shapes or types after a step than after a reset", "make them equal")
    for field, kind in (("reward", jnp.floating), ("terminated", jnp.bool_), ("truncated", jnp.bool_)):
        value = getattr(after, field)
        if value.shape != () or not jnp.issubdtype(value.dtype, kind):
            raise _misfit(name, f"gives a {field} {value.dtype}{list(value.shape)}", "it is one number or one bool")
    return env


def _layout(tree: State) -> list[tuple[str, tuple[int, ...], np.dtype]]:
    """Path, shape and type of every array."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf.shape, leaf.dtype) for path, leaf in leaves]


def _action(env: Environment) -> jax.ShapeDtypeStruct:
    match env.action_space:
        case Box(shape):
            return jax.ShapeDtypeStruct(shape, jnp.float32)
        case MultiDiscrete(sizes):
            return jax.ShapeDtypeStruct((len(sizes),), jnp.int32)
        case MultiBinary(n):
            return jax.ShapeDtypeStruct((n,), jnp.int32)
    return jax.ShapeDtypeStruct((), jnp.int32)


def _misfit(name: str, what: str, fix: str) -> UsageError:
    return UsageError(f"env={name!r} {what}: {fix}.")
