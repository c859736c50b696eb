"""What several libraries compute otherwise from the same settings, each with its size."""

from __future__ import annotations

import math

from isobatch.formatting import rounded
from isobatch.settings.config import Config
from isobatch.settings.schedules import LINEAR, falling_ranges

NAMES = {"clip_eps": "clip range", "value_clip_eps": "range of the value clipping"}


def further_on(config: Config) -> list[str]:
    """Of a library that counts an iteration's steps as done while it learns from them."""
    return [
        f"a linear {name} is one iteration further on there, by {_share(config)} of {whole}: it falls before an "
        "iteration learns, here after it"
        for name, whole in _falling(config).items()
    ]


def by_gradient_step(config: Config) -> list[str]:
    """Of a library in which schedules advance with every gradient step."""
    return [
        f"a linear {name} falls with every gradient step there, here once an iteration: there it is less by up to "
        f"{_share(config)} of {whole}"
        for name, whole in _falling(config).items()
    ]


def by_n_minus_1(config: Config) -> list[str]:
    """Of a library that normalizes minibatches by PyTorch's standard deviation."""
    if config.advantage_norm != "minibatch":
        return []
    n = config.geometry.optimization_batch
    size = f"by {rounded(100 * (math.sqrt(n / (n - 1)) - 1), 2)} % at {n:,} samples" if n > 1 else "at 1 sample"
    return [f"the standard deviation of the advantages divides by n - 1 there and by n here: smaller here {size}"]


def _falling(config: Config) -> dict[str, str]:
    """What falls in a line -> how far, in words."""
    rate = {"learning rate": "its start"} if config.lr_schedule == LINEAR else {}
    way = "what it falls by" if config.hypers.clip_eps_end else "its start"
    return rate | {NAMES[name]: way for name in falling_ranges(config)}


def _share(config: Config) -> str:
    return f"1/{config.num_iterations:,} = {rounded(100 / config.num_iterations, 2)} %"
