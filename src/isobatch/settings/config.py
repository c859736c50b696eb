"""What a training run is: `Config` (static structure) and `Hypers` (numbers that may be traced).

`Config` is frozen and hashable: everything in it but `hypers` decides the shape of the compiled
program. `Hypers` holds only floats, so a grid over them can be vmapped without compiling again.
Sizes that follow from others are not fields: see `geometry.Geometry`.

A field is declared with its type, the range of its numbers and its help text on the command line: see `fields`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal

from isobatch.errors import UsageError, check_constructor
from isobatch.settings.checks import check_combinations
from isobatch.settings.fields import (
    COUNT,
    COUNT_OR_0,
    DECAY,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_INF,
    UNIT,
    Field,
    Range,
    check_ranges,
    fields_of,
    parse_fields,
)
from isobatch.settings.geometry import Geometry
from isobatch.settings.parsing import JsonMapping, SettingsByName, plain_value

Objective = Literal["policy-gradient", "clip", "kl"]
KlForm = Literal["analytic", "squared"]
ImportancePolicy = Literal["behavior", "recent"]
ProximalPolicy = Literal["behavior", "recent", "ewma", "loglinear", "loglinear-age"]
AdvantageNorm = Literal["none", "minibatch", "iteration", "ewma"]
Aggregation = Literal["timestep", "trajectory", "trajectory-mean", "constant"]
MinibatchScheme = Literal["shuffle", "envs", "stratified"]
Arrangement = Literal["dual", "shared", "detached"]
Encoder = Literal["auto", "mlp", "conv", "impala", "nature"]
ClipSchedule = Literal["constant", "linear"]
Activation = Literal["tanh", "relu", "elu", "silu", "gelu"]
Vectorization = Literal["sync", "async"]
Schedule = Literal["free", "fixed"]
Autoreset = Literal["disabled", "next-step", "same-step"]
OptimizerName = Literal["adam", "adam-micro", "sgd", "rmsprop"]
ENDLESS = 10**12
"""`total_timesteps` of another library's settings that do not say how long to train, so that any batch fits."""


@check_constructor
@dataclass(frozen=True)
class Hypers:
    """The real-valued hyperparameters. Every one is a float, or traced inside a program, and none changes a shape."""

    learning_rate: Annotated[float, POSITIVE, "Step size of the optimizer at the start of the run."] = 2.5e-4
    beta1: Annotated[float, DECAY, "Adam: decay rate of the first moment."] = 0.9
    beta2: Annotated[float, DECAY, "Adam: decay rate of the second moment (RMSProp: its decay rate)."] = 0.999
    optimizer_eps: Annotated[float, POSITIVE, "Adam and RMSProp: added to the root of the second moment."] = 1e-5
    desired_kl: Annotated[
        float, POSITIVE, "lr_schedule adaptive: the rate falls by 1.5 above twice this KL, and rises below half of it."
    ] = 0.01
    target_kl: Annotated[
        float, POSITIVE, "KL from the behavior policy at which the gradient steps of an iteration end (times 1.5)."
    ] = 0.02
    max_grad_norm: Annotated[float, POSITIVE_OR_INF, "Clip gradients to this global norm; inf switches it off."] = 0.5
    gamma: Annotated[float, UNIT, "Discount factor of the return."] = 0.99
    gae_lambda: Annotated[float, UNIT, "Bootstrapping parameter of generalized advantage estimation."] = 0.95
    clip_eps: Annotated[
        float,
        POSITIVE_OR_INF,
        "Clipped objective: the ratio to the proximal policy is clipped to 1 -+ this; inf switches it off.",
    ] = 0.2
    kl_coef: Annotated[float, NON_NEGATIVE, "KL objective: weight of the penalty KL[proximal, current]."] = 1.0
    ent_coef: Annotated[float, NON_NEGATIVE, "Weight of the entropy bonus."] = 0.01
    vf_coef: Annotated[float, NON_NEGATIVE, "Weight of the value loss, which is half the squared error."] = 0.5
    value_clip_eps: Annotated[
        float, POSITIVE_OR_INF, "Range of the clipped value loss, used when clip_value_loss is on."
    ] = 0.2
    clip_eps_end: Annotated[
        float, NON_NEGATIVE, "clip_schedule or value_clip_schedule linear: where the range would end, after the run."
    ] = 0.0
    importance_cap: Annotated[
        float, Range(1), "Largest importance ratio to the behavior policy; inf switches the cap off."
    ] = 100.0
    aux_learning_rate: Annotated[float, POSITIVE, "PPG: Adam step size of the auxiliary phase."] = 5e-4
    beta_clone: Annotated[
        float, NON_NEGATIVE, "PPG: weight of KL[policy before the auxiliary phase, current] in that phase."
    ] = 1.0
    beta_prox: Annotated[
        float, DECAY, "Decay rate of the EWMA proximal policy, per gradient step; center of mass 1/(1-beta) - 1 = 8."
    ] = 8 / 9
    loglinear_alpha: Annotated[
        float, UNIT, "Log-linear proximal policy: its place between behavior (0) and current policy (1)."
    ] = 0.5
    adv_norm_decay: Annotated[
        float, DECAY, "Decay rate of the EWMA advantage moments, per iteration; 0 uses the newest iteration only."
    ] = 0.0
    adv_norm_eps: Annotated[
        float, NON_NEGATIVE, "Added to the standard deviation of the advantages before dividing by it."
    ] = 1e-8  # fmt: skip
    aggregation_horizon: Annotated[
        float, POSITIVE, "Aggregation `constant`: the fixed horizon that sums over a trajectory are divided by."
    ] = 1000.0
    obs_clip: Annotated[float, POSITIVE_OR_INF, "Normalized observations are clipped to -+ this."] = 10.0
    reward_norm_gamma: Annotated[
        float, UNIT, "Discount of the return whose standard deviation scales the rewards."
    ] = 0.99  # fmt: skip
    reward_clip: Annotated[float, POSITIVE_OR_INF, "Normalized rewards are clipped to -+ this."] = 10.0

    def __post_init__(self) -> None:
        check_ranges(self)


