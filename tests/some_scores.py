"""Scores of several environments, with numbers of seeds that differ."""

import numpy as np

RNG = np.random.default_rng(0)
UNEQUAL = {"a": RNG.normal(0, 1, 5), "b": RNG.normal(2, 2, 3), "c": RNG.normal(-1, 1, 6)}
OTHER = {"a": RNG.normal(0.5, 1, 4), "b": RNG.normal(2, 2, 5), "c": RNG.normal(-1, 1, 2)}
