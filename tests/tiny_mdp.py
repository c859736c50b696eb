"""Problems so small that every trajectory, batch and data set can be listed with its probability."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np

from isobatch.gradients.layout import Layout

LOGITS = np.array([[0.3, -0.5], [-0.2, 0.8]])  # [state, action]
REWARD = np.array([[1.0, -2.0], [0.5, 3.0]])
NEXT_IS_ONE = np.array([[0.2, 0.7], [0.4, 0.9]])  # P(next state = 1 | state, action)
WRONG_VALUE = np.array([2.0, -1.5])

Batch = list[np.ndarray]  # per trajectory: gradients [T, P]


@dataclass(frozen=True)
class Trajectory:
    probability: float
    gradients: np.ndarray  # Monte-Carlo returns
    bootstrapped: np.ndarray  # the return is cut after one step and the wrong value function put in


@dataclass(frozen=True)
class Outcome:
    """One thing a batch may turn out to be."""

    probability: float
    batch: Batch


def score(state: int, action: int) -> np.ndarray:
    """grad log pi(a|s) of a softmax policy with one logit per state and action: onehot(a) - pi(.|s), in row s."""
    policy = np.exp(LOGITS[state]) / np.exp(LOGITS[state]).sum()
    gradient = np.zeros((2, 2))
    gradient[state] = np.eye(2)[action] - policy
    return gradient.ravel()


def trajectories(start: int = 0, ends: bool = False, random: bool = True) -> list[Trajectory]:
    """All of horizon 2. `ends`: action 1 ends the episode; not `random`: the next state is the action."""
    policy = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    found = []
    for a in (0, 1):
        if ends and a == 1:
            only = -REWARD[start, a] * score(start, a)[None]
            found.append(Trajectory(policy[start, a], only, only))
            continue
        for s in (0, 1):
            likely = NEXT_IS_ONE[start, a] if random else float(a)
            for b in (0, 1):
                chance = policy[start, a] * (likely if s else 1 - likely) * policy[s, b]
                scores = np.stack([score(start, a), score(s, b)])
                returns = np.array([REWARD[start, a] + REWARD[s, b], REWARD[s, b]])
                cut = np.array([REWARD[start, a] + WRONG_VALUE[s], REWARD[s, b]])
                found.append(Trajectory(chance, -returns[:, None] * scores, -cut[:, None] * scores))
    return [trajectory for trajectory in found if trajectory.probability > 0]


def batches_of(number: int, kinds: list[Trajectory], chance: float = 1.0) -> list[Outcome]:
    """All batches of independent trajectories, which stand in no order."""
    return [
        Outcome(
            chance * ways(chosen) * prod(kinds[i].probability for i in chosen), [kinds[i].gradients for i in chosen]
        )
        for chosen in combinations_with_replacement(range(len(kinds)), number)
    ]


def data_sets(outcomes: list, size: int) -> Iterator[tuple[float, list]]:
    """All unordered samples of `size` outcomes with their probabilities."""
    for chosen in combinations_with_replacement(range(len(outcomes)), size):
        yield ways(chosen) * prod(outcomes[i].probability for i in chosen), [outcomes[i] for i in chosen]


def ways(chosen: tuple[int, ...]) -> float:
    return factorial(len(chosen)) / prod(factorial(chosen.count(i)) for i in set(chosen))


def expectation(outcomes: list, size: int, statistic: Callable[[list], np.ndarray]) -> np.ndarray:
    """The exact mean of a statistic of `size` independent outcomes that does not depend on their order."""
    return np.sum([chance * np.asarray(statistic(chosen)) for chance, chosen in data_sets(outcomes, size)], axis=0)


def stacked(batches: list[Batch]) -> tuple[np.ndarray, Layout]:
    """Gradients [n, P] of batches, and where they come from."""
    flat = [(k, trajectory) for k, batch in enumerate(batches) for trajectory in batch]
    lengths = [len(trajectory) for _, trajectory in flat]
    layout = Layout.of(np.repeat(np.arange(len(flat)), lengths), np.repeat([k for k, _ in flat], lengths))
    return np.concatenate([trajectory for _, trajectory in flat]), layout


def exact_terms(outcomes: list[Outcome], longest: int) -> dict[str | int, float]:
    """Var(G_B) and its parts, by definition: plain loops over all batches and all pairs of samples."""
    mean = sum(o.probability * np.concatenate(o.batch).mean(axis=0) for o in outcomes)
    terms: dict[str | int, float] = {
        "total": 0.0,
        "individual": 0.0,
        "across": 0.0,
        **dict.fromkeys(range(1, longest + 1), 0.0),
    }
    terms["sample_variance"] = 0.0
    for o in outcomes:
        samples = [(i, t, g - mean) for i, trajectory in enumerate(o.batch) for t, g in enumerate(trajectory)]
        size = len(samples)
        terms["total"] += o.probability * np.sum((np.concatenate(o.batch).mean(axis=0) - mean) ** 2)
        for i, t, d in samples:
            terms["sample_variance"] += o.probability * d @ d / size
            for j, s, e in samples:
                name = "across" if i != j else abs(t - s) or "individual"
                terms[name] += o.probability * d @ e / size**2
    return terms
