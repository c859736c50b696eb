"""Advice on batch sizes while a model of Stable-Baselines3 learns: the monitors of `isobatch advise`, as a callback."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from isobatch.advice.findings import Finding, settle
from isobatch.advice.monitors import (
    ADVANTAGE_STD,
    CLIP_EPS,
    CLIPFRAC,
    EWMA_STD,
    EXPLAINED_VARIANCE,
    KL,
    LEARNING_RATE,
    monitor,
    unspoken,
)
from isobatch.settings.config import Config
from isobatch.torch.sb3_settings import config_of

COLUMNS = {
    "train/clip_fraction": CLIPFRAC,
    "train/approx_kl": KL,
    "train/explained_variance": EXPLAINED_VARIANCE,
    "train/learning_rate": LEARNING_RATE,
    "train/clip_range": CLIP_EPS,
    "train/advantage_std": EWMA_STD,
}
"""Metrics of SB3's logger -> the columns that monitors read."""


class BatchSizeMonitor(BaseCallback):
    """Clip fraction, swings of the advantages, explained variance and KL against the paper's bands and rules of thumb.

    For PPO, PPOEWMA and A2C. `advice/<monitor>` in the logger is 1 where a monitor warns and 0 where it does not. Each
    warning is printed once as a sentence, with the value to try next (verbose=0: not); `findings` are the newest ones.

    :param every: iterations between two judgments.
    """

    model: OnPolicyAlgorithm

    def __init__(self, every: int = 8, verbose: int = 1) -> None:
        super().__init__(verbose)
        self.every = every
        self.rows: defaultdict[str, list[float]] = defaultdict(list)
        self.findings: list[Finding] = []
        self.spoken: frozenset[str] = frozenset()

    def sentences(self) -> list[str]:
        """What the newest findings say, warnings first."""
        order = ("warn", "pass", "note")
        return [repr(finding) for finding in sorted(self.findings, key=lambda f: order.index(f.status))]

    def _init_callback(self) -> None:
        self.config: Config = config_of(self.model)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        """The metrics of the last updates are in the logger until it is dumped, which is next."""
        self._read()
        self.rows[ADVANTAGE_STD].append(float(np.std(self.model.rollout_buffer.advantages)))
        if len(self.rows[ADVANTAGE_STD]) % self.every == 0:
            self._advise()

    def _on_training_end(self) -> None:
        self._read()
        self._advise()

    def _read(self) -> None:
        values = self.logger.name_to_value
        if "train/explained_variance" not in values:  # nothing was learned from yet
            return
        for theirs, ours in COLUMNS.items():
            self.rows[ours].append(float(values.get(theirs, np.nan)))

    def _advise(self) -> None:
        done = self.model.num_timesteps / max(1, self.model._total_timesteps)
        self.findings = settle(*monitor(self.rows, self.config, done))
        for finding in self.findings:
            self.logger.record(f"advice/{finding.name}", float(finding.status == "warn"))
        new, self.spoken = unspoken(self.findings, self.spoken)
        if self.verbose:
            for finding in new:
                print(repr(finding))
