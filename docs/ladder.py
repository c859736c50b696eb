"""The ladder of Hilton, Cobbe & Schulman (2021): their base batch divided by 4, four times, computed by `rescale`.

`python docs/ladder.py` prints it as a table for `docs/rescaling.md`.
"""

from __future__ import annotations

from isobatch.rescaling import rescale
from isobatch.settings.config import Config
from isobatch.settings.presets import preset

PAPER = preset("procgen-ppg-ewma")
FACTORS = (1, 4, 16, 64, 256)
COLUMNS = (
    "c",
    "envs",
    "Adam lr",
    "β_prox",
    "adv decay",
    "N_π",
    "β1^(1/c)",
    "β2^(1/c)",
    "optimization / iteration batch",
)


def ladder(base: Config = PAPER) -> list[tuple[str, ...]]:
    """One row of `COLUMNS` for each factor, to six digits."""
    rows = []
    for factor in FACTORS:
        after = rescale(base, factor=factor, use=["betas"]).after
        h, g = after.hypers, after.geometry
        decays = [f"{x:.6f}" for x in (h.beta_prox, h.adv_norm_decay)]
        betas = [f"{x:.6f}" for x in (h.beta1, h.beta2)]
        head = (str(factor), str(after.num_envs), f"{h.learning_rate:.6g}")
        sizes = f"{g.optimization_batch:,} / {g.iteration_batch:,}"
        rows.append((*head, *decays, f"{after.policy_iterations_per_phase:,}", *betas, sizes))
    return rows


def markdown() -> str:
    lines = [COLUMNS, ("---:",) * len(COLUMNS), *ladder()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    print(markdown())
