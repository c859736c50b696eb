"""Unity ML-Agents: the trainer's YAML (`behaviors: NAME: hyperparameters: ...`), PPO.

`buffer_size` is our *iteration batch*: so many steps of all agents together are collected before the policy learns.
`batch_size` is our *optimization batch*. A trajectory has at most `time_horizon` steps, after which it is bootstrapped,
so we read an iteration as buffer_size / time_horizon rollouts of time_horizon steps. How many agents there are the file
does not say, and it does not matter: more agents fill the same buffer sooner, so adding areas or `--num-envs` changes
neither batch. Steps that do not fill a minibatch are not used in an epoch.

The value loss is half the squared error, clipped at epsilon, with the weight 1. Advantages are normalized over the
iteration. `learning_rate`, `beta` and `epsilon` fall linearly by default, epsilon to 0.1 and beta to 1e-5.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from isobatch.errors import UsageError, near_matches
from isobatch.interop.computed_otherwise import further_on
from isobatch.interop.form import Form
from isobatch.interop.keys import (
    REQUIRED,
    Key,
    Known,
    Raw,
    as_is,
    choice,
    find,
    get,
    key,
    leaves,
    number,
    one_clip,
    put,
    whole,
)
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.networks import separate
from isobatch.interop.yaml_text import edit as edit_yaml
from isobatch.interop.yaml_text import entry_text, mapping_of, render_flat
from isobatch.settings.config import Config
from isobatch.settings.fields import INF
from isobatch.settings.geometry import divisors
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.schedules import LINEAR

BUFFER, BATCH, HORIZON = "hyperparameters.buffer_size", "hyperparameters.batch_size", "time_horizon"


def _size(known: Known, name: str) -> int:
    value = known.raw(name)
    size = parse_value(name, 64 if value is None and name == HORIZON else value, int)
    if size < 1:
        raise UsageError(f"{name}={size} is no size: use a positive number.")
    return size


def _used(known: Known) -> int:
    """The steps of a buffer that are used: whole minibatches."""
    buffer, batch = _size(known, BUFFER), _size(known, BATCH)
    if batch > buffer:
        raise UsageError(f"{BATCH}={batch} is larger than {BUFFER}={buffer}: use at most that.")
    return buffer // batch * batch


def _rollouts(known: Known) -> int:
    """About as many rollouts as trajectories fit into the buffer, so that they have equally many steps."""
    used = _used(known)
    wanted = max(1, used // _size(known, HORIZON))
    return max((n % 4 == 0, n) for n in divisors(used) if n <= wanted)[1]  # a number that can be halved


def _buffer() -> Key:
    def read(value: object, known: Known) -> SettingsByName:
        used = _used(known)
        envs = known.size("num_envs") if known.settings.get("num_envs") else _rollouts(known)
        if used % envs:
            raise UsageError(
                f"{BUFFER}: {used} steps cannot be shared by num_envs={envs} equally: give another number."
            )
        return {"num_envs": envs, "num_steps": used // envs}

    def write(config: Config, old: object, known: Known) -> object:
        new = config.geometry.iteration_batch
        if old is None:
            return new
        scaled = _size(known, BUFFER) * new / _used(known)  # the rest that is not used grows with it
        return round(scaled) if scaled == round(scaled) else new

    return key(BUFFER, "num_envs num_steps", REQUIRED, read, write)


def _horizon() -> Key:
    """The length of a trajectory, by which we choose how many rollouts a buffer is."""
    return key(
        HORIZON,
        "num_envs",
        None,
        lambda value, known: {} if known.before else {"num_envs": _rollouts(known)},
        lambda config, old, known: config.num_steps,
    )


def _minibatch() -> Key:
    return key(
        BATCH,
        "num_minibatches",
        REQUIRED,
        lambda value, known: {"num_minibatches": known.samples // parse_value(BATCH, value, int)},
        lambda config, old, known: config.geometry.optimization_batch,
    )


def _range_schedule() -> Key:
    """Policy and value are clipped at one range, which falls to 0.1."""

    def read(value: object, known: Known) -> SettingsByName:
        schedule = LINEAR if value == LINEAR else "constant"
        ours: SettingsByName = {"clip_schedule": schedule, "value_clip_schedule": schedule}
        return ours | ({"clip_eps_end": 0.1} if schedule == LINEAR else {})

    def write(config: Config, old: object, known: Known) -> object:
        return LINEAR if config.clip_schedule == LINEAR else "constant"

    fields = "clip_schedule value_clip_schedule clip_eps_end"
    return key("hyperparameters.epsilon_schedule", fields, LINEAR, read, write)


def _learning_rate_schedule() -> Key:
    return key(
        "hyperparameters.learning_rate_schedule",
        "lr_schedule",
        LINEAR,
        lambda value, known: {"lr_schedule": LINEAR if value == LINEAR else "constant"},
        lambda config, old, known: LINEAR if config.lr_schedule == LINEAR else "constant",
    )


def _layers(name: str, default: int) -> Key:
    """`num_layers` layers of `hidden_units` each; of other networks it is told what is nearest to the first one."""

    def read(value: object, known: Known) -> SettingsByName:
        width, number = (parse_value(name, known.raw(name), int) for name in (WIDTH, DEPTH))
        return {"hidden_sizes": [width] * number}

    return key(
        name,
        "hidden_sizes",
        default,
        read,
        lambda config, old, known: config.hidden_sizes[0] if name == WIDTH else len(config.hidden_sizes),
    )


BETA_SCHEDULE = "hyperparameters.beta_schedule"
WIDTH, DEPTH = "network_settings.hidden_units", "network_settings.num_layers"
PPO = (
    _buffer(),
    _horizon(),
    _minibatch(),
    whole("hyperparameters.num_epoch", "update_epochs", 3),
    whole("max_steps", "total_timesteps", 500_000),
    number("hyperparameters.learning_rate", "learning_rate", 3e-4),
    _learning_rate_schedule(),
    number("reward_signals.extrinsic.gamma", "gamma", 0.99),
    number("hyperparameters.lambd", "gae_lambda", 0.95),
    one_clip("hyperparameters.epsilon", 0.2),
    number("hyperparameters.beta", "ent_coef", 5e-3),
    choice("network_settings.normalize", "normalize_observations", False, on=True, off=False),
    _layers(WIDTH, 128),
    _layers(DEPTH, 2),
    separate("hyperparameters.shared_critic", False, shared_if=True),
    _range_schedule(),
    as_is(BETA_SCHEDULE, LINEAR, lambda value: "beta falls there, stays here" if value == LINEAR else ""),
)


def _written(text: str) -> dict[str, SettingsByName]:
    """The settings that stand under each behavior."""
    behaviors = mapping_of(text).get("behaviors")
    if not isinstance(behaviors, dict) or not behaviors:
        raise UsageError("the text has no `behaviors:` with settings under their names: check which file it is.")
    return {str(name): settings for name, settings in behaviors.items() if isinstance(settings, dict)}


def _behaviors(text: str) -> dict[str, SettingsByName]:
    """Each behavior's settings, with the file's `default_settings` under them."""
    usual = mapping_of(text).get("default_settings")
    return {
        name: _over(usual if isinstance(usual, dict) else {}, settings) for name, settings in _written(text).items()
    }


def _over(usual: Mapping[str, object], settings: Mapping[str, object]) -> SettingsByName:
    merged = copy.deepcopy(dict(usual))
    for leaf, value in leaves(settings):
        put(merged, leaf, value)
    return merged


def _is_ppo(behavior: Mapping[str, object]) -> bool:
    return behavior.get("trainer_type", "ppo") == "ppo"


def entries(text: str) -> list[str]:
    """Behaviors that PPO trains."""
    return [name for name, settings in _behaviors(text).items() if _is_ppo(settings)]


def parse(text: str, env: str | None) -> tuple[SettingsByName, str]:
    behaviors = _behaviors(text)
    name = env or (next(iter(behaviors)) if len(behaviors) == 1 else None)
    if name is None:
        raise UsageError(f"env is missing: the file has the behaviors {', '.join(behaviors)}; give --env NAME.")
    if name not in behaviors:
        hint = near_matches(name, behaviors) or f"; use {', '.join(behaviors)}."
        raise UsageError(f"env={name!r} is not a behavior of the file{hint}")
    if not _is_ppo(behaviors[name]):
        kind = behaviors[name]["trainer_type"]
        raise UsageError(f"trainer_type={kind!r} of {name} cannot be read: only PPO can.")
    return behaviors[name], name


def edit(text: str, settings: Mapping[str, object], env: str | None) -> str:
    """The file with this behavior's settings; those that it took from `default_settings` become its own."""
    before, name = parse(text, env)
    written = _written(text)[name]
    for leaf, value in leaves(settings):
        if find(before, (leaf,)) is None or get(before, leaf) != value:
            put(written, leaf, value)
    return edit_yaml(text, written, "behaviors", name)


def render(settings: Mapping[str, object], env: str | None) -> str:
    return render_flat({"behaviors": {env or "unnamed": {"trainer_type": "ppo"} | dict(settings)}}, env)


def remarks(raw: Raw) -> list[str]:
    """A schedule that is the default, so files need not name it."""
    falls = raw(BETA_SCHEDULE) == LINEAR
    return ["beta falls to 1e-5 linearly over a run there, and stays in a run here"] if falls else []


LIBRARY = Library(
    name="ml-agents",
    title="ML-Agents",
    batch_size="batch_size is the optimization batch; buffer_size, of all agents together, is the rollout",
    algorithms={"ppo": PPO},
    fixed={
        "ppo": {
            **CLIPPED_PPO,
            "advantage_norm": "iteration",
            "clip_value_loss": True,
            "vf_coef": 1.0,
            "max_grad_norm": INF,
            "activation": "silu",
        }
    },
    form=Form(parse, render, edit, lambda text, env: entry_text(text, "behaviors", str(env)), entries=entries),
    remarks=remarks,
    differences=further_on,
    rounds_up=True,
)
