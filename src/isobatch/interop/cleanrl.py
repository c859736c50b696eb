"""CleanRL: the flags of `ppo.py` and its siblings.

`num_minibatches` is a count, as ours. CleanRL's own `batch_size`, computed at the start and shown in its logs, is
num_envs x num_steps, our *iteration batch*; its `minibatch_size` is our *optimization batch*, and grows silently with
num_envs.

The value loss has the factor 1/2, as ours; its clip range is clip_coef. Advantages are normalized per minibatch.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from isobatch.advice.kl_control import KlControl
from isobatch.errors import UsageError
from isobatch.interop.computed_otherwise import by_n_minus_1
from isobatch.interop.form import Form
from isobatch.interop.keys import Key, Known, Raw, choice, environment, key, number, one_clip, stop_at, whole
from isobatch.interop.library import CLIPPED_PPO, Library
from isobatch.interop.networks import NATURE
from isobatch.settings.parsing import SettingsByName, parse_value

COMMAND = "command"
"""Where the words before the first flag are kept, such as `python cleanrl/ppo.py`."""

# Defaults of the scripts, as they stand in the repository; the others are as in ppo.py.
SCRIPTS: dict[str, SettingsByName] = {
    "ppo.py": dict(
        env_id="CartPole-v1",
        total_timesteps=500_000,
        learning_rate=2.5e-4,
        num_envs=4,
        num_steps=128,
        anneal_lr=True,
        gamma=0.99,
        num_minibatches=4,
        update_epochs=4,
        clip_coef=0.2,
        ent_coef=0.01,
    ),
    "ppo_atari.py": dict(env_id="BreakoutNoFrameskip-v4", total_timesteps=10_000_000, num_envs=8, clip_coef=0.1),
    "ppo_atari_envpool.py": dict(env_id="Breakout-v5", total_timesteps=10_000_000, num_envs=8, clip_coef=0.1),
    "ppo_continuous_action.py": dict(
        env_id="HalfCheetah-v4",
        total_timesteps=1_000_000,
        learning_rate=3e-4,
        num_envs=1,
        num_steps=2048,
        num_minibatches=32,
        update_epochs=10,
        ent_coef=0.0,
    ),
    "ppo_procgen.py": dict(
        env_id="starpilot",
        total_timesteps=25_000_000,
        learning_rate=5e-4,
        num_envs=64,
        num_steps=256,
        anneal_lr=False,
        gamma=0.999,
        num_minibatches=8,
        update_epochs=3,
    ),
}
NETWORKS: dict[str, SettingsByName] = {
    "ppo_atari.py": NATURE,
    "ppo_atari_envpool.py": NATURE,
    "ppo_procgen.py": NATURE | {"encoder": "impala", "channels": [16, 32, 32], "hidden_sizes": [256]},
}
"""Networks of the scripts that have others than ppo.py, which has ours."""
OTHERS = dict(gae_lambda=0.95, norm_adv=True, clip_vloss=True, vf_coef=0.5, max_grad_norm=0.5)
DEFAULT = object()
"""Default that depends on the script."""


def defaults(command: str) -> SettingsByName:
    """The defaults of the script that a command names, or of ppo.py."""
    return OTHERS | SCRIPTS["ppo.py"] | SCRIPTS.get(_script(command), {})


def _script(command: str) -> str:
    """The file that a command runs."""
    return next((word.rsplit("/", 1)[-1] for word in command.split() if word.endswith(".py")), "")


def _network() -> Key:
    """The script of a command says which network there is."""
    fields = "encoder channels hidden_sizes activation arrangement"
    return key(
        COMMAND,
        fields,
        "",
        lambda value, known: NETWORKS.get(_script(str(value)), {}),
        lambda config, old, known: old,
    )


def _flag(key: Key) -> Key:
    """A key whose default is looked up by the script's name."""
    (name,) = key.names

    def read(value: object, known: Known) -> SettingsByName:
        return key.read(defaults(str(known.raw(COMMAND)))[name] if value is DEFAULT else value, known)

    return Key(key.names, key.fields, DEFAULT, read, key.write)


