"""isobatch: policy optimization that behaves the same at any batch size, and the instruments to see why.

`import isobatch as ib`; `ib.__all__` is what stays the same between versions, described in `docs/api.md`. Every other
module of the package is private and may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isobatch import gradients as gradients
    from isobatch import interop as interop
    from isobatch import laboratory as laboratory
    from isobatch.advice import Advice as Advice
    from isobatch.envs.interface import JaxEnvironment as JaxEnvironment
    from isobatch.envs.interface import Step as Step
    from isobatch.envs.registry import register_env as register_env
    from isobatch.envs.spaces import Box as Box
    from isobatch.envs.spaces import Discrete as Discrete
    from isobatch.envs.spaces import MultiBinary as MultiBinary
    from isobatch.envs.spaces import MultiDiscrete as MultiDiscrete
    from isobatch.errors import RunError as RunError
    from isobatch.errors import UsageError as UsageError
    from isobatch.interop.conversion import from_sb3 as from_sb3
    from isobatch.laboratory.diagnosis import Diagnosis as Diagnosis
    from isobatch.laboratory.diagnosis import diagnose as diagnose
    from isobatch.laboratory.options import LabOptions as LabOptions
    from isobatch.learning import losses as losses
    from isobatch.learning.advantages import gae as gae
    from isobatch.learning.aggregation import aggregate as aggregate
    from isobatch.learning.aggregation import sample_weights as sample_weights
    from isobatch.learning.proximal import Ewma as Ewma
    from isobatch.networks.actor_critic import Networks as Networks
    from isobatch.networks.actor_critic import PolicyFunction as PolicyFunction
    from isobatch.networks.custom_networks import register_networks as register_networks
    from isobatch.networks.distributions import Bernoulli as Bernoulli
    from isobatch.networks.distributions import Categorical as Categorical
    from isobatch.networks.distributions import DiagonalGaussian as DiagonalGaussian
    from isobatch.networks.distributions import MultiCategorical as MultiCategorical
    from isobatch.networks.initialization import make_actor_critic as make_actor_critic
    from isobatch.networks.moments import Moments as Moments
    from isobatch.planning.plan import plan as plan
    from isobatch.planning.planned import Plan as Plan
    from isobatch.policies.agent import load_agent as load_agent
    from isobatch.policies.returns import Evaluation as Evaluation
    from isobatch.policies.returns import evaluate as evaluate
    from isobatch.rescaling import Rescaled as Rescaled
    from isobatch.rescaling import rescale as rescale
    from isobatch.settings.config import Config as Config
    from isobatch.settings.config import Hypers as Hypers
    from isobatch.settings.geometry import Geometry as Geometry
    from isobatch.settings.presets import preset as preset
    from isobatch.settings.schedules import register_schedule as register_schedule
    from isobatch.studies.claims import study_names as study_names
    from isobatch.studies.runner import run_study as run_study
    from isobatch.training.agent import Agent as Agent
    from isobatch.training.from_python import train as train
    from isobatch.training.known_facts import advise as advise
    from isobatch.training.make_train import make_train as make_train
    from isobatch.training.plots import plot as plot
    from isobatch.training.result import Result as Result
    from isobatch.tuning.tune import tune as tune
    from isobatch.tuning.tuned import Tuned as Tuned

# Loaded on first use: what only computes numbers should not wait for JAX.
_HOMES = {
    "settings.config": "Config Hypers",
    "settings.geometry": "Geometry",
    "settings.presets": "preset",
    "settings.schedules": "register_schedule",
    "errors": "RunError UsageError",
    "rescaling": "Rescaled rescale",
    "advice": "Advice",
    "interop.conversion": "from_sb3",
    "envs.interface": "JaxEnvironment Step",
    "envs.registry": "register_env",
    "envs.spaces": "Box Discrete MultiBinary MultiDiscrete",
    "networks.actor_critic": "Networks PolicyFunction",
    "networks.distributions": "Bernoulli Categorical DiagonalGaussian MultiCategorical",
    "networks.initialization": "make_actor_critic",
    "networks.moments": "Moments",
    "networks.custom_networks": "register_networks",
    "learning.advantages": "gae",
    "learning.aggregation": "aggregate sample_weights",
    "learning.proximal": "Ewma",
    "training.agent": "Agent",
    "training.from_python": "train",
    "training.known_facts": "advise",
    "training.make_train": "make_train",
    "training.plots": "plot",
    "training.result": "Result",
    "laboratory.diagnosis": "Diagnosis diagnose",
    "laboratory.options": "LabOptions",
    "policies.agent": "load_agent",
    "policies.returns": "Evaluation evaluate",
    "studies.claims": "study_names",
    "studies.runner": "run_study",
    "planning.plan": "plan",
    "planning.planned": "Plan",
    "tuning.tune": "tune",
    "tuning.tuned": "Tuned",
}
_MODULES = {"gradients": "gradients", "interop": "interop", "laboratory": "laboratory", "losses": "learning.losses"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted([*_HOME_OF, *_MODULES])


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"isobatch.{_MODULES[name]}")
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"isobatch.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'isobatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
