"""Figure 4: an averaged proximal policy against the behavior policy, for PPO and PPG."""

from __future__ import annotations

from isobatch.statistics.comparisons import difference, probability_of_improvement
from isobatch.statistics.normalization import halves
from isobatch.studies.base_settings import SEEDS, UNDER_CRITICAL, base, environments
from isobatch.studies.grid import Cell, Grid, Row, Study
from isobatch.studies.scores import FINAL, MEAN, levels, scores
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


PAIRS = {f"{plain}-ewma minus {plain}": (dict(algo=f"{plain}-ewma"), dict(algo=plain)) for plain in ("ppo", "ppg")}


def verdict(rows: list[Row]) -> list[str]:
    questions, sentences = [], []
    for name, (x, y) in PAIRS.items():
        for column, score in MEASURES.items():
            questions.append(Question(f"{name}, in normalized {score}", column, x, y))
        chance = probability_of_improvement(scores(rows, MEAN, **x), scores(rows, MEAN, **y))
        sentences.append(
            f"A run of {x['algo']} beats one of {y['algo']} over the run with probability {estimate_text(chance)}."
        )
    short = [Question(name, MEAN, x, y) for name, (x, y) in PAIRS.items()]
    return [
        in_short(rows, "normalized return over the run", short),
        *answers(rows, questions),
        *sentences,
        *by_half(rows),
    ]


def by_half(rows: list[Row]) -> list[str]:
    """On the games that the paper tuned on and on the others, where there are both."""
    sentences = []
    for half, envs in halves(levels(rows, "env")).items():
        chosen = [row for row in rows if row["env"] in envs]
        for name, (x, y) in PAIRS.items():
            by_env, overall = difference(scores(chosen, FINAL, **x), scores(chosen, FINAL, **y))
            above = sum(one.value.value > 0 for one in by_env.values())
            sentences.append(
                f"On the {half}, {name}, in normalized final return: {estimate_text(overall.value)}, above 0 on "
                f"{above} of {len(envs)}."
            )
    return sentences


CLAIM = "An averaged proximal policy is at least as good as the behavior policy, for PPO and for PPG (figure 4)."
STUDY = Study("ewma", CLAIM, grid, verdict, pairs=PAIRS, minutes=9)
