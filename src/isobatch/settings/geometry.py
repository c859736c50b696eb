"""The batches of policy optimization, under the names of Hilton, Cobbe & Schulman (2021), section 3.3.

*iteration batch*: environment steps per alternation between sampling and optimization, N x T;
*optimization batch*: samples per gradient step; *phase batch*: environment steps per alternation between the
policy phase and the auxiliary phase of PPG. Nothing here is called just "batch size".
"""

from __future__ import annotations

from dataclasses import dataclass

from isobatch.errors import UsageError


@dataclass(frozen=True)
class Geometry:
    """N environments x T steps, cut into minibatches, passed over `update_epochs` times."""

    num_envs: int
    num_steps: int
    num_minibatches: int
    update_epochs: int
    policy_iterations_per_phase: int = 0  # N_pi of PPG; 0 without an auxiliary phase

    @property
    def iteration_batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def optimization_batch(self) -> int:
        return self.iteration_batch // self.num_minibatches

    @property
    def phase_batch(self) -> int:
        """Environment steps per alternation between policy and auxiliary phases; 0 without them."""
        return self.iteration_batch * self.policy_iterations_per_phase

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per iteration."""
        return self.num_minibatches * self.update_epochs

    @property
    def env_steps_per_gradient_step(self) -> float:
        """New environment steps per gradient step: the optimization batch divided by the epochs."""
        return self.iteration_batch / self.gradient_steps

    def proximal_age(self, beta_prox: float) -> float:
        """Center of mass of an EWMA proximal policy, in environment steps (section 4)."""
        return center_of_mass(beta_prox) * self.env_steps_per_gradient_step

    def check_minibatches(self, scheme: str) -> None:
        """Raise unless every sample falls into exactly one of `num_minibatches` equal minibatches."""
        fits = minibatch_counts(self.num_envs, self.num_steps, scheme)
        if self.num_minibatches in fits:
            return
        near = sorted(fits, key=lambda n: abs(n - self.num_minibatches))[:4]
        what = {
            "shuffle": f"the iteration batch of {self.iteration_batch} samples",
            "envs": "whole environment rows, or equal time chunks of one row",
        }[scheme]
        raise UsageError(
            f"num_minibatches={self.num_minibatches} does not evenly divide {what} "
            f"(num_envs {self.num_envs} x num_steps {self.num_steps}); "
            f"use {' or '.join(map(str, sorted(near)))}."
        )


def center_of_mass(beta: float) -> float:
    """Mean age of an exponentially weighted average, in updates: 1/(1 - beta) - 1."""
    return 1 / (1 - beta) - 1


def span(beta: float) -> float:
    """Effective sample size of an exponentially weighted average, in updates: 2/(1 - beta) - 1."""
    return 2 / (1 - beta) - 1


def minibatch_counts(num_envs: int, num_steps: int, scheme: str) -> list[int]:
    """Every number of minibatches that cuts N x T evenly under a scheme, smallest first."""
    if scheme == "shuffle":
        return divisors(num_envs * num_steps)
    # Whole rows while there are enough of them, then equal chunks of each row's time (reference code).
    return divisors(num_envs) + [num_envs * k for k in divisors(num_steps) if k > 1]


def divisors(n: int) -> list[int]:
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]
