"""The ladder of Hilton, Cobbe & Schulman (2021): their base batch divided by 4, four times, computed by `rescale`.

`python -m isobatch.ladder` prints it as a table for the documentation.
"""

from __future__ import annotations

from isobatch.config import Config
from isobatch.rescaling import rescale

PAPER = Config().replace(
    algo="ppg-ewma",
    objective="kl",
    proximal_policy="ewma",
    num_envs=256,
    num_steps=256,
    num_minibatches=8,
    update_epochs=1,
    policy_iterations_per_phase=32,
    total_timesteps=48 * 32 * 256 * 256,  # 48 phases, about 100M steps
    learning_rate=5e-4,
    aux_learning_rate=5e-4,
    gamma=0.999,
    max_grad_norm=float("inf"),
)
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
