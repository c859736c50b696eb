"""Policies of another framework: the one thing that sections need of them, and what follows from it in NumPy."""

from __future__ import annotations

import abc
import hashlib

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

    def window_products(
        self, obs: np.ndarray, action: np.ndarray, advantage: np.ndarray, steps: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `landscape.window_products`."""
        length, count = advantage.shape
        windows = length // steps
        products, total, squares = np.zeros((count, count)), np.zeros((count, self.size)), np.zeros((windows, count))
        for w in range(windows):
            part = slice(w * steps, (w + 1) * steps)
            gradients = self.mean_gradients(*(np.swapaxes(x[part], 0, 1) for x in (obs, action, advantage)))
            product = gradients @ gradients.T
            products += product
            total += gradients
            squares[w] = np.diagonal(product)
        return products / windows, total / windows, squares

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
