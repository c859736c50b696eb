"""What a training run is: `Config` (static structure) and `Hypers` (numbers that may be traced).

`Config` is frozen and hashable: everything in it but `hypers` decides the shape of the compiled
program. `Hypers` holds only floats, so a grid over them can be vmapped without compiling again.
Sizes that follow from others are not fields: see `geometry.Geometry`.

The docstring under each field is its help text on the command line.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from isobatch.errors import UsageError, near_matches
from isobatch.settings.geometry import Geometry, minibatch_counts
from isobatch.settings.parsing import JsonMapping, parse_value, plain_value

INF = float("inf")


@dataclass(frozen=True)
class Hypers:
    """The real-valued hyperparameters. Every one is a float and none changes a shape."""

    learning_rate: float = 2.5e-4
    """Step size of the optimizer at the start of the run."""
    beta1: float = 0.9
    """Adam: decay rate of the first moment."""
    beta2: float = 0.999
    """Adam: decay rate of the second moment (RMSProp: its decay rate)."""
    optimizer_eps: float = 1e-5
    """Adam and RMSProp: added to the root of the second moment."""
    max_grad_norm: float = 0.5
    """Clip gradients to this global norm; inf switches it off."""
    gamma: float = 0.99
    """Discount factor of the return."""
    gae_lambda: float = 0.95
    """Bootstrapping parameter of generalized advantage estimation."""
    clip_eps: float = 0.2
    """Clipped objective: the ratio to the proximal policy is clipped to 1 -+ this; inf switches it off."""
    kl_coef: float = 1.0
    """KL objective: weight of the penalty KL[proximal, current]."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss, which is half the squared error."""
    value_clip_eps: float = 0.2
    """Range of the clipped value loss, used when clip_value_loss is on."""
    importance_cap: float = 100.0
    """Largest importance ratio to the behavior policy; inf switches the cap off."""
    aux_learning_rate: float = 5e-4
    """PPG: Adam step size of the auxiliary phase."""
    beta_clone: float = 1.0
    """PPG: weight of KL[policy before the auxiliary phase, current] in that phase."""
    beta_prox: float = 8 / 9
    """Decay rate of the EWMA proximal policy, per gradient step; its center of mass is 1/(1-beta) - 1 = 8."""
    loglinear_alpha: float = 0.5
    """Log-linear proximal policy: its place between behavior (0) and current policy (1)."""
    adv_norm_decay: float = 0.0
    """Decay rate of the EWMA advantage moments, per iteration; 0 uses the newest iteration only."""
    adv_norm_eps: float = 1e-8
    """Added to the advantage standard deviation before dividing by it."""
    aggregation_horizon: float = 1000.0
    """Aggregation `constant`: the fixed horizon that sums over a trajectory are divided by."""
    obs_clip: float = 10.0
    """Normalized observations are clipped to -+ this."""
    reward_norm_gamma: float = 0.99
    """Discount of the return whose standard deviation scales the rewards."""
    reward_clip: float = 10.0
    """Normalized rewards are clipped to -+ this."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if not isinstance(value, (int, float)):
                continue  # inside a compiled program: checked when it was still a number
            low, high, low_open, high_open, text = _RANGES[f.name]
            outside = (
                math.isnan(value)
                or value < low
                or value > high
                or (low_open and value == low)
                or (high_open and value == high)
            )
            if outside:
                raise UsageError(f"{f.name}={value:g} is out of range: use a number {text}.")


def _range(low: float, high: float, low_open: bool = False, high_open: bool = False) -> tuple:
    if high == INF:
        text = f"{'above' if low_open else 'of at least'} {low:g}{' and finite' if high_open else ''}"
    else:
        text = f"from {low:g}{' (excluded)' if low_open else ''} to {high:g}{' (excluded)' if high_open else ''}"
    return low, high, low_open, high_open, text


_POSITIVE = _range(0, INF, low_open=True, high_open=True)
_POSITIVE_OR_INF = _range(0, INF, low_open=True)
_NON_NEGATIVE = _range(0, INF, high_open=True)
_UNIT = _range(0, 1)
_DECAY = _range(0, 1, high_open=True)

_RANGES: dict[str, tuple] = {
    "learning_rate": _POSITIVE,
    "beta1": _DECAY,
    "beta2": _DECAY,
    "optimizer_eps": _POSITIVE,
    "max_grad_norm": _POSITIVE_OR_INF,
    "gamma": _UNIT,
    "gae_lambda": _UNIT,
    "clip_eps": _POSITIVE_OR_INF,
    "kl_coef": _NON_NEGATIVE,
    "ent_coef": _NON_NEGATIVE,
    "vf_coef": _NON_NEGATIVE,
    "value_clip_eps": _POSITIVE_OR_INF,
    "importance_cap": _range(1, INF),
    "aux_learning_rate": _POSITIVE,
    "beta_clone": _NON_NEGATIVE,
    "beta_prox": _DECAY,
    "loglinear_alpha": _UNIT,
    "adv_norm_decay": _DECAY,
    "adv_norm_eps": _NON_NEGATIVE,
    "aggregation_horizon": _POSITIVE,
    "obs_clip": _POSITIVE_OR_INF,
    "reward_norm_gamma": _UNIT,
    "reward_clip": _POSITIVE_OR_INF,
}

_MAY_BE_ZERO = ("value_epochs", "policy_iterations_per_phase", "staleness")

Objective = Literal["policy-gradient", "clip", "kl"]
KlForm = Literal["analytic", "squared"]
ImportancePolicy = Literal["behavior", "recent"]
ProximalPolicy = Literal["behavior", "recent", "ewma", "loglinear"]
AdvantageNorm = Literal["none", "minibatch", "iteration", "ewma"]
Aggregation = Literal["timestep", "trajectory", "trajectory-mean", "constant"]
MinibatchScheme = Literal["shuffle", "envs"]
Arrangement = Literal["dual", "shared", "detached"]
Encoder = Literal["auto", "mlp", "conv", "impala", "nature"]
Activation = Literal["tanh", "relu", "silu", "gelu"]
Vectorization = Literal["sync", "async"]
Autoreset = Literal["disabled", "next-step", "same-step"]
OptimizerName = Literal["adam", "sgd", "rmsprop"]
Schedule = Literal["constant", "linear"]


@dataclass(frozen=True)
class Config:
    """A training run but for its seeds: environment, sizes, choices and `hypers`."""

    env: str = "CartPole-v1"
    """Environment id (`isobatch envs` lists them)."""
    env_kwargs: JsonMapping = JsonMapping("{}")  # noqa: RUF009
    """Arguments of the environment's constructor, a mapping: '{gravity: 3.7}' (Gymnasium and EnvPool)."""
    vectorization: Vectorization = "sync"
    """Gymnasium: environments one after another in this process, or each in a process of its own."""
    autoreset: Autoreset = "disabled"
    """Gymnasium: who resets an environment: we, with a seed for each episode, or Gymnasium in one of its modes."""
    rescale_actions: bool = False
    """Continuous actions: stretch [-1, 1] to the bounds of the environment, which must be finite."""
    algo: str = "ppo"
    """Name of the algorithm whose preset filled the choices below."""
    total_timesteps: int = 500_000
    """Environment steps per seed; rounded down to whole iterations."""

    num_envs: int = 8
    """N, environments stepped in parallel."""
    num_steps: int = 128
    """T, steps per environment and iteration; N x T is the iteration batch."""
    num_minibatches: int = 4
    """Minibatches per epoch; each is one optimization batch of N x T / this samples."""
    update_epochs: int = 4
    """E, passes over the iteration batch (PPG: E_pi, of the policy)."""
    value_epochs: int = 0
    """E_V, separate passes of the value loss with an optimizer of its own; 0 trains value and policy jointly."""
    minibatch_scheme: MinibatchScheme = "shuffle"
    """shuffle: one permutation of all samples per epoch; envs: whole environment rows."""

    policy_iterations_per_phase: int = 0
    """N_pi, iterations between two auxiliary phases (PPG); 0 means no auxiliary phase."""
    aux_epochs: int = 6
    """E_aux, passes of an auxiliary phase over its N_pi iterations."""
    aux_minibatches: int = 16
    """Minibatches per auxiliary epoch and policy iteration of the phase: N_pi x this in all."""

    complete_episodes: bool = False
    """Start every iteration with a reset and use whole episodes only (needs num_steps of at least the time limit)."""
    bootstrap: bool = True
    """Let the value of the last state stand for the rewards after a rollout or a time limit; off: they count as 0."""
    baseline: bool = True
    """Subtract a learned value function from returns; off: none is trained or used."""
    staleness: int = 0
    """Iterations by which each rollout is held back before it is used."""

    objective: Objective = "clip"
    """Policy objective."""
    kl_form: KlForm = "analytic"
    """KL penalty: analytic, or half the squared log-ratio of sampled actions (reference code)."""
    importance_policy: ImportancePolicy = "behavior"
    """Denominator of the importance ratio."""
    proximal_policy: ProximalPolicy = "behavior"
    """Policy that the clipping or the KL penalty holds on to."""
    advantage_norm: AdvantageNorm = "iteration"
    """Samples whose mean and standard deviation normalize the advantages."""
    aggregation: Aggregation = "timestep"
    """How per-sample losses become one number."""
    clip_value_loss: bool = False
    """Clip the value loss around the behavior value."""

    arrangement: Arrangement = "dual"
    """Policy and value networks: dual (separate), shared (one torso), detached (one torso that values do not train)."""
    encoder: Encoder = "auto"
    """First layers: mlp (none), conv (plain), impala or nature; auto: conv for small images, else mlp."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the fully connected layers."""
    channels: tuple[int, ...] = (16,)
    """Channels of the convolutions (impala: of its stages), for image observations."""
    activation: Activation = "tanh"
    """Non-linearity of the networks."""

    optimizer: OptimizerName = "adam"
    """Optimizer."""
    lr_schedule: Schedule = "constant"
    """linear: the learning rate falls to zero over the run."""

    normalize_observations: bool = False
    """Scale observations by their running mean and standard deviation."""
    normalize_rewards: bool = False
    """Scale rewards by the running standard deviation of the discounted return."""
    noise_scale: bool = False
    """Measure the gradient noise scale in every iteration, for one more gradient pass over it (metrics noise/*)."""
    staggered_resets: bool = False
    """Start each environment at another point of its time limit, so that they do not truncate together."""

    hypers: Hypers = field(default_factory=Hypers)

    def __post_init__(self) -> None:
        for name, kind in field_kinds().items():
            least = 0 if name in _MAY_BE_ZERO else 1
            if kind is int and getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} must be at least {least}.")
        for name in ("hidden_sizes", "channels"):
            sizes = getattr(self, name)
            if not sizes or min(sizes) < 1:
                raise UsageError(f"{name}={list(sizes)} must be a list of positive sizes, for example 64,64.")
        if self.encoder == "nature" and len(self.channels) != 3:
            raise UsageError(f"channels={list(self.channels)} must be three sizes for encoder='nature': use 32,64,64.")
        self.geometry.check_minibatches(self.minibatch_scheme)
        if self.total_timesteps < self.geometry.iteration_batch:
            raise UsageError(
                f"total_timesteps={self.total_timesteps} is below one iteration of {self.geometry.iteration_batch} "
                f"steps (num_envs {self.num_envs} x num_steps {self.num_steps}); raise it or lower the others."
            )
        self._check_choices()
        if self.policy_iterations_per_phase:
            self._check_phases()

    def _check_choices(self) -> None:
        """Combinations that have no meaning."""
        if self.proximal_policy == "loglinear" and self.objective == "kl" and self.kl_form == "analytic":
            raise UsageError(
                "proximal_policy='loglinear' has no analytic KL, it is known only at the sampled actions: "
                "use kl_form=squared or the objective clip."
            )
        if self.objective == "policy-gradient" and self.geometry.gradient_steps > 1:
            raise UsageError(
                f"objective='policy-gradient' has no ratio to correct for the {self.geometry.gradient_steps} gradient "
                "steps it would take on each rollout: use num_minibatches=1 and update_epochs=1, or the objective clip."
            )
        if self.staleness >= self.num_iterations:
            raise UsageError(
                f"staleness={self.staleness} leaves none of the {self.num_iterations} iterations to learn from: "
                "lower it or raise total_timesteps."
            )
        if self.objective == "policy-gradient" and self.staleness:
            raise UsageError(
                f"staleness={self.staleness} needs an objective with an importance ratio, "
                f"and {self.objective!r} ({self.algo}) has none: use clip or kl, or staleness 0."
            )
        if not self.baseline and (self.bootstrap or self.hypers.gae_lambda != 1):
            raise UsageError(
                "baseline=False needs returns without a value function: use bootstrap=False and gae_lambda=1."
            )
        if not self.baseline and self.value_epochs:
            raise UsageError(
                f"baseline=False leaves value_epochs={self.value_epochs} nothing to train: use value_epochs=0."
            )
        if not self.baseline and self.policy_iterations_per_phase:
            raise UsageError(
                "baseline=False leaves an auxiliary phase nothing to learn: use policy_iterations_per_phase=0."
            )

        if self.noise_scale and self.num_envs < 2:
            raise UsageError("noise_scale=True compares environments with each other: use num_envs of at least 2.")
        if self.complete_episodes and self.policy_iterations_per_phase:
            raise UsageError(
                "complete_episodes=True does not go with an auxiliary phase, which uses every step: "
                "use policy_iterations_per_phase=0."
            )

    def _check_phases(self) -> None:
        phase, updates = self.policy_iterations_per_phase, self.num_iterations - self.staleness
        if updates < 1 or updates % phase:
            steps = (max(1, round(updates / phase)) * phase + self.staleness) * self.geometry.iteration_batch
            raise UsageError(
                f"policy_iterations_per_phase={phase} does not divide the {updates} updates of this run into whole "
                f"phases of {self.geometry.phase_batch} steps: use total_timesteps={steps}."
            )
        fitting = minibatch_counts(self.num_envs, self.num_steps, self.minibatch_scheme)
        if self.aux_minibatches not in fitting:
            near = sorted(fitting, key=lambda n: abs(n - self.aux_minibatches))[:4]
            raise UsageError(
                f"aux_minibatches={self.aux_minibatches} does not evenly divide an iteration of num_envs "
                f"{self.num_envs} x num_steps {self.num_steps} under minibatch_scheme={self.minibatch_scheme!r}: "
                f"use {' or '.join(map(str, sorted(near)))}."
            )

    @property
    def geometry(self) -> Geometry:
        """The batches of this run under their names."""
        return Geometry(
            self.num_envs,
            self.num_steps,
            self.num_minibatches,
            self.update_epochs,
            self.policy_iterations_per_phase,
        )

    @property
    def num_iterations(self) -> int:
        return self.total_timesteps // self.geometry.iteration_batch

    @property
    def env_steps(self) -> int:
        """Environment steps per seed that the run really takes."""
        return self.num_iterations * self.geometry.iteration_batch

    @property
    def static(self) -> Config:
        """This config with default hypers: equal for runs that share one compiled program."""
        return dataclasses.replace(self, hypers=Hypers(gae_lambda=1.0))  # 1: without a baseline nothing else is valid

    def to_dict(self) -> dict[str, Any]:
        """One flat mapping of every field, ready for YAML and JSON."""
        flat = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "hypers"}
        flat |= dataclasses.asdict(self.hypers)
        return {k: plain_value(v) for k, v in flat.items()}

    def replace(self, **changes: Any) -> Config:
        """A copy with fields of either dataclass changed by name, checked and converted."""
        clean = {name: parse_field(name, value) for name, value in changes.items()}
        hyper = {k: v for k, v in clean.items() if k in _RANGES}
        rest = {k: v for k, v in clean.items() if k not in _RANGES}
        return dataclasses.replace(self, hypers=dataclasses.replace(self.hypers, **hyper), **rest)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Config:
        return cls().replace(**mapping)


@cache
def field_kinds() -> dict[str, Any]:
    """Name -> type of every flat field, static ones first."""
    kinds: dict[str, Any] = {}
    for owner in (Config, Hypers):
        hints = typing.get_type_hints(owner)
        kinds |= {f.name: hints[f.name] for f in dataclasses.fields(owner) if f.name != "hypers"}
    return kinds


def parse_field(name: str, value: Any) -> Any:
    """`value` (from YAML, a flag or Python) as the type of the field `name`, or a UsageError."""
    if name not in field_kinds():
        raise UsageError(f"unknown setting {name!r}{near_matches(name, field_kinds())}")
    return parse_value(name, value, field_kinds()[name])
