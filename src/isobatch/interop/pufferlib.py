"""PufferLib: its .ini files, of version 3 (`[vec] num_envs`, `[train] bptt_horizon`) and 4 (`total_agents`, `horizon`).

A row of its data is a segment of `bptt_horizon` steps of one agent. `batch_size` (auto: agents x bptt_horizon) is our
*iteration batch*, `minibatch_size` our *optimization batch*. Agents are vec.num_envs x env.num_envs x env.num_agents,
as far as the file says so: an environment can have others by default, which `--num-envs` then says. Minibatches are
drawn with a probability that goes by the size of the advantages (prio_alpha), not one after the other.

The value loss has the factor 1/2, as ours, and is clipped at vf_clip_coef. Advantages are normalized per minibatch. The
optimizer is Muon unless the file says adam, and its rate falls like a cosine: the nearest here are Adam and a line.
"""

from __future__ import annotations

import math

from isobatch.errors import UsageError
from isobatch.interop.computed_otherwise import by_n_minus_1
from isobatch.interop.form import Form
from isobatch.interop.ini_text import edit, parse, render
from isobatch.interop.keys import Key, Known, Raw, as_is, choice, key, number, value_clip, whole
from isobatch.interop.library import CONSTANT_RANGES, Library
from isobatch.rescaling.cautions import muon_step_size
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value

AUTO = "auto"


def _count(known: Known, name: str) -> int:
    """A number of environments or agents; one where the file does not say it, or says a list."""
    value = known.raw(name)
    return value if isinstance(value, int) and value > 0 else 1


def _agents(known: Known) -> int:
    return _count(known, "vec.num_envs") * _count(known, "env.num_envs") * _count(known, "env.num_agents")


def _scaled(name: str, default: object) -> Key:
    """A number of environments that changes by the same factor as the agents."""
    last = "env.num_envs"

    def decides(known: Known) -> bool:
        """The environments of a worker change if the file has them, else the workers' number does."""
        return known.raw("vec.total_agents") is None and (name == last) == isinstance(known.raw(last), int)

    def read(value: object, known: Known) -> SettingsByName:
        agents = known.before.num_envs if known.before else _agents(known)  # which may have been given beside the file
        return {"num_envs": agents} if decides(known) else {}

    def write(config: Config, old: object, known: Known) -> object:
        before = known.before.num_envs if known.before else _agents(known)
        now = _count(known, name) * config.num_envs
        if now % before:
            raise UsageError(
                f"num_envs={config.num_envs} agents are not a whole number of {name} where {before} are "
                f"{_count(known, name)}: use a multiple of {before // math.gcd(before, _count(known, name))}."
            )
        return now // before

    return key(name, "num_envs", default, read, write)


def _total_agents() -> Key:
    return key(
        "vec.total_agents",
        "num_envs",
        None,
        lambda value, known: {} if value is None else {"num_envs": parse_value("vec.total_agents", value, int)},
        lambda config, old, known: config.num_envs,
    )


