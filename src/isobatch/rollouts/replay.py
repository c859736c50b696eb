"""Episodes from their seeds and actions: how a run outside JAX is resumed where it stood."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isobatch.rollouts.compiled import EnvCarry
from isobatch.rollouts.env_groups import EnvGroup
from isobatch.rollouts.host import replaced

LIMIT = 100_000  # steps of an episode that are remembered


def remembered(carry: EnvCarry, sent: np.ndarray, done: np.ndarray) -> np.ndarray:
    """The actions [S, L, N, ...] since the episodes in progress began, with those of another rollout [S, T, N, ...]."""
    steps = done.shape[1]
    # Steps since the last end within the rollout; without one the episode goes on from before it.
    since = np.argmax(done[:, ::-1], axis=1)
    lengths = np.where(done.any(axis=1), since, carry.episode_length + steps)
    longest = min(int(lengths.max()), LIMIT)
    joined = np.concatenate([np.asarray(carry.state.actions), sent], axis=1)
    return joined[:, joined.shape[1] - longest :]


def replay(carry: EnvCarry, halves: list[EnvGroup], beat: Callable[[], None]) -> np.ndarray:
    """Take every environment through its episode again; which of them [S, N] came back to where they stood.

    All step together and end together: one whose episode is shorter is reset again and again until its turn comes.
    """
    actions, length = np.asarray(carry.state.actions), np.asarray(carry.episode_length)
    longest = actions.shape[1]
    lost = length > longest
    begin = longest - np.where(lost, 0, length)
    rows = np.arange(len(length))[:, None], np.arange(length.shape[1])[None, :]
    for half in halves:
        for t in range(longest):
            half.reset(carry.state.episode, (t <= begin) | lost)
            # Before its turn an environment takes its first action, or any, if its episode has none yet.
            now = actions[rows[0], np.minimum(np.maximum(t, begin), longest - 1), rows[1]]
            half.send(now[:, half.columns])
            moved = half.receive()
            # An episode in progress has not ended: this one goes another way than it did.
            lost[:, half.columns] |= (t >= begin)[:, half.columns] & (moved.terminated | moved.truncated)
            beat()
        half.reset(carry.state.episode, begin == longest)
    obs = np.concatenate([half.obs for half in halves], axis=1)
    stored = np.asarray(carry.obs)
    same = (obs.astype(stored.dtype) == stored).reshape(*lost.shape, -1).all(axis=-1)
    return same & ~lost


def new_episodes(carry: EnvCarry, which: np.ndarray) -> EnvCarry:
    """With nothing known of the episodes of some environments [S, N] but that new ones begin."""
    state = replaced(
        carry.state,
        episode=np.asarray(carry.state.episode) + which,
        over=np.asarray(carry.state.over) & ~which,
    )
    return replaced(
        carry,
        state=state,
        episode_return=np.where(which, np.float32(0), carry.episode_return),
        episode_length=np.where(which, np.int32(0), carry.episode_length),
        counts=np.asarray(carry.counts) | which,
    )
