"""The formulas of PPO-EWMA in PyTorch: an averaged policy, a loss that holds on to it, moments of the advantages.

Symbols and sources as in Hilton, Cobbe & Schulman 2021, Batch size-invariance for policy optimization,
https://arxiv.org/abs/2110.00641: theta is the current policy, theta_behav collected the data, theta_prox controls the
step size. Each of the three can be used alone, in a training script of one's own; they need PyTorch and nothing else.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_Tensors = tuple[Tensor, ...]
_Source = tuple[nn.Module, _Tensors, _Tensors, _Tensors, _Tensors]
"""A network, our parameters and its own, our buffers and its own."""


class Ewma(nn.Module):
    """The debiased average theta_prox = sum_i beta^(n-i) theta_i / sum_i beta^(n-i) over gradient steps i (section 4).

    `average(...)` and `average.module` are the averaged network, `age` is the mean age of its weights in gradient
    steps, beta / (1 - beta) once there were many. Only parameters are averaged; buffers, such as running statistics,
    are those of the newest network.

    Example:
        >>> import torch
        >>> from isobatch.torch import Ewma
        >>> layer = torch.nn.Linear(1, 1)
        >>> layer.weight.data = torch.zeros(1, 1)
        >>> average = Ewma(layer, beta=0.5)
        >>> layer.weight.data = torch.full((1, 1), 3.0)
        >>> average.update(layer)
        >>> average.module.weight.item(), average.weight.item()
        (2.0, 1.5)
    """

    weight: Tensor  # sum_i beta^(n-i)
    age: Tensor

    def __init__(self, module: nn.Module, beta: float, memo: Mapping[int, object] | None = None) -> None:
        """`module` is copied; `memo` is that of `copy.deepcopy`, for parts that need not, or cannot, be copied."""
        super().__init__()
        self.beta = beta
        self._source: _Source | None = None  # of the last update
        self.module = copy.deepcopy(module, dict(memo or {})).requires_grad_(False).eval()
        self.register_buffer("weight", torch.ones((), dtype=torch.float64))
        self.register_buffer("age", torch.zeros((), dtype=torch.float64))

    def forward(self, *args: object, **kwargs: object) -> object:
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """w' = beta w + 1;  theta_prox <- (beta w / w') theta_prox + theta / w'. To be called after each step."""
        weight = self.beta * self.weight.item() + 1
        self._move(module, 1 / weight)
        self.age.mul_(1 - 1 / weight).add_(1 - 1 / weight)
        self.weight.fill_(weight)

    @torch.no_grad()
    def restart(self, module: nn.Module) -> None:
        """An average of these weights alone."""
        self._move(module, 1.0)
        self.age.zero_()
        self.weight.fill_(1.0)

    def _move(self, module: nn.Module, share: float) -> None:
        # To look for them takes ten times as long as to average them.
        source = self._source
        if source is None or source[0] is not module:
            ours, theirs = tuple(self.module.parameters()), tuple(module.parameters())
            self._source = source = (module, ours, theirs, tuple(self.module.buffers()), tuple(module.buffers()))
        _, mine, newest, my_buffers, buffers = source
        torch._foreach_lerp_(mine, newest, share)
        for old, new in zip(my_buffers, buffers, strict=True):
            old.copy_(new)


class AdvantageMoments(nn.Module):
    """Mean and variance of advantages over iterations, the one before last weighted by decay, and so on (section 4).

    With decay 0 they are those of the newest iteration. Over more iterations they do not depend on how the data is cut
    into iterations: the decay whose span 2 / (1 - decay) - 1 grows as the iterations get smaller keeps their samples.

    Example:
        >>> import torch
        >>> from isobatch.torch import AdvantageMoments
        >>> moments = AdvantageMoments(decay=0.5)
        >>> moments.update(torch.tensor([1.0, 3.0]))
        >>> moments.update(torch.tensor([5.0, 7.0]))
        >>> round(moments.mean.item(), 4), moments.weight.item()
        (4.6667, 3.0)
    """

    mean: Tensor
    variance: Tensor
    weight: Tensor  # samples, weighted

    def __init__(self, decay: float = 0.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.decay, self.eps = decay, eps
        for name, start in (("mean", 0.0), ("variance", 1.0), ("weight", 0.0)):
            self.register_buffer(name, torch.tensor(start, dtype=torch.float64))

    @torch.no_grad()
    def update(self, advantages: Tensor) -> None:
        """With the advantages of one more iteration, before they are normalized."""
        variance, mean = (moment.to(self.mean) for moment in torch.var_mean(advantages, correction=0))
        old = self.decay * self.weight
        total = old + advantages.numel()
        share, shift = advantages.numel() / total, mean - self.mean
        self.variance.copy_((1 - share) * self.variance + share * variance + shift**2 * share * (1 - share))
        self.mean.add_(shift * share)
        self.weight.copy_(total)

    def normalize(self, advantages: Tensor) -> Tensor:
        """(A - mean) / (standard deviation + eps)."""
        return (advantages - self.mean.item()) / (math.sqrt(self.variance.item()) + self.eps)


@dataclass(frozen=True)
class LossWithProximal:
    """Per-sample losses of the decoupled objectives (section 2), from log-probabilities of the sampled actions:

        clip   -(pi_prox / pi_behav) min(r A, clip(r, 1-eps, 1+eps) A),  r = pi_theta / pi_prox
        KL     -(pi_theta / pi_behav) A + kl_coef KL[pi_prox, pi_theta]      (with `kl_coef`)

    In log space, since stale data makes ratios overflow; no importance ratio exceeds `importance_cap`, and a sample
    whose ratio was capped keeps its gradient. With pi_prox = pi_behav the first is PPO.

    Example:
        >>> import torch
        >>> from isobatch.torch import LossWithProximal
        >>> old, new = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.8, 0.55]).log()
        >>> [round(x, 3) for x in LossWithProximal(clip_eps=0.2)(new, old, old, torch.ones(2)).tolist()]
        [-1.2, -1.1]
    """

    clip_eps: float = 0.2
    kl_coef: float | None = None
    importance_cap: float = 100.0

    def __call__(
        self, log_prob: Tensor, log_prox: Tensor, log_behav: Tensor, advantage: Tensor, kl: Tensor | None = None
    ) -> Tensor:
        """`kl` is KL[pi_prox, pi_theta]; without it, half the squared log-ratio, as in the paper's reference code."""
        log_behav = torch.maximum(log_behav, log_prob.detach() - math.log(self.importance_cap))
        unclipped = torch.exp(log_prob - log_behav) * advantage
        if self.kl_coef is not None:
            return self.kl_coef * (0.5 * (log_prob - log_prox) ** 2 if kl is None else kl) - unclipped
        log_clipped = torch.clamp(log_prob - log_prox, *self.bounds) + (log_prox - log_behav)
        return -torch.min(unclipped, torch.exp(log_clipped) * advantage)

    @property
    def bounds(self) -> tuple[float, float]:
        """Of log r. From eps = 1 on nothing is clipped from below."""
        return math.log(1 - self.clip_eps) if self.clip_eps < 1 else -math.inf, math.log1p(self.clip_eps)
