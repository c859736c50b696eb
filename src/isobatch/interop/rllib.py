"""RLlib: PPO on the new API stack (`PPOConfig`), with the older names of the same settings.

`train_batch_size_per_learner` x learners is our *iteration batch*; `minibatch_size` (once `sgd_minibatch_size`) x
learners is our *optimization batch*. Environments are num_env_runners x num_envs_per_env_runner, and the rollout length
follows: T = iteration batch / environments. A minibatch size that does not divide the train batch makes RLlib wrap
around into the next epoch; here it has to divide.

The value loss is the plain squared error, ours half of it: our vf_coef is twice theirs. Its vf_clip_param clips the
loss, not the value, and the adaptive KL penalty (kl_coeff, kl_target) comes on top of the clipping; both have no
counterpart here and are kept. Advantages are normalized over the iteration batch of a learner.
"""

from __future__ import annotations

from typing import Any

from isobatch.errors import UsageError
from isobatch.interop.keys import UNNAMED, Key, Known, environment, minibatch_count, number, whole
from isobatch.interop.library import Library
from isobatch.interop.yaml_text import edit_flat, parse_flat, render_flat
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.parsing import parse_value


def _count(known: Known, name: str) -> int:
    """Runners or learners; 0 means that the main process does the work."""
    return max(1, parse_value(name, known.raw(name), int))


def _as_is(names: str, default: Any) -> Key:
    """A setting that others are read with and that never changes."""
    return Key(tuple(names.split()), (), default, lambda value, known: {}, lambda config, old, known: old)


def _envs() -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        each = parse_value("num_envs_per_env_runner", value, int)
        return {"num_envs": _count(known, "num_env_runners") * each}

    def write(config: Config, old: Any, known: Known) -> Any:
        runners = _count(known, "num_env_runners")
        if config.num_envs % runners:
            raise UsageError(
                f"num_envs={config.num_envs} cannot be spread over num_env_runners={runners}: "
                f"use a multiple of {runners}."
            )
        return config.num_envs // runners

    return Key(("num_envs_per_env_runner", "num_envs_per_worker"), ("num_envs",), 1, read, write)


def _train_batch() -> Key:
    name = "train_batch_size_per_learner"

    def read(value: Any, known: Known) -> dict[str, Any]:
        total, envs = parse_value(name, value, int) * _count(known, "num_learners"), known.settings["num_envs"]
        if total % envs:
            low = total // envs * envs
            raise UsageError(
                f"{name}={value} is not a whole number of steps for {envs} environments: "
                f"use a total of {low} or {low + envs}."
            )
        return {"num_steps": total // envs}

    def write(config: Config, old: Any, known: Known) -> Any:
        return _share(config.geometry.iteration_batch, known, name)

    return Key((name, "train_batch_size"), ("num_steps",), 4000, read, write)


def _minibatch() -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        size = parse_value("minibatch_size", value, int) * _count(known, "num_learners")
        rollout = known.settings["num_envs"] * known.settings["num_steps"]
        return {"num_minibatches": minibatch_count("minibatch_size", size, rollout, "the train batch")}

    def write(config: Config, old: Any, known: Known) -> Any:
        return _share(config.geometry.optimization_batch, known, "minibatch_size")

    return Key(("minibatch_size", "sgd_minibatch_size"), ("num_minibatches",), 128, read, write)


def _share(total: int, known: Known, name: str) -> int:
    learners = _count(known, "num_learners")
    if total % learners:
        raise UsageError(f"{name}: {total} samples cannot be shared by num_learners={learners}; choose another size.")
    return total // learners


def _grad_clip() -> Key:
    def read(value: Any, known: Known) -> dict[str, Any]:
        return {"max_grad_norm": INF if value is None else parse_value("grad_clip", value, float)}

    def write(config: Config, old: Any, known: Known) -> Any:
        return None if config.hypers.max_grad_norm == INF else config.hypers.max_grad_norm

    return Key(("grad_clip",), ("max_grad_norm",), None, read, write)


PPO = (
    _as_is("num_env_runners num_workers num_rollout_workers", 2),
    _as_is("num_learners", 0),
    environment("env", UNNAMED),
    _envs(),
    _train_batch(),
    _minibatch(),
    whole("num_epochs num_sgd_iter", "update_epochs", 30),
    number("lr", "learning_rate", 5e-5),
    number("gamma", "gamma", 0.99),
    number("lambda_ lambda", "gae_lambda", 1.0),
    number("clip_param", "clip_eps", 0.3),
    number("entropy_coeff", "ent_coef", 0.0),
    number("vf_loss_coeff", "vf_coef", 1.0, times=2),
    _grad_clip(),
)

LIBRARY = Library(
    name="rllib",
    title="RLlib",
    batch_size="train_batch_size_per_learner (x learners) is the rollout, minibatch_size the optimization batch",
    algorithms={"ppo": PPO},
    fixed={
        "ppo": dict(
            objective="clip",
            proximal_policy="behavior",
            advantage_norm="iteration",
            optimizer="adam",
            optimizer_eps=1e-8,
            total_timesteps=10**12,  # its settings do not say how long to train, so any batch has to fit
        )
    },
    parse=parse_flat,
    render=render_flat,
    edit=edit_flat,
)
