"""Episodes from their seeds and actions: how a run outside JAX is resumed where it stood."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isobatch.rollouts.env_groups import EnvGroup
from isobatch.rollouts.host_rollout import replaced
from isobatch.rollouts.segment import EnvCarry

LONGEST_REMEMBERED = 100_000  # steps of an episode that are remembered


def remembered(carry: EnvCarry, sent: np.ndarray, done: np.ndarray) -> np.ndarray:
    """The actions [S, L, N, ...] since the episodes in progress began, with those of another rollout [S, T, N, ...]."""
    steps = done.shape[1]
    # Steps since the last end within the rollout; without one the episode goes on from before it.
    since = np.argmax(done[:, ::-1], axis=1)
    lengths = np.where(done.any(axis=1), since, carry.episodes.length + steps)
    longest = min(int(lengths.max()), LONGEST_REMEMBERED)
    joined = np.concatenate([np.asarray(carry.state.actions), sent], axis=1)
    return joined[:, joined.shape[1] - longest :]


def replay(carry: EnvCarry, groups: list[EnvGroup], beat: Callable[[], None]) -> np.ndarray:
    """Take every environment through its episode again; which of them [S, N] came back to where they stood.

    All step together and end together: one whose episode is shorter is reset again and again until its turn comes.
    """
    actions, length = np.asarray(carry.state.actions), np.asarray(carry.episodes.length)
    longest = actions.shape[1]
    lost = length > longest
    begin = longest - np.where(lost, 0, length)
    rows = np.arange(len(length))[:, None], np.arange(length.shape[1])[None, :]
    for group in groups:
        for t in range(longest):
            group.reset(carry.state.episode, (t <= begin) | lost)
            # Before its turn an environment takes its first action, or any, if its episode has none yet.
            now = actions[rows[0], np.minimum(np.maximum(t, begin), longest - 1), rows[1]]
            group.send(now[:, group.columns])
            outcome = group.receive()
            # An episode in progress has not ended: this one goes another way than it did.
            lost[:, group.columns] |= (t >= begin)[:, group.columns] & (outcome.terminated | outcome.truncated)
            beat()
        group.reset(carry.state.episode, begin == longest)
    obs = np.concatenate([group.obs for group in groups], axis=1)
    stored = np.asarray(carry.obs)
    same = (obs.astype(stored.dtype) == stored).reshape(*lost.shape, -1).all(axis=-1)
    return same & ~lost


def new_episodes(carry: EnvCarry, which: np.ndarray) -> EnvCarry:
    """With nothing known of the episodes of some environments [S, N] but that new ones begin."""
    state = replaced(
        carry.state,
        episode=np.asarray(carry.state.episode) + which,
        fills_in=np.asarray(carry.state.fills_in) & ~which,
    )
    episodes = replaced(
        carry.episodes,
        total=np.where(which, np.float32(0), carry.episodes.total),
        length=np.where(which, np.int32(0), carry.episodes.length),
        counts=np.asarray(carry.episodes.counts) | which,
    )
    return replaced(carry, state=state, episodes=episodes)
