"""Diagnosis of a policy of Stable-Baselines3, with data that is collected as that of a run of this package is.

The sections are those of such runs; one that needs more than a policy says so.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
import torch as th
from gymnasium import spaces
from jaxtyping import Array, Key
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError, first_line
from isobatch.formatting import Say
from isobatch.laboratory.diagnosis import STANDARD_OPTIONS, Diagnosis, DiagnosisProgress, Ready, Watch, measure_sections
from isobatch.laboratory.host_source import OutsideSource
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.sb3_policy import TorchPolicy, load_model
from isobatch.laboratory.subject import Subject
from isobatch.networks.distributions import Categorical
from isobatch.rollouts.collector import Actor, AnyArray
from isobatch.rollouts.host_rollout import PolicyOutput, action_dtype, action_shape
from isobatch.rollouts.packing import Packing
from isobatch.rollouts.player import Played, Player, Standing
from isobatch.rollouts.segment import Segment
from isobatch.settings.config import Config
from isobatch.settings.options import Options
from isobatch.torch.sb3_settings import config_of


@dataclass(frozen=True)
class Model:
    """A model, and the statistics of its VecNormalize if it had one."""

    model: OnPolicyAlgorithm
    normalizer: VecNormalize | None

    def seen(self, obs: np.ndarray) -> np.ndarray:
        """Observations [..., *shape] of the environment as the policy sees them: images with their channels first."""
        if self.normalizer is not None:
            obs = np.asarray(self.normalizer.normalize_obs(obs), np.float32)
        shape = self.model.observation_space.shape or ()
        return obs if obs.shape[-len(shape) :] == shape else np.moveaxis(obs, -1, -3)

    def values(self, obs: np.ndarray) -> np.ndarray:
        """Of observations [n, *shape] as the policy sees them."""
        with th.no_grad():
            return self.model.policy.predict_values(th.as_tensor(obs)).flatten().numpy()

    def act(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Actions as the environment takes them, as they were sampled, and values, of observations [n, *shape]."""
        policy, space = self.model.policy, self.model.action_space
        with th.no_grad():
            sampled, values, _ = policy(th.as_tensor(obs))
        action = sampled.numpy()
        sent = action
        if isinstance(space, spaces.Box):
            sent = policy.unscale_action(action) if policy.squash_output else np.clip(action, space.low, space.high)
        return sent, action, values.flatten().numpy()

    def rewards(self, reward: np.ndarray) -> np.ndarray:
        """As the learner saw them."""
        return reward if self.normalizer is None else np.asarray(self.normalizer.normalize_reward(reward))


class Sb3Player(Player):
    """The policy of a model at play; PyTorch's own generator draws its actions."""

    def __init__(
        self, env: HostEnvironment, name: str, model: Model, shape: tuple[int, int], key: Key[Array, ""], limit: float
    ) -> None:
        self._model = model
        self._generator: th.Tensor | None = None  # where it stood, if this goes on with another player's episodes
        seed = int(jax.random.bits(key)) >> 1
        th.manual_seed(seed)
        kind, actions = action_dtype(env.action_space), action_shape(env.action_space)
        # Nobody asks for the probabilities of the other actions, so they are not kept.
        nothing = Categorical(jnp.zeros((1, 1)))
        output = PolicyOutput(jnp.zeros((1, *actions), kind), jnp.zeros((1, *actions), kind), nothing, jnp.zeros(1))
        self._dtype = np.dtype(kind)
        super().__init__(
            env, name, Actor(self._choose, self._value, Packing(output)), np.array([seed]), shape, key, limit
        )

    def _choose(self, keys: AnyArray, obs: np.ndarray) -> tuple[AnyArray, np.ndarray]:
        sent, action, values = self._model.act(self._model.seen(obs[0]))
        leaves = (sent.astype(self._dtype), action.astype(self._dtype), np.zeros(len(values), np.float32), values)
        words = [np.ascontiguousarray(leaf).reshape(len(values), -1).view(np.uint32) for leaf in leaves]
        return keys, np.concatenate(words, axis=1)[None]

    def _value(self, obs: np.ndarray) -> np.ndarray:
        return self._model.values(self._model.seen(obs[0]))[None]

    @property
    def standing(self) -> Standing:
        return super().standing._replace(generator=th.get_rng_state().numpy())

    def go_on(self, standing: Standing) -> None:
        super().go_on(standing)
        self._generator = th.as_tensor(np.array(standing.generator))

    def __enter__(self) -> Self:
        super().__enter__()
        if self._generator is not None:
            th.set_rng_state(self._generator)
        return self

    def segment(self, played: Played) -> Segment:
        """What was played; the values of its states were found when acting."""
        one = jax.tree.map(lambda leaf: np.asarray(leaf[0]), played.rollout)
        values = np.concatenate([one.value, self._value(one.last_obs[None])])
        cut_off = one.truncated & ~one.terminated
        numbers = jnp.zeros_like(jnp.asarray(one.reward))
        return Segment(
            obs=jnp.asarray(self._model.seen(one.obs)),
            action=jnp.asarray(one.action),
            behavior=Categorical(jnp.asarray(one.behavior.logits)),
            log_prob=numbers,
            reward=jnp.asarray(one.reward),
            terminated=jnp.asarray(one.terminated),
            truncated=jnp.asarray(one.truncated),
            value=jnp.asarray(values[:-1]),
            next_value=jnp.asarray(np.where(cut_off, one.final_value, values[1:])),
            time_limit=self.env.max_steps,
        )


