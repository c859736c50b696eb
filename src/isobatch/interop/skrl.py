"""skrl (2.1): the PPO agent's settings, alone or under `agent:` as in the runner's YAML files (also Isaac Lab's).

`mini_batches` is a count, as ours: the *optimization batch* is rollouts x environments / mini_batches and grows
silently with the environments. `rollouts` is the number of steps per environment, T. The number of environments
belongs to the environment, not to the agent, so it has to be given beside the file (`--num-envs`).

The value loss is the plain mean squared error, ours half of it: our vf_coef is twice theirs. Advantages are normalized
over the iteration batch. `timesteps` of the trainer counts steps per environment, so it changes with their number. With
`learning_rate_scheduler: KLAdaptiveLR` the learning rate follows the KL divergence, once an epoch.
"""

from __future__ import annotations

from dataclasses import replace

from isobatch.advice.kl_control import KlControl
from isobatch.interop.keys import (
    OUTSIDE,
    Key,
    Known,
    Raw,
    adaptive,
    as_is,
    bound,
    iterations,
    key,
    number,
    stop_at,
    value_clip,
    whole,
)
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.networks import OF_POLICY, named, separate, sizes
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value


def _names(*names: str) -> str:
    """In the runner's file first, then in the settings of the agent alone."""
    return " ".join([f"agent.{name}" for name in names] + list(names))


def _preprocessor() -> Key:
    """Observations are scaled by their running moments, clipped to -+5, or left alone."""
    scaler = "RunningStandardScaler"
    return key(
        _names("observation_preprocessor", "state_preprocessor"),
        "normalize_observations",
        None,
        lambda value, known: {"normalize_observations": value is not None},
        lambda config, old, known: (old or scaler) if config.normalize_observations else None,
    )


def _network(parts: object) -> SettingsByName | None:
    """Layers of one width after the other with one activation, or nothing for a graph of several parts."""
    part = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    if not isinstance(part, dict):
        return None
    widths, activation = sizes(part.get("layers")), named(part.get("activations"))
    return {"hidden_sizes": widths, "activation": activation} if widths and activation else None


def _policy_network() -> Key:
    """Of the model instantiator; a file without models leaves them to a script."""

    def write(config: Config, old: object, known: Known) -> object:
        part = old[0] if isinstance(old, list) and old and isinstance(old[0], dict) else {}
        return [part | {"layers": list(config.hidden_sizes), "activations": config.activation}]

    return key(
        POLICY,
        "hidden_sizes activation",
        None,
        lambda value, known: _network(value) or {},
        lambda config, old, known: old if old is None else write(config, old, known),
        lambda value: "" if value is None or _network(value) else "more than layers one after the other",
    )


def only_there(raw: Raw) -> list[str]:
    """A value network that is not the policy's, where they do not share one."""
    policy, value = _network(raw(POLICY)), _network(raw(VALUE))
    if not policy or raw(VALUE) is None or policy == value or not raw(SEPARATE):
        return []
    layers = value["hidden_sizes"] if value else "another"
    return [f"{VALUE} ({layers}) is not {POLICY} ({policy['hidden_sizes']}): {OF_POLICY}"]


POLICY, VALUE, SEPARATE = "models.policy.network", "models.value.network", "models.separate"


def _value_clip() -> Key:
    """Its range; `clip_predicted_values: False`, of older files, switches it off."""
    clip = value_clip(_names("value_clip"), 0.2, off=0.0)
    return replace(
        clip,
        read=lambda value, known: clip.read(value if known.raw(f"agent.{CLIPPED}") else 0.0, known),
        write=lambda config, old, known: (
            clip.write(config, old, known) if known.raw(f"agent.{CLIPPED}") or old is None else old
        ),
    )


CLIPPED = "clip_predicted_values"
SCHEDULER, SCHEDULE = "learning_rate_scheduler", "KLAdaptiveLR"
THRESHOLD = f"{SCHEDULER}_kwargs.kl_threshold"

PPO = (
    whole("num_envs", "num_envs", OUTSIDE),
    iterations("trainer.timesteps", 100_000, lambda known: known.size("num_envs")),
    whole(_names("rollouts"), "num_steps", 16),
    whole(_names("mini_batches"), "num_minibatches", 2),
    whole(_names("learning_epochs"), "update_epochs", 8),
    number(_names("learning_rate"), "learning_rate", 1e-3),
    number(_names("discount_factor"), "gamma", 0.99),
    number(_names("gae_lambda", "lambda"), "gae_lambda", 0.95),
    number(_names("ratio_clip"), "clip_eps", 0.2),
    number(_names("entropy_loss_scale"), "ent_coef", 0.0),
    number(_names("value_loss_scale"), "vf_coef", 2.5, times=2),
    as_is(_names(CLIPPED), True),
    _value_clip(),
    bound(_names("grad_norm_clip"), "max_grad_norm", 0.5, off=0.0),
    _preprocessor(),
    _policy_network(),
    as_is(VALUE, None),
    separate(SEPARATE, True),
    adaptive(_names(SCHEDULER), None, on=SCHEDULE, off=None),
    number(_names(THRESHOLD), "desired_kl", 0.008),
    stop_at(_names("kl_threshold"), 0.0, times=1 / 1.5, off=0.0),
)


def control(raw: Raw) -> KlControl | None:
    """KLAdaptiveLR, or epochs that end at a KL divergence."""
    if raw(f"agent.{SCHEDULER}") == SCHEDULE:
        name = f"agent.{THRESHOLD}"
        target = parse_value(name, raw(name), float)
        return KlControl(name.rpartition(".")[2], target, "adaptive", per="epoch", low=1e-6)
    target = parse_value("kl_threshold", raw("agent.kl_threshold"), float)
    return KlControl("kl_threshold", target, "stop", factor=1.0) if target else None


LIBRARY = Library(
    name="skrl",
    title="skrl",
    batch_size="mini_batches is a count: the optimization batch is rollouts x environments / mini_batches",
    algorithms={"ppo": PPO},
    fixed={"ppo": {**CLIPPED_PPO, "advantage_norm": "iteration", "obs_clip": 5.0}},
    control=control,
    only_there=only_there,
)