def _horizon() -> Key:
    """T: the horizon, or what an explicit batch_size makes of it."""

    def read(value: object, known: Known) -> SettingsByName:
        batch, envs = known.raw("train.batch_size"), known.size("num_envs")
        if batch == AUTO or batch is None:
            if value == AUTO:
                raise UsageError("train.batch_size and train.bptt_horizon are both auto: say one of them.")
            return {"num_steps": parse_value("train.bptt_horizon", value, int)}
        total = parse_value("train.batch_size", batch, int)
        if total % envs:
            raise UsageError(
                f"train.batch_size={total} is not a whole number of steps for {envs} agents, as far as the file says "
                "how many there are: give --num-envs."
            )
        return {"num_steps": total // envs}

    def write(config: Config, old: object, known: Known) -> object:
        batch = known.raw("train.batch_size")
        return config.num_steps if batch in (AUTO, None) and old != AUTO else old

    return key("train.bptt_horizon train.horizon", "num_steps", 64, read, write)


def _batch() -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        if value in (AUTO, None):
            return {}
        return {"num_steps": parse_value("train.batch_size", value, int) / known.size("num_envs")}

    def write(config: Config, old: object, known: Known) -> object:
        return config.geometry.iteration_batch

    return key("train.batch_size", "num_steps", AUTO, read, write)


def _minibatch() -> Key:
    """Their number is rounded down: what does not fill one is drawn another time."""

    def read(value: object, known: Known) -> SettingsByName:
        samples, size = known.samples, parse_value(SIZE, value, int)
        if size < 1 or samples % size:
            raise UsageError(
                f"{SIZE}={size} does not evenly divide the {samples} samples of an iteration, as far as the file says "
                "how many agents there are: give --num-envs, or another size."
            )
        return {"num_minibatches": samples // size}

    return key(SIZE, "num_minibatches", 8192, read, lambda config, old, known: config.geometry.optimization_batch)


SIZE = "train.minibatch_size"


def _epochs() -> Key:
    """Version 4 has a ratio, how often a sample is used in the mean, which need not be whole."""

    def passes(value: object) -> float:
        return parse_value("train.update_epochs", value, float)

    return key(
        "train.update_epochs train.replay_ratio",
        "update_epochs",
        1,
        lambda value, known: {"update_epochs": max(1, round(passes(value)))},
        lambda config, old, known: config.update_epochs,
        lambda value: "" if passes(value) == round(passes(value)) else f"{value} passes: a whole number here",
    )


PPO = (
    _total_agents(),
    _scaled("vec.num_envs", 2),
    _scaled("env.num_envs", None),
    as_is("env.num_agents", 1),
    _horizon(),
    _batch(),
    _minibatch(),
    as_is("train.max_minibatch_size", 32768, lambda value: "of a gradient that is accumulated"),
    _epochs(),
    whole("train.total_timesteps", "total_timesteps", 10_000_000),
    number("train.learning_rate", "learning_rate", 0.015),
    choice("train.anneal_lr", "lr_schedule", True, on="linear", off="constant"),
    as_is("train.optimizer", "muon", lambda value: f"{value}: Adam here" if value != "adam" else ""),
    number("train.adam_beta1 train.beta1", "beta1", 0.95),
    number("train.adam_beta2 train.beta2", "beta2", 0.999),
    number("train.adam_eps train.eps", "optimizer_eps", 1e-12),
    number("train.gamma", "gamma", 0.995),
    number("train.gae_lambda", "gae_lambda", 0.90),
    number("train.clip_coef", "clip_eps", 0.2),
    value_clip("train.vf_clip_coef", 0.2),
    number("train.vf_coef", "vf_coef", 2.0),
    number("train.ent_coef", "ent_coef", 0.001),
    number("train.max_grad_norm", "max_grad_norm", 1.5),
)


def remarks(raw: Raw) -> list[str]:
    """Muon is the default, so files need not name it."""
    if raw("train.optimizer") == "adam":
        return []
    name = raw("train.optimizer")
    if name == "muon":
        return [muon_step_size(f"train.optimizer={name}")]
    return [
        f"train.optimizer is {name}, which is taken for Adam here: the rule of the square root is derived for Adam, "
        "and nobody has shown it for this one"
    ]


def differences(config: Config) -> list[str]:
    return [
        "the learning rate falls like a cosine there, like a line here",
        "minibatches are drawn by the size of their advantages there (prio_alpha), each sample once an epoch here",
        *by_n_minus_1(config),
        "advantages are corrected by V-trace there (vtrace_rho_clip, vtrace_c_clip), here they are plain GAE",
    ]


LIBRARY = Library(
    name="pufferlib",
    title="PufferLib",
    batch_size="batch_size (auto: agents x bptt_horizon) is the rollout, minibatch_size the optimization batch",
    algorithms={"ppo": PPO},
    fixed={
        "ppo": dict(
            CONSTANT_RANGES, objective="clip", proximal_policy="behavior", advantage_norm="minibatch", optimizer="adam"
        )
    },
    form=Form(parse, render, edit),
    remarks=remarks,
    differences=differences,
)
