"""Policies of another framework: the one thing that sections need of them, and what follows from it in NumPy."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

Samples = tuple[ArrayLike, ArrayLike, ArrayLike]  # observations, actions, advantages [n, ...]
STORED_BYTES = 128e6  # of per-sample gradients in a block


class ExternalPolicy(abc.ABC):
    """A policy whose gradients JAX does not compute."""

    size: int  # parameters that its log-probabilities depend on
    weights: bytes

    @abc.abstractmethod
    def mean_gradients(self, obs: np.ndarray, action: np.ndarray, advantage: np.ndarray) -> np.ndarray:
        """[K, P]: the gradient of the mean of -log pi(a|s) A over n samples, for each of K groups [K, n, ...]."""

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.weights).hexdigest()[:16]

    def window_sums(
        self, samples: Samples, steps: int, first: int, last: Mapping[str, np.ndarray] | None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The sums of `landscape.WindowSums` after each window, from window `first` on."""
        length, count = np.shape(samples[2])
        if last is None:
            last = {"products": np.zeros((count, count)), "total": np.zeros((count, self.size))}
            last |= {"squares": np.zeros((length // steps, count))}
        products, total, squares = last["products"], last["total"], last["squares"]
        for window in range(first, length // steps):
            part = slice(window * steps, (window + 1) * steps)
            gradients = self.mean_gradients(*(np.swapaxes(np.asarray(x)[part], 0, 1) for x in samples))
            product = gradients @ gradients.T
            squares = squares.copy()
            squares[window] = np.diagonal(product)
            products, total = products + product, total + gradients
            yield {"products": products, "total": total, "squares": squares}

    def gradient(self, samples: Samples) -> np.ndarray:
        """[P] of the mean over all samples."""
        return self.mean_gradients(*(np.asarray(x)[None] for x in samples))[0]

    def gram(self, samples: Samples) -> np.ndarray:
        """[n, n] inner products of per-sample gradients, a block of rows and columns at a time."""
        count = len(np.asarray(samples[2]))
        products = np.zeros((count, count))
        blocks = self._blocks(count)
        for i, rows in enumerate(blocks):
            left = self._per_sample(samples, rows)
            for j, columns in enumerate(blocks[: i + 1]):
                right = left if j == i else self._per_sample(samples, columns)
                products[rows, columns] = left @ right.T
                products[columns, rows] = products[rows, columns].T
        return products

    def along(self, samples: Samples, direction: np.ndarray) -> np.ndarray:
        """[n]: g_i . direction."""
        blocks = self._blocks(len(np.asarray(samples[2])))
        return np.concatenate([self._per_sample(samples, block) @ direction for block in blocks])

    def _blocks(self, count: int) -> list[slice]:
        """Samples whose gradients are held at once."""
        size = max(1, int(STORED_BYTES / 4 / self.size))
        return [slice(i, i + size) for i in range(0, count, size)]

    def _per_sample(self, samples: Samples, block: slice) -> np.ndarray:
        return self.mean_gradients(*(np.asarray(x)[block, None] for x in samples))