PPO = (
    _network(),
    *(
        _flag(key)
        for key in (
            environment("env_id", None),
            whole("num_envs", "num_envs", None),
            whole("num_steps", "num_steps", None),
            whole("total_timesteps", "total_timesteps", None),
            whole("num_minibatches", "num_minibatches", None),
            whole("update_epochs", "update_epochs", None),
            number("learning_rate", "learning_rate", None),
            choice("anneal_lr", "lr_schedule", True, on="linear", off="constant"),
            number("gamma", "gamma", None),
            number("gae_lambda", "gae_lambda", None),
            choice("norm_adv", "advantage_norm", True, on="minibatch", off="none"),
            one_clip("clip_coef", None),
            choice("clip_vloss", "clip_value_loss", True, on=True, off=False),
            number("ent_coef", "ent_coef", None),
            number("vf_coef", "vf_coef", None),
            number("max_grad_norm", "max_grad_norm", None),
        )
    ),
    stop_at("target_kl", None, times=1 / 1.5),
)


def control(raw: Raw) -> KlControl | None:
    """`--target-kl`: the epochs end after the first one that is above it."""
    target = raw("target_kl")
    if target is None or str(target).lower() == "none":
        return None
    return KlControl("target_kl", parse_value("target_kl", target, float), "stop", factor=1.0)


def parse(text: str, env: str | None) -> tuple[SettingsByName, str | None]:
    """A command line, with or without the words before its flags."""
    try:
        words = shlex.split(text.replace("\\\n", " "))  # a command that goes on in the next line
    except ValueError as error:
        raise UsageError(f"the CleanRL command cannot be split into words ({error}): check its quotes.") from None
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    settings: SettingsByName = {COMMAND: shlex.join(words[:first])} if first else {}
    switches = {key.names[0] for key in PPO if key.names[0] in ("anneal_lr", "norm_adv", "clip_vloss")}
    rest = words[first:]
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"{word!r} in the CleanRL command follows no flag: use --name value.")
        flag, equals, value = word.removeprefix("--").partition("=")
        name = flag.replace("-", "_")
        if equals:
            settings[name] = value
        elif rest and not rest[0].startswith("--"):
            settings[name] = rest.pop(0)
        elif name.removeprefix("no_") in switches:
            settings[name.removeprefix("no_")] = not name.startswith("no_")
        else:
            settings[name] = True
    if env is not None:
        settings["env_id"] = env
    named = settings.get("env_id")
    return settings, None if named is None else str(named)


def render(settings: Mapping[str, object], env: str | None) -> str:
    flags = [_flag_text(name, value) for name, value in settings.items() if name != COMMAND]
    return " ".join([str(settings[COMMAND]), *flags] if COMMAND in settings else flags)


def edit(text: str, settings: Mapping[str, object], env: str | None) -> str:
    """The command with the flags that change, or are new at its end, and every other word as it was typed."""
    before, _ = parse(text, None)
    changed = text.rstrip()
    for name, value in settings.items():
        if name not in before:
            changed += " " + _flag_text(name, value)
        elif before[name] != value:
            flag = name.replace("_", "[-_]")
            typed = rf"(?<!\S)--(no[-_])?{flag}((=|\s+(?!--))\S+)?(?!\S)"
            changed = re.sub(typed, _flag_text(name, value).replace("\\", r"\\"), changed, count=1)
    if before == settings:
        return text
    rendered = render(settings, env)
    return changed if parse(changed, env) == parse(rendered, env) else rendered


def _flag_text(name: str, value: object) -> str:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return flag if value else flag.replace("--", "--no-", 1)
    return f"{flag} {shlex.quote(str(value))}"


LIBRARY = Library(
    name="cleanrl",
    title="CleanRL",
    batch_size="batch_size (in its logs) is the rollout num_envs x num_steps; minibatch_size is the optimization batch",
    algorithms={"ppo": PPO},
    fixed={"ppo": {**CLIPPED_PPO, "optimizer_eps": 1e-5}},
    form=Form(parse, render, edit),
    control=control,
    differences=by_n_minus_1,
)
