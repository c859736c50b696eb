"""rl_games: the YAML files of its PPO (`params.config`), also those of Isaac Lab and IsaacGym.

`minibatch_size` is our *optimization batch*, in samples; `num_actors` x `horizon_length` is our *iteration batch*. So
adding environments adds minibatches of the same size. Isaac Lab's files say `num_actors: -1`, to be filled in by the
script, and those of IsaacGymEnvs `${....task.env.numEnvs}`: give the number beside the file (`--num-envs`). Where an
environment has several agents each of them counts: minibatches that do not divide num_actors x horizon_length show how
many there are at least.

The value loss has the factor 1/2, as ours, and is clipped at e_clip. Advantages are normalized over the iteration. With
`lr_schedule: adaptive` the learning rate follows the KL divergence.
"""

from __future__ import annotations

import re
from dataclasses import replace

from isobatch.advice.kl_control import KlControl
from isobatch.errors import UsageError
from isobatch.interop.keys import (
    REQUIRED,
    Key,
    Known,
    Raw,
    as_is,
    choice,
    environment,
    iterations,
    key,
    minibatch_size,
    number,
    one_clip,
    whole,
)
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.networks import activation, layers, separate
from isobatch.settings.config import ENDLESS, Config
from isobatch.settings.fields import INF
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.schedules import ADAPTIVE

MOST_AGENTS = 64


def _c(name: str) -> str:
    return f"params.config.{name}"


ACTORS, HORIZON, SIZE = _c("num_actors"), _c("horizon_length"), _c("minibatch_size")


DEFAULT = re.compile(r"(\$\{resolve_default:)([^,{}]+)(,.*\})")
"""A value of IsaacGymEnvs that its command line can replace."""


def _is_reference(value: object) -> bool:
    """Whether a value is filled in from another file, as Hydra does it."""
    return isinstance(value, str) and value.startswith("${")


def _agents(known: Known) -> int:
    """The fewest agents of an environment with which the minibatches divide the rollout."""
    given = [known.raw(name) for name in (ACTORS, HORIZON, SIZE)]
    if REQUIRED in given or any(map(_is_reference, given)):
        return 1  # which is complained about where it is read
    actors, horizon, size = (parse_value("a size", value, int) for value in given)
    fits = (n for n in range(1, MOST_AGENTS + 1) if size > 0 and actors * horizon * n % size == 0)
    return next(fits, 1) if actors > 0 else 1


def _actors() -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        return {"num_envs": parse_value(ACTORS, value, int) * _agents(known)}

    def write(config: Config, old: object, known: Known) -> object:
        agents = _agents(known) if old is not None else 1
        if config.num_envs % agents:
            raise UsageError(
                f"num_envs={config.num_envs} is not a whole number of environments with {agents} agents each: "
                f"use a multiple of {agents}."
            )
        return config.num_envs // agents

    made = key(ACTORS, "num_envs", REQUIRED, read, write)
    return replace(made, absent=lambda value: _is_reference(value) or (isinstance(value, int) and value < 1))


def _learning_rate_schedule() -> Key:
    def write(config: Config, old: object, known: Known) -> object:
        if config.lr_schedule in ("linear", ADAPTIVE):
            return config.lr_schedule
        return "None" if old in (None, "linear", ADAPTIVE) else old

    return key(
        _c("lr_schedule"),
        "lr_schedule",
        None,
        lambda value, known: {"lr_schedule": value if value in ("linear", ADAPTIVE) else "constant"},
        write,
    )


def _clipped(value: object, on: object) -> SettingsByName:
    used = parse_value("truncate_grads", on, bool)
    return {"max_grad_norm": parse_value("grad_norm", value, float) if used else INF}


def _truncate() -> Key:
    """Whether `grad_norm` is used."""
    return key(
        _c("truncate_grads"),
        "max_grad_norm",
        False,
        lambda value, known: _clipped(known.raw(_c("grad_norm")), value),
        lambda config, old, known: config.hypers.max_grad_norm < INF,
    )


def _grad_norm() -> Key:
    def write(config: Config, old: object, known: Known) -> object:
        return old if config.hypers.max_grad_norm == INF else config.hypers.max_grad_norm

    return key(
        _c("grad_norm"),
        "max_grad_norm",
        1.0,
        lambda value, known: _clipped(value, known.raw(_c("truncate_grads"))),
        write,
    )


