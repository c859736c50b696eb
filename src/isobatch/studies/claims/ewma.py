"""Figure 4: an averaged proximal policy against the behavior policy, for PPO and PPG."""

from __future__ import annotations

from isobatch.statistics.comparisons import probability_of_improvement
from isobatch.studies.base_settings import SEEDS, UNDER_CRITICAL, base, environments
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import MEAN, scores
from isobatch.studies.verdicts import MEASURES, Question, answers, estimate_text, in_short

ALGORITHMS = ("ppo", "ppo-ewma", "ppg", "ppg-ewma")
PHASE_ITERATIONS = 16
PPG = dict(objective="kl", policy_iterations_per_phase=PHASE_ITERATIONS, aux_epochs=3, aux_minibatches=16)


def grid(scale: str) -> Grid:
    cells = []
    for env in environments(scale):
        for algo in ALGORITHMS:
            sizes = UNDER_CRITICAL.get(env, {})
            phases = PPG | whole_phases(env, scale) if algo.startswith("ppg") else {}
            config = base(algo, env, scale, sizes | phases)
            cells.append(Cell(config, {"algo": algo}))
    return Grid(cells, 6 if scale == "laptop" else SEEDS[scale])


def whole_phases(env: str, scale: str) -> dict[str, int]:
    """The steps of the other algorithms, in whole phases."""
    if scale == "paper":
        return {}
    plain = base("ppo", env, scale, UNDER_CRITICAL.get(env))
    phase = PHASE_ITERATIONS * plain.geometry.iteration_batch
    return {"total_timesteps": plain.env_steps // phase * phase}


def verdict(rows: list[Row]) -> list[str]:
    questions, sentences = [], []
    for plain in ("ppo", "ppg"):
        x, y = dict(algo=f"{plain}-ewma"), dict(algo=plain)
        for column, score in MEASURES.items():
            questions.append(Question(f"{plain}-ewma minus {plain}, in normalized {score}", column, x, y))
        chance = probability_of_improvement(scores(rows, MEAN, **x), scores(rows, MEAN, **y))
        sentences.append(
            f"A run of {plain}-ewma beats one of {plain} over the run with probability {estimate_text(chance)}."
        )
    pairs = [
        Question(f"{plain}-ewma minus {plain}", MEAN, dict(algo=f"{plain}-ewma"), dict(algo=plain))
        for plain in ("ppo", "ppg")
    ]
    return [in_short(rows, "normalized return over the run", pairs), *answers(rows, questions), *sentences]


CLAIM = "An averaged proximal policy is at least as good as the behavior policy, for PPO and for PPG (figure 4)."
STUDY = Study("ewma", CLAIM, grid, verdict, minutes=9)