@check_constructor
@dataclass(frozen=True)
class Config:
    """A training run but for its seeds: environment, sizes, choices and `hypers`."""

    env: Annotated[str, "Environment id (`isobatch envs` lists them)."] = "CartPole-v1"
    env_kwargs: Annotated[
        JsonMapping, "Arguments of the environment's constructor, a mapping: '{gravity: 3.7}' (Gymnasium and EnvPool)."
    ] = JsonMapping("{}")  # noqa: RUF009
    vectorization: Annotated[
        Vectorization, "Gymnasium: environments one after another in this process, or each in a process of its own."
    ] = "sync"
    autoreset: Annotated[
        Autoreset,
        "Gymnasium: who resets an environment: we, with a seed for each episode, or Gymnasium in one of its modes.",
    ] = "disabled"
    rescale_actions: Annotated[
        bool, "Continuous actions: stretch [-1, 1] to the bounds of the environment, which must be finite."
    ] = False
    algo: Annotated[str, "Name of the algorithm whose preset filled the choices below."] = "ppo"
    total_timesteps: Annotated[int, COUNT, "Environment steps per seed; rounded down to whole iterations."] = 500_000

    num_envs: Annotated[int, COUNT, "N, environments stepped in parallel."] = 8
    num_steps: Annotated[int, COUNT, "T, steps per environment and iteration; N x T is the iteration batch."] = 128
    num_minibatches: Annotated[
        int, COUNT, "Minibatches per epoch; each is one optimization batch of N x T / this samples."
    ] = 4
    update_epochs: Annotated[int, COUNT, "E, passes over the iteration batch (PPG: E_pi, of the policy)."] = 4
    value_epochs: Annotated[
        int,
        COUNT_OR_0,
        "E_V, separate passes of the value loss with an optimizer of its own; 0 trains value and policy jointly.",
    ] = 0
    minibatch_scheme: Annotated[
        MinibatchScheme,
        "shuffle: one permutation of all samples per epoch; envs: whole environment rows; stratified: one permutation "
        "of each shard, of which every minibatch takes the same number.",
    ] = "shuffle"
    num_shards: Annotated[
        int, COUNT, "S, equal groups of environments that devices can share; not a number of devices (see --devices)."
    ] = 1

    policy_iterations_per_phase: Annotated[
        int, COUNT_OR_0, "N_pi, iterations between two auxiliary phases (PPG); 0 means no auxiliary phase."
    ] = 0
    aux_epochs: Annotated[int, COUNT, "E_aux, passes of an auxiliary phase over its N_pi iterations."] = 6
    aux_minibatches: Annotated[
        int, COUNT, "Minibatches per auxiliary epoch and policy iteration of the phase: N_pi x this in all."
    ] = 16

    complete_episodes: Annotated[
        bool,
        "Start every iteration with a reset and use whole episodes only (needs num_steps of at least the time limit).",
    ] = False
    bootstrap: Annotated[
        bool,
        "Let the value of the last state stand for the rewards after a rollout or a time limit; off: they count as 0.",
    ] = True
    baseline: Annotated[bool, "Subtract a learned value function from returns; off: none is trained or used."] = True
    staleness: Annotated[int, COUNT_OR_0, "Iterations by which each rollout is held back before it is used."] = 0
    actors: Annotated[
        int,
        COUNT_OR_0,
        "K, actors that collect while the learner learns, each with N / K environments and a copy of the policy "
        "(Gymnasium, EnvPool); 0: collecting and learning take turns. KIND:K says where they run: see actor_kind.",
    ] = 0
    max_lag: Annotated[
        int,
        COUNT_OR_0,
        "L, largest age of a sample when it is used, in environment steps of the whole run; 2i means 2 iterations. "
        "Actors wait rather than exceed it. 0: nothing is older than the policy that learns from it.",
    ] = 0
    schedule: Annotated[
        Schedule,
        "Actors: free, batches of what is there first; or fixed, one rollout of each actor by a policy that is max_lag "
        "old, the same in every run.",
    ] = "free"

    objective: Annotated[Objective, "Policy objective."] = "clip"
    kl_form: Annotated[
        KlForm, "KL penalty: analytic, or half the squared log-ratio of sampled actions (reference code)."
    ] = "analytic"
    importance_policy: Annotated[ImportancePolicy, "Denominator of the importance ratio."] = "behavior"
    proximal_policy: Annotated[ProximalPolicy, "Policy that the clipping or the KL penalty holds on to."] = "behavior"
    advantage_norm: Annotated[
        AdvantageNorm, "Samples whose mean and standard deviation normalize the advantages."
    ] = "iteration"  # fmt: skip
    aggregation: Annotated[
        Aggregation,
        "How policy loss, value loss and entropy of the samples, alike, become one number: mean over time steps; sum "
        "over each trajectory, its mean, or its sum / aggregation_horizon, averaged over trajectories. A trajectory is "
        "an episode, or the piece of one in the rollout. Losses of PPG's auxiliary phase are means over time steps, "
        "whatever it is.",
    ] = "timestep"
    clip_schedule: Annotated[
        ClipSchedule, "constant; linear: clip_eps goes in a line to clip_eps_end over the run."
    ] = "constant"  # fmt: skip
    clip_value_loss: Annotated[bool, "Clip the value loss around the behavior value."] = False
    value_clip_schedule: Annotated[
        ClipSchedule, "constant; linear: value_clip_eps goes in a line to clip_eps_end over the run."
    ] = "constant"

    networks: Annotated[str, "standard: the ones below; or some given to `isobatch.register_networks`."] = "standard"
    arrangement: Annotated[
        Arrangement,
        "Policy and value networks: dual (separate), shared (one torso), detached (one that values do not train).",
    ] = "dual"
    encoder: Annotated[
        Encoder, "First layers: mlp (none), conv (plain), impala or nature; auto: conv for small images, else mlp."
    ] = "auto"
    hidden_sizes: Annotated[tuple[int, ...], COUNT, "Widths of the fully connected layers."] = (64, 64)
    channels: Annotated[
        tuple[int, ...], COUNT, "Channels of the convolutions (impala: of its stages), for image observations."
    ] = (16,)
    activation: Annotated[Activation, "Non-linearity of the networks."] = "tanh"

    optimizer: Annotated[
        OptimizerName,
        "Optimizer; adam-micro: Adam whose second moment averages the squared gradients of micro-batches, so that it "
        "does not know the size of the batch.",
    ] = "adam"
    micro_batch_size: Annotated[
        int, COUNT, "adam-micro: samples in each gradient that is squared. It stays when batches change."
    ] = 32
    lr_schedule: Annotated[
        str,
        "constant; linear: the learning rate falls to zero over the run; adaptive: it follows the KL of minibatches "
        "towards desired_kl; or one given to `isobatch.register_schedule`.",
    ] = "constant"

    normalize_observations: Annotated[bool, "Scale observations by their running mean and standard deviation."] = False
    normalize_rewards: Annotated[
        bool, "Scale rewards by the running standard deviation of the discounted return."
    ] = False  # fmt: skip
    stop_at_target_kl: Annotated[
        bool, "End the gradient steps of an iteration where the KL of a minibatch exceeds 1.5 times target_kl."
    ] = False
    noise_scale: Annotated[
        bool,
        "Measure the gradient noise scale in every iteration, for one more gradient pass over it (metrics noise/*).",
    ] = False
    staggered_resets: Annotated[
        bool, "Start each environment at another point of its time limit, so that they do not truncate together."
    ] = False

    hypers: Hypers = field(default_factory=Hypers)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_combinations(self)

    @property
    def geometry(self) -> Geometry:
        """The batches of this run under their names."""
        sizes = self.num_envs, self.num_steps, self.num_minibatches, self.update_epochs
        return Geometry(*sizes, self.policy_iterations_per_phase, self.num_shards)

    @property
    def num_iterations(self) -> int:
        return self.total_timesteps // self.geometry.iteration_batch

    @property
    def lag_iterations(self) -> int:
        """Updates by which data of actors may be behind; 0: collecting and learning take turns."""
        return self.max_lag // self.geometry.iteration_batch if self.actors else 0

    @property
    def updates_behind(self) -> int:
        """How many updates older than the policy that learns from it the one may be that collected the data."""
        return self.staleness or self.lag_iterations

    @property
    def is_stale(self) -> bool:
        """Whether data may be of an older policy than the one that learns from it."""
        return self.updates_behind > 0

    @property
    def env_steps(self) -> int:
        """Environment steps per seed that the run really takes."""
        return self.num_iterations * self.geometry.iteration_batch

    @property
    def static(self) -> Config:
        """This config with default hypers: equal for runs that share one compiled program."""
        return dataclasses.replace(self, hypers=Hypers(gae_lambda=1.0))  # 1: without a baseline nothing else is valid

    def to_dict(self) -> SettingsByName:
        """One flat mapping of every field, ready for YAML and JSON."""
        flat = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "hypers"}
        flat |= dataclasses.asdict(self.hypers)
        return {k: plain_value(v) for k, v in flat.items()}

    def replace(self, /, **changes: object) -> Config:
        """A copy with fields of either dataclass changed by name, checked and converted."""
        lag = iterations_of(changes.get("max_lag"))
        clean = parse_fields(changes | ({} if lag is None else {"max_lag": 0}), setting_fields(), "setting")
        if lag is None and clean.get("actors", 0) and not self.actors and "max_lag" not in clean:
            lag = 1  # enough for collecting and learning to happen at once
        if lag is not None:
            sizes = [clean.get(name, getattr(self, name)) for name in ("num_envs", "num_steps")]
            clean["max_lag"] = lag * sizes[0] * sizes[1]
        if clean.get("num_shards", 1) > 1 and self.minibatch_scheme == "shuffle":  # which would cross shards
            clean.setdefault("minibatch_scheme", "stratified")
        if "target_kl" in changes:  # whoever names it wants it
            clean.setdefault("stop_at_target_kl", True)
        hypers = {name: clean.pop(name) for name in fields_of(Hypers) if name in clean}
        return dataclasses.replace(self, hypers=dataclasses.replace(self.hypers, **hypers), **clean)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, object]) -> Config:
        return cls().replace(**mapping)


def iterations_of(lag: object) -> int | None:
    """How many iterations a text such as 2i means; None for what is no text about iterations."""
    if not isinstance(lag, str) or "i" not in lag:
        return None
    match = re.fullmatch(r"\s*(\d{1,9})\s*i(terations?)?\s*", lag)
    if match is None:
        raise UsageError(f"max_lag={lag!r} is not valid: use whole iterations, as in 2i, or whole environment steps.")
    return int(match[1])


@cache
def setting_fields() -> dict[str, Field]:
    """Every setting by its flat name, static ones first."""
    return {**fields_of(Config), **fields_of(Hypers)}
