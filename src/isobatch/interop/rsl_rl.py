"""rsl_rl, and with it Isaac Lab and mjlab: the runner's settings, as the YAML that a run dumps (`params/agent.yaml`) or
as the Python class that they are written in (`@configclass class ...PPORunnerCfg`), which is never executed.

`num_mini_batches` is a count, as ours: the *optimization batch* is environments x num_steps_per_env / num_mini_batches,
and grows silently with the environments. Their number is the environment's (`--num_envs` of the training script), and
with several GPUs it is the number of *each* rank: give the product beside the file (`--num-envs`). A run lasts
`max_iterations`, so with fewer environments it needs more of them for equally many samples.

The value loss is the whole squared error, ours half of it: our vf_coef is twice theirs; it is clipped at clip_param.
Advantages are normalized over the iteration, of each rank by itself. With `schedule: adaptive` the learning rate
follows the KL divergence after each minibatch. Gradients of actor and critic are clipped each by itself.
"""

from __future__ import annotations

from isobatch.advice.kl_control import KlControl
from isobatch.interop.computed_otherwise import by_n_minus_1
from isobatch.interop.keys import (
    OUTSIDE,
    REQUIRED,
    Key,
    Known,
    Raw,
    adaptive,
    choice,
    iterations,
    key,
    number,
    one_clip,
    whole,
)
from isobatch.interop.library import CONSTANT_RANGES, Library
from isobatch.interop.networks import activation, layers, of_value, other_value_network
from isobatch.interop.python_or_yaml import python_or_yaml
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.parsing import SettingsByName, parse_value

LAYERS, VALUE_LAYERS = "actor.hidden_dims", "critic.hidden_dims"
OPTIMIZERS = {"adam": "adam", "adamw": "adam", "sgd": "sgd", "rmsprop": "rmsprop"}


def _observations() -> Key:
    """Normalized for the actor, for the critic, or by the old name of both."""
    names = "actor.obs_normalization policy.actor_obs_normalization empirical_normalization"
    return choice(names, "normalize_observations", False, on=True, off=False)


def _advantages() -> Key:
    name = "algorithm.normalize_advantage_per_mini_batch"
    return choice(name, "advantage_norm", False, on="minibatch", off="iteration", other=False)


def _optimizer() -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        return {"optimizer": OPTIMIZERS.get(str(value).lower(), "adam")}

    return key(
        "algorithm.optimizer",
        "optimizer",
        "adam",
        read,
        lambda config, old, known: config.optimizer,
        lambda value: "" if str(value).lower() in ("adam", "sgd", "rmsprop") else f"{value}: taken for Adam here",
    )


PPO = (
    whole("num_envs", "num_envs", OUTSIDE),
    whole("num_steps_per_env", "num_steps", REQUIRED),
    iterations("max_iterations", REQUIRED),
    whole("algorithm.num_mini_batches", "num_minibatches", 4),
    whole("algorithm.num_learning_epochs", "update_epochs", 5),
    number("algorithm.learning_rate", "learning_rate", 1e-3),
    _optimizer(),
    number("algorithm.gamma", "gamma", 0.99),
    number("algorithm.lam", "gae_lambda", 0.95),
    one_clip("algorithm.clip_param", 0.2),
    choice("algorithm.use_clipped_value_loss", "clip_value_loss", True, on=True, off=False),
    number("algorithm.entropy_coef", "ent_coef", 0.01),
    number("algorithm.value_loss_coef", "vf_coef", 1.0, times=2),
    number("algorithm.max_grad_norm", "max_grad_norm", 1.0),
    _advantages(),
    _observations(),
    layers(f"{LAYERS} policy.actor_hidden_dims", (256, 256, 256)),
    of_value(f"{VALUE_LAYERS} policy.critic_hidden_dims", (256, 256, 256)),
    activation("actor.activation policy.activation", "elu"),
    adaptive("algorithm.schedule", "adaptive", on="adaptive", off="fixed"),
    number("algorithm.desired_kl", "desired_kl", 0.01),
)


def control(raw: Raw) -> KlControl | None:
    target = raw("algorithm.desired_kl")
    if raw("algorithm.schedule") != "adaptive" or target is None:
        return None
    return KlControl("desired_kl", parse_value("desired_kl", target, float), "adaptive")


def differences(config: Config) -> list[str]:
    return [
        "gradients are clipped there for actor and critic each by itself, here together",
        "with several GPUs advantages are normalized there by each rank over its own samples",
        "a time limit is bootstrapped there from the value of the state before it, here of the state after it",
        *by_n_minus_1(config),
    ]


LIBRARY = Library(
    name="rsl-rl",
    title="rsl_rl",
    batch_size="num_mini_batches is a count: the optimization batch is environments of all GPUs x num_steps_per_env / "
    "num_mini_batches",
    algorithms={"ppo": PPO},
    fixed={
        "ppo": dict(CONSTANT_RANGES, objective="clip", proximal_policy="behavior", optimizer_eps=1e-8, obs_clip=INF)
    },
    form=python_or_yaml("algorithm.num_mini_batches"),  # which a runner of distillation does not have
    control=control,
    only_there=other_value_network(LAYERS, VALUE_LAYERS),
    differences=differences,
)
