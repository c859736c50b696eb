"""One gradient step of PPO and its relatives, and one of PPG's auxiliary phase, in PyTorch.

Written from the paper (sections 2 and 4, appendix A) and Cobbe 2020, sharing nothing with the package: torch's own
distributions, automatic differentiation, Adam and norm clipping. Everything comes in and goes out as NumPy arrays.

Networks: one hidden layer of tanh each for the policy and the value function. Their weights are a dictionary:
policy_hidden, policy_out, value_hidden, value_out (and aux_out, a second value on the policy's features), each with
`.weight` [in, out] and `.bias`; continuous actions have a `log_std` besides.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.distributions import Categorical, Independent, Normal, kl_divergence

Weights = dict[str, torch.Tensor]
POLICY = ("policy_hidden", "policy_out", "log_std")


@dataclass
class Settings:
    objective: str = "clip"  # clip, kl, kl-squared, policy-gradient
    importance: str = "behavior"  # or recent
    proximal: str = "behavior"  # or recent, or ewma
    optimizer: str = "adam"  # or sgd, or rmsprop
    learning_rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-5
    max_grad_norm: float = 0.5
    clip_eps: float = 0.2
    kl_coef: float = 1.0
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    importance_cap: float = 100.0
    beta_prox: float = 8 / 9
    beta_clone: float = 1.0


@dataclass
class Minibatch:
    obs: np.ndarray
    action: np.ndarray
    advantage: np.ndarray
    target: np.ndarray


def policy(weights: Weights, obs: torch.Tensor) -> Categorical | Independent:
    features = torch.tanh(layer(weights, "policy_hidden", obs))
    out = layer(weights, "policy_out", features)
    if "log_std" in weights:
        return Independent(Normal(out, weights["log_std"].exp().expand_as(out)), 1)
    return Categorical(logits=out)


def value(weights: Weights, obs: torch.Tensor) -> torch.Tensor:
    return layer(weights, "value_out", torch.tanh(layer(weights, "value_hidden", obs))).squeeze(-1)


def aux_value(weights: Weights, obs: torch.Tensor) -> torch.Tensor:
    return layer(weights, "aux_out", torch.tanh(layer(weights, "policy_hidden", obs))).squeeze(-1)


def layer(weights: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weights[f"{name}.weight"].T, weights[f"{name}.bias"])


def tensors(arrays: dict[str, np.ndarray]) -> Weights:
    return {name: torch.tensor(np.asarray(array)) for name, array in arrays.items()}


def arrays(weights: Weights) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in weights.items()}


def optimizer_of(settings: Settings, weights: Weights) -> torch.optim.Optimizer:
    parameters = list(weights.values())
    match settings.optimizer:
        case "adam":
            betas = (settings.beta1, settings.beta2)
            return torch.optim.Adam(parameters, lr=settings.learning_rate, betas=betas, eps=settings.eps)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, lr=settings.learning_rate, alpha=settings.beta2, eps=settings.eps)
        case _:
            return torch.optim.SGD(parameters, lr=settings.learning_rate)


def policy_steps(
    settings: Settings,
    start: dict[str, np.ndarray],
    behavior: dict[str, np.ndarray],
    minibatches: list[Minibatch],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The weights, and the averaged policy weights, after one gradient step on each minibatch.

    `behavior` collected the data. The recent policy is `start`; so is the average at first, with weight 1.
    """
    weights = {name: tensor.requires_grad_() for name, tensor in tensors(start).items()}
    recent, behav = tensors(start), tensors(behavior)
    average = {name: tensor for name, tensor in tensors(start).items() if name.startswith(POLICY)}
    average_weight = 1.0
    optimizer = optimizer_of(settings, weights)
    for minibatch in minibatches:
        obs, action, advantage, target = (
            torch.tensor(np.asarray(x))
            for x in (minibatch.obs, minibatch.action, minibatch.advantage, minibatch.target)
        )
        with torch.no_grad():
            reference = {
                name: policy(w, obs) for name, w in (("behavior", behav), ("recent", recent), ("ewma", average))
            }
            log_behav = reference[settings.importance].log_prob(action)
            proximal = reference[settings.proximal]
            log_prox = proximal.log_prob(action)
        current = policy(weights, obs)
        log_prob = current.log_prob(action)
        # Reference code: the importance ratio is capped by raising log_behav, with pi_theta detached.
        log_behav = torch.maximum(log_behav, log_prob.detach() - np.log(settings.importance_cap))
        match settings.objective:
            case "clip":
                ratio = torch.exp(log_prob - log_prox)
                clipped = torch.clamp(ratio, 1 - settings.clip_eps, 1 + settings.clip_eps)
                surrogate = torch.minimum(ratio * advantage, clipped * advantage)
                objective = torch.exp(log_prox - log_behav) * surrogate
            case "kl":
                objective = torch.exp(log_prob - log_behav) * advantage
                objective = objective - settings.kl_coef * kl_divergence(proximal, current)
            case "kl-squared":
                objective = torch.exp(log_prob - log_behav) * advantage
                objective = objective - settings.kl_coef * 0.5 * (log_prob - log_prox) ** 2
            case _:
                objective = log_prob * advantage
        value_loss = 0.5 * (value(weights, obs) - target) ** 2
        loss = (-objective + settings.vf_coef * value_loss - settings.ent_coef * current.entropy()).mean()
        step(settings, optimizer, weights, loss)
        # Appendix A: w' = beta w + 1; average <- (beta w average + theta) / w'.
        new_weight = settings.beta_prox * average_weight + 1
        average = {
            name: (settings.beta_prox * average_weight * old + weights[name].detach()) / new_weight
            for name, old in average.items()
        }
        average_weight = new_weight
    return arrays(weights), arrays(average)


def auxiliary_steps(
    settings: Settings, start: dict[str, np.ndarray], minibatches: list[Minibatch]
) -> dict[str, np.ndarray]:
    """The weights after one step of PPG's joint loss on each minibatch; the policy to clone is that of `start`."""
    weights = {name: tensor.requires_grad_() for name, tensor in tensors(start).items()}
    old_weights = tensors(start)
    optimizer = optimizer_of(settings, weights)
    for minibatch in minibatches:
        obs, target = torch.tensor(np.asarray(minibatch.obs)), torch.tensor(np.asarray(minibatch.target))
        with torch.no_grad():
            old = policy(old_weights, obs)
        joint = 0.5 * (aux_value(weights, obs) - target) ** 2 + 0.5 * (value(weights, obs) - target) ** 2
        loss = (joint + settings.beta_clone * kl_divergence(old, policy(weights, obs))).mean()
        step(settings, optimizer, weights, loss)
    return arrays(weights)


def step(settings: Settings, optimizer: torch.optim.Optimizer, weights: Weights, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(weights.values()), settings.max_grad_norm)
    optimizer.step()