@dataclass(frozen=True)
class Sb3Source(OutsideSource):
    """A model in environments of Gymnasium or EnvPool."""

    config: Config
    env: HostEnvironment
    model: Model
    env_timeout: float
    tell: Callable[[str], None] = lambda detail: None

    def _player(self, steps: int, num_envs: int, key: Key[Array, ""]) -> Sb3Player:
        return Sb3Player(self.env, self.config.env, self.model, (steps, num_envs), key, self.env_timeout)

    def _learned(self, reward: Array) -> Array:
        return jnp.asarray(self.model.rewards(np.asarray(reward)))


def diagnose_sb3(
    path: str | Path,
    env: str,
    options: LabOptions = STANDARD_OPTIONS,
    vecnormalize: str | Path | None = None,
    out: str | Path | None = None,
    changes: Mapping[str, object] = MappingProxyType({}),
    watch: Watch = lambda what, done: None,
    say: Say = lambda sentence: None,
    env_timeout: float = Options.env_timeout,
    ready: Ready = lambda diagnosis: None,
) -> Diagnosis:
    """What `isobatch diagnose --sb3 model.zip --env ID` does: as `diagnose`, for a model of Stable-Baselines3.

    Loading a model, and the statistics of its VecNormalize, unpickles them as SB3 does: give no file that you do not
    trust.

    Args:
        path: a model that PPO, PPOEWMA or A2C has saved.
        env: an id of Gymnasium or EnvPool, as in `Config.env`.
        options: what to measure, and how well.
        vecnormalize: what `VecNormalize.save` wrote, where the model was trained with one.
        out: where results are kept, by default a folder beside the model.
        changes: settings of the model that are other while it is measured.
        watch, say, env_timeout, ready: as in `diagnose`.

    Returns:
        The diagnosis.
    """
    path = Path(path)
    out = path.with_name(f"{path.stem}-diagnosis") if out is None else Path(out)
    model = Model(load_model(path), None if vecnormalize is None else load_normalizer(Path(vecnormalize)))
    name = env if "/" in env or ":" in env else f"gymnasium/{env}"
    config = config_of(model.model).replace(env=name, **changes)
    made = environment_of(config)
    if not isinstance(made, HostEnvironment):
        raise UsageError(f"env={env!r} is not of Gymnasium or EnvPool: name one of theirs.")
    check_spaces(model.model, made, env)
    progress = DiagnosisProgress(watch)
    source = Sb3Source(config, made, model, env_timeout, progress.tell)
    subject = Subject(config, source, TorchPolicy(model.model), options)
    steps = model.model.num_timesteps
    title = f"{config.algo} of Stable-Baselines3 on {env}"
    empty = Diagnosis(steps // config.geometry.iteration_batch, steps, title, {})
    diagnosis = measure_sections(subject, empty, out, progress, say, ready)
    watch("done", 1.0)
    return diagnosis


def load_normalizer(path: Path) -> VecNormalize:
    try:
        with path.open("rb") as file:
            normalizer = pickle.load(file)
    except Exception as error:  # whatever unpickling may raise
        raise UsageError(
            f"vecnormalize={str(path)!r} cannot be read ({type(error).__name__}: {first_line(error)}): give what "
            "VecNormalize.save wrote."
        ) from None
    if not isinstance(normalizer, VecNormalize):
        raise UsageError(
            f"vecnormalize={str(path)!r} holds a {type(normalizer).__name__}: give what VecNormalize.save wrote."
        )
    return normalizer


def check_spaces(model: OnPolicyAlgorithm, env: HostEnvironment, name: str) -> None:
    """Raise unless the environment is one that the model can act in."""
    shape, space = env.obs_shape, model.observation_space
    if not isinstance(space, spaces.Box):
        raise UsageError(f"env={name!r}: models that see a {type(space).__name__} cannot be measured, only a Box.")
    if space.shape not in (shape, (*shape[-1:], *shape[:-1])):
        raise UsageError(
            f"env={name!r} shows observations of shape {shape}, and the model was trained on {space.shape}: name the "
            "environment it was trained on, with its wrappers."
        )
    if action_shape(env.action_space) != model.action_space.shape:
        raise UsageError(f"env={name!r} takes actions of another shape than the model's {model.action_space}.")
