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

from isobatch.errors import UsageError
from isobatch.interop.keys import (
    UNNAMED,
    Key,
    Known,
    as_is,
    bound,
    environment,
    key,
    minibatch_size,
    number,
    rollout,
    whole,
)
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.networks import activation, layers, separate
from isobatch.settings.config import ENDLESS, Config
from isobatch.settings.parsing import SettingsByName, parse_value


def _count(known: Known, name: str) -> int:
    """Runners or learners; 0 means that the main process does the work."""
    return max(1, parse_value(name, known.raw(name), int))


def _learners(known: Known) -> int:
    return _count(known, "num_learners")


def _envs() -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        each = parse_value("num_envs_per_env_runner", value, int)
        return {"num_envs": _count(known, "num_env_runners") * each}

    def write(config: Config, old: object, known: Known) -> object:
        runners = _count(known, "num_env_runners")
        if config.num_envs % runners:
            raise UsageError(
                f"num_envs={config.num_envs} cannot be spread over num_env_runners={runners}: "
                f"use a multiple of {runners}."
            )
        return config.num_envs // runners

    return key("num_envs_per_env_runner num_envs_per_worker", "num_envs", 1, read, write)


PPO = (
    as_is("num_env_runners num_workers num_rollout_workers", 2),
    as_is("num_learners", 0),
    environment("env", UNNAMED),
    _envs(),
    rollout("train_batch_size_per_learner train_batch_size", 4000, _learners),
    minibatch_size("minibatch_size sgd_minibatch_size", 128, "the train batch", _learners),
    whole("num_epochs num_sgd_iter", "update_epochs", 30),
    number("lr", "learning_rate", 5e-5),
    number("gamma", "gamma", 0.99),
    number("lambda_ lambda", "gae_lambda", 1.0),
    number("clip_param", "clip_eps", 0.3),
    number("entropy_coeff", "ent_coef", 0.0),
    number("vf_loss_coeff", "vf_coef", 1.0, times=2),
    bound("grad_clip", "max_grad_norm", None),
    layers("model_config.fcnet_hiddens model.fcnet_hiddens", (256, 256)),
    activation("model_config.fcnet_activation model.fcnet_activation", "tanh"),
    separate("model_config.vf_share_layers model.vf_share_layers", False, shared_if=True),
)

LIBRARY = Library(
    name="rllib",
    title="RLlib",
    batch_size="train_batch_size_per_learner (x learners) is the rollout, minibatch_size the optimization batch",
    algorithms={"ppo": PPO},
    fixed={"ppo": {**CLIPPED_PPO, "advantage_norm": "iteration", "total_timesteps": ENDLESS}},
)
