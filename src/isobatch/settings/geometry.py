"""The batches of policy optimization, under the names of Hilton, Cobbe & Schulman (2021), section 3.3.

*iteration batch*: environment steps per alternation between sampling and optimization, N x T;
*optimization batch*: samples per gradient step; *phase batch*: environment steps per alternation between the
policy phase and the auxiliary phase of PPG. Nothing here is called just "batch size".
"""

from __future__ import annotations

from dataclasses import dataclass

from isobatch.errors import UsageError

TRIALS = 10**6  # largest prime factor that is looked for


@dataclass(frozen=True)
class Sizes:
    """N environments x T steps, cut into minibatches."""

    num_envs: int
    num_steps: int
    num_minibatches: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.num_envs, self.num_steps, self.num_minibatches

    @property
    def iteration_batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def optimization_batch(self) -> int:
        return self.iteration_batch // self.num_minibatches


@dataclass(frozen=True)
class Geometry(Sizes):
    """N environments x T steps, cut into minibatches, passed over `update_epochs` times."""

    update_epochs: int
    policy_iterations_per_phase: int = 0  # N_pi of PPG; 0 without an auxiliary phase
    num_shards: int = 1  # groups of environments, of each of which a minibatch takes the same number of samples

    @property
    def samples_of_a_shard(self) -> int:
        """Samples that one shard has of a minibatch: what micro-batches are cut from."""
        return self.optimization_batch // self.num_shards

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
        rows, shards = self.num_envs // self.num_shards, self.num_shards
        if cuts_evenly(self.num_minibatches, rows, self.num_steps, scheme):
            return
        one = f" of each of {shards} shards" if shards > 1 else ""
        what = {
            "shuffle": f"the iteration batch of {self.iteration_batch} samples",
            "stratified": f"the {rows * self.num_steps} samples{one}",
            "envs": f"whole environment rows{one}, or equal time chunks of one row",
        }[scheme]
        raise UsageError(
            f"num_minibatches={self.num_minibatches} does not evenly divide {what} (num_envs {self.num_envs} x "
            f"num_steps {self.num_steps}); use {nearest_counts(self.num_minibatches, rows, self.num_steps, scheme)}."
        )


def center_of_mass(beta: float) -> float:
    """Mean age of an exponentially weighted average, in updates: 1/(1 - beta) - 1."""
    return 1 / (1 - beta) - 1


def beta_of_rollout(gradient_steps: int) -> float:
    """Decay rate of an average as old as the policy that collected a rollout is in the mean over its K gradient steps.

    That one is 0 steps old at the first of them and K - 1 at the last, so (K - 1)/2: beta/(1 - beta) is that at
    beta = (K - 1)/(K + 1).
    """
    return (gradient_steps - 1) / (gradient_steps + 1)


def span(beta: float) -> float:
    """Effective sample size of an exponentially weighted average, in updates: 2/(1 - beta) - 1."""
    return 2 / (1 - beta) - 1


def cuts_evenly(count: int, num_envs: int, num_steps: int, scheme: str) -> bool:
    """Whether `count` minibatches cut N x T, of a shard where there are several, evenly under a scheme."""
    if scheme != "envs":
        return num_envs * num_steps % count == 0
    # Whole rows while there are enough of them, then equal chunks of each row's time (reference code).
    return num_envs % count == 0 or (count % num_envs == 0 and num_steps % (count // num_envs) == 0)


def minibatch_counts(num_envs: int, num_steps: int, scheme: str) -> list[int]:
    """The numbers of minibatches that cut N x T evenly, smallest first (see `divisors` for those above 10^12)."""
    if scheme != "envs":
        return divisors(num_envs * num_steps)
    return divisors(num_envs) + [num_envs * k for k in divisors(num_steps) if k > 1]


def nearest_counts(wanted: int, num_envs: int, num_steps: int, scheme: str) -> str:
    """The four numbers of minibatches nearest to `wanted` that cut evenly, ready for a sentence."""
    near = sorted(minibatch_counts(num_envs, num_steps, scheme), key=lambda n: abs(n - wanted))[:4]
    return " or ".join(map(str, sorted(near)))


def divisors(n: int) -> list[int]:
    """The divisors of `n`, smallest first: all up to TRIALS^2 = 10^12.

    Above it, what is left of `n` without its prime factors up to TRIALS is not split further, so that a size beyond
    reason takes milliseconds and not hours; those divisors are missing.
    """
    products, factor = [1], 2
    while n > 1:
        if factor * factor > n or factor > TRIALS:
            factor = n
        layer = products
        while n % factor == 0:
            n //= factor
            layer = [k * factor for k in layer]
            products = products + layer
        factor += 1 + factor % 2
    return sorted(products)