def _length() -> Key:
    """`max_epochs` iterations, or `max_frames` if it is there instead."""
    epochs = iterations(_c("max_epochs"), None)

    def read(value: object, known: Known) -> SettingsByName:
        filled_in = DEFAULT.fullmatch(str(value))
        value = filled_in[2] if filled_in else value
        if value is not None and parse_value(_c("max_epochs"), value, int) > 0:
            return epochs.read(value, known)
        frames = known.raw(_c("max_frames"))
        if frames is None or parse_value(_c("max_frames"), frames, int) < 1:
            return {"total_timesteps": ENDLESS}  # until its score is reached
        return {"total_timesteps": parse_value(_c("max_frames"), frames, int)}

    def write(config: Config, old: object, known: Known) -> object:
        if old is None and known.raw(_c("max_frames")):
            return old
        new, filled_in = epochs.write(config, old, known), DEFAULT.fullmatch(str(old))
        return f"{filled_in[1]}{new}{filled_in[3]}" if filled_in else new

    return key(_c("max_epochs"), "total_timesteps", None, read, write)


def _algorithm() -> Key:
    """Its PPO is called a2c_continuous and a2c_discrete."""

    def read(value: object, known: Known) -> SettingsByName:
        if not str(value).startswith("a2c"):
            raise UsageError(f"params.algo.name={value!r} is not its PPO: use a2c_continuous or a2c_discrete.")
        return {}

    return key("params.algo.name", "", "a2c_continuous", read, lambda config, old, known: old)


PPO = (
    _algorithm(),
    environment(_c("env_name"), "unnamed"),
    _actors(),
    whole(f"{HORIZON} {_c('steps_num')}", "num_steps", REQUIRED),
    minibatch_size(SIZE, REQUIRED, "num_actors x horizon_length"),
    as_is(_c("max_frames"), None),
    _length(),
    whole(_c("mini_epochs"), "update_epochs", REQUIRED),
    number(_c("learning_rate"), "learning_rate", REQUIRED),
    _learning_rate_schedule(),
    number(_c("gamma"), "gamma", REQUIRED),
    number(_c("tau"), "gae_lambda", REQUIRED),
    one_clip(_c("e_clip"), 0.2),
    choice(_c("clip_value"), "clip_value_loss", True, on=True, off=False),
    number(_c("entropy_coef"), "ent_coef", 0.0),
    number(_c("critic_coef"), "vf_coef", 1.0),
    _truncate(),
    _grad_norm(),
    choice(_c("normalize_advantage"), "advantage_norm", True, on="iteration", off="none"),
    choice(_c("normalize_input"), "normalize_observations", False, on=True, off=False),
    layers("params.network.mlp.units", None),
    activation("params.network.mlp.activation", "relu"),
    separate("params.network.separate", False),
    number(_c("kl_threshold"), "desired_kl", 0.008),
    as_is(_c("schedule_type"), "per_minibatch", lambda value: f"{value}: when the schedule adaptive looks at it"),
    as_is(_c("min_lr"), 1e-6, lambda value: "a bound of the schedule"),
    as_is(_c("max_lr"), 1e-2, lambda value: "a bound of the schedule"),
)


def control(raw: Raw) -> KlControl | None:
    target = raw(_c("kl_threshold"))
    if raw(_c("lr_schedule")) != "adaptive" or target is None:
        return None
    per = "minibatch" if raw(_c("schedule_type")) in ("per_minibatch", "legacy") else "epoch"
    low, high = (parse_value(name, raw(_c(name)), float) for name in ("min_lr", "max_lr"))
    return KlControl("kl_threshold", parse_value("kl_threshold", target, float), "adaptive", per, low=low, high=high)


def differences(config: Config) -> list[str]:
    return [
        "with normalize_value the critic learns returns of unit variance there, here the returns themselves",
    ]


LIBRARY = Library(
    name="rl-games",
    title="rl_games",
    batch_size="minibatch_size is the optimization batch; num_actors x horizon_length is the rollout",
    algorithms={"ppo": PPO},
    fixed={"ppo": {**CLIPPED_PPO, "obs_clip": 5.0}},
    control=control,
    differences=differences,
)
