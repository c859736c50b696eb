"""Brax's PPO, and with it MuJoCo Playground: the arguments of `ppo.train`, as YAML or JSON (a run's `config.json`), or
the function of a Python file that makes them (`brax_ppo_config(env_name)`), which is never executed.

`batch_size` counts *unrolls* of `unroll_length` steps: the *optimization batch* is batch_size x unroll_length samples,
and the *iteration batch* batch_size x num_minibatches x unroll_length, whatever num_envs is. The environments make so
many unrolls one after another as that needs: T = unroll_length x batch_size x num_minibatches / num_envs, which has to
be a whole number of unrolls. So adding environments alone changes nothing but how the data is collected.

The value loss has the factor 1/2, as ours, and there is none for the clipping of values by default. Advantages are
normalized per minibatch, and computed anew with the newest value function at each gradient step, within an unroll.
"""

from __future__ import annotations

from isobatch.advice.kl_control import KlControl
from isobatch.errors import UsageError
from isobatch.interop.keys import (
    Key,
    Known,
    Raw,
    adaptive,
    as_is,
    bound,
    choice,
    key,
    number,
    value_clip,
    whole,
)
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.networks import activation, layers, of_value, other_value_network
from isobatch.interop.python_or_yaml import python_or_yaml
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.parsing import SettingsByName, parse_value

MARK = "unroll_length"
LAYERS, VALUE_LAYERS = "network_factory.policy_hidden_layer_sizes", "network_factory.value_hidden_layer_sizes"


def _int(known: Known, name: str) -> int:
    return parse_value(name, known.raw(name), int)


def _unroll() -> Key:
    """T is a whole number of unrolls; they keep their length where that is possible."""

    def read(value: object, known: Known) -> SettingsByName:
        envs = known.size("num_envs")
        unrolls = _int(known, "batch_size") * known.size("num_minibatches")
        if unrolls % envs:
            raise UsageError(
                f"batch_size x num_minibatches = {unrolls} unrolls are not a whole number for num_envs={envs} each: "
                f"use a multiple of {envs}."
            )
        return {"num_steps": unrolls // envs * parse_value(MARK, value, int)}

    def write(config: Config, old: object, known: Known) -> object:
        length = 0 if old is None else parse_value(MARK, old, int)
        return length if length and config.num_steps % length == 0 else config.num_steps

    return key(MARK, "num_steps", 10, read, write)


def _batch() -> Key:
    """Unrolls of a minibatch."""

    def read(value: object, known: Known) -> SettingsByName:
        unrolls = parse_value("batch_size", value, int) * known.size("num_minibatches")
        return {"num_steps": unrolls * _int(known, MARK) / known.size("num_envs")}

    def write(config: Config, old: object, known: Known) -> object:
        size, length = config.geometry.optimization_batch, _int(known, MARK)
        if size % length:
            raise UsageError(
                f"an optimization batch of {size} is not a whole number of unrolls of unroll_length={length} steps: "
                f"use a multiple of {length}."
            )
        return size // length

    return key("batch_size", "num_steps", 32, read, write)


PPO = (
    whole("num_envs", "num_envs", 1),
    whole("num_minibatches", "num_minibatches", 16),
    _unroll(),
    _batch(),
    whole("num_updates_per_batch", "update_epochs", 2),
    whole("num_timesteps", "total_timesteps", 1_000_000),
    number("learning_rate", "learning_rate", 1e-4),
    number("discounting", "gamma", 0.9),
    number("gae_lambda", "gae_lambda", 0.95),
    number("entropy_cost", "ent_coef", 1e-4),
    number("clipping_epsilon", "clip_eps", 0.3),
    number("vf_loss_coefficient", "vf_coef", 0.5),
    value_clip("clipping_epsilon_value", None),
    bound("max_grad_norm", "max_grad_norm", None),
    choice("normalize_advantage", "advantage_norm", True, on="minibatch", off="none"),
    choice("normalize_observations", "normalize_observations", False, on=True, off=False),
    layers(LAYERS, (32,) * 4),
    of_value(VALUE_LAYERS, (256,) * 5),
    activation("network_factory.activation", "swish"),
    as_is(
        "action_repeat", 1, lambda value: "" if value == 1 else f"{value} steps for one: its num_timesteps count them"
    ),
    adaptive("learning_rate_schedule", None, on="ADAPTIVE_KL", off=None),
    number("desired_kl", "desired_kl", 0.01),
)


def control(raw: Raw) -> KlControl | None:
    if raw("learning_rate_schedule") != "ADAPTIVE_KL":
        return None
    return KlControl("desired_kl", parse_value("desired_kl", raw("desired_kl"), float), "adaptive")


def differences(config: Config) -> list[str]:
    return [
        "advantages are computed anew at each gradient step there, with the newest value function; here once an "
        "iteration",
        "advantages end, and are bootstrapped, after each unroll there; here after all steps of an iteration",
        "minibatches are made of whole unrolls there, of single steps here (minibatch_scheme=shuffle)",
        "continuous actions go through tanh there, and their standard deviation depends on the observation unless the "
        "network says otherwise; here they are clipped to their bounds, with one standard deviation for all",
    ]


LIBRARY = Library(
    name="brax",
    title="Brax",
    batch_size="batch_size counts unrolls: the optimization batch is batch_size x unroll_length, and the rollout "
    "batch_size x num_minibatches x unroll_length",
    algorithms={"ppo": PPO},
    fixed={"ppo": {**CLIPPED_PPO, "obs_clip": INF}},
    form=python_or_yaml(MARK),
    control=control,
    only_there=other_value_network(LAYERS, VALUE_LAYERS),
    differences=differences,
    rounds_up=True,
)
