"""The values of settings that are a choice between names."""

from __future__ import annotations

from typing import Literal

Objective = Literal["policy-gradient", "clip", "kl"]
KlForm = Literal["analytic", "squared"]
ImportancePolicy = Literal["behavior", "recent"]
ProximalPolicy = Literal["behavior", "recent", "ewma", "loglinear"]
AdvantageNorm = Literal["none", "minibatch", "iteration", "ewma"]
Aggregation = Literal["timestep", "trajectory", "trajectory-mean", "constant"]
MinibatchScheme = Literal["shuffle", "envs", "stratified"]
Arrangement = Literal["dual", "shared", "detached"]
Encoder = Literal["auto", "mlp", "conv", "impala", "nature"]
Activation = Literal["tanh", "relu", "silu", "gelu"]
Vectorization = Literal["sync", "async"]
Autoreset = Literal["disabled", "next-step", "same-step"]
OptimizerName = Literal["adam", "sgd", "rmsprop"]
