"""Write docs/results/README.md: every claim of the sources that an experiment can decide, and what was found.

    python docs/results/claims.py

Numbers come from the committed rows of the studies, and for what was measured on gradients from gradients.json.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from isobatch.laboratory.results import from_json
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.comparisons import difference, difference_terms
from isobatch.statistics.power import SMALLEST
from isobatch.studies.claims.prox_grid import slopes
from isobatch.studies.grid import Row
from isobatch.studies.judged_claims import Claim
from isobatch.studies.result_files import typed
from isobatch.studies.scores import FINAL, MEAN, levels, scores, select, shared, with_episodes
from isobatch.studies.verdicts import estimate_text

HERE = Path(__file__).parent
SMALLEST_BATCH = 64  # what the base's is divided by
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
Factors = dict[str, object]


@dataclass(frozen=True)
class Outcome:
    verdict: str
    effect: str


@dataclass(frozen=True)
class Entry:
    """A claim, where it is made, and the page with everything that was found."""

    where: str
    claim: str
    page: str
    found: Callable[[], Outcome | None]


@cache
def rows_of(study: str) -> list[Row]:
    with gzip.open(HERE / f"{study}-rows.csv.gz", "rt", newline="") as file:
        return [{column: typed(value) for column, value in row.items()} for row in csv.DictReader(file)]


def compared(study: str, what: str, x: Factors, y: Factors, claims: Callable[[Estimate], str]) -> Callable[[], Outcome]:
    """X minus Y, in the end and over the run; each is judged by itself."""

    def found() -> Outcome:
        rows = with_episodes(rows_of(study))
        each = [difference(*shared(scores(rows, c, **x), scores(rows, c, **y)))[1].value for c in (FINAL, MEAN)]
        return in_both(what, each, [claims(estimate) for estimate in each])

    return found


def in_both(what: str, each: list[Estimate], verdicts: list[str]) -> Outcome:
    verdict = verdicts[0] if len(set(verdicts)) == 1 else f"{verdicts[0]} in the end, {verdicts[1]} over the run"
    final, mean = (estimate_text(estimate, 3) for estimate in each)
    return Outcome(verdict, f"{what}: {final} in the end, {mean} over the run")


def above(estimate: Estimate) -> str:
    """The claim is a difference above 0."""
    return HOLDS if estimate.low > 0 else FAILS if estimate.high < 0 or estimate.high < SMALLEST else UNDECIDED


def improves(estimate: Estimate) -> str:
    """The claim is a difference above 0, however small."""
    return HOLDS if estimate.low > 0 else FAILS if estimate.high < 0 else UNDECIDED


def differs(estimate: Estimate) -> str:
    """The claim is a difference, of either sign."""
    return HOLDS if estimate.low * estimate.high > 0 else FAILS if none(estimate) == HOLDS else UNDECIDED


def none(estimate: Estimate) -> str:
    """The claim is no difference that matters."""
    if max(abs(estimate.low), abs(estimate.high)) < SMALLEST:
        return HOLDS
    return FAILS if estimate.low * estimate.high > 0 else UNDECIDED


def no_loss(estimate: Estimate) -> str:
    """The claim is that nothing that matters is lost."""
    return HOLDS if estimate.low > -SMALLEST else FAILS if estimate.high < 0 else UNDECIDED


def stale(level: int, treatment: str) -> Factors:
    return {"staleness": level, "treatment": treatment}


def without(rule: str) -> tuple[Factors, Factors]:
    """All rules, and the smallest batch without one of them."""
    return {"rules": "all rules", "divisor": SMALLEST_BATCH}, {"rules": rule, "divisor": SMALLEST_BATCH}


def epochs(largest: int) -> Outcome:
    """Largest minus smallest batch, by the number of epochs: invariance with one, and none with several."""
    parts, verdicts = [], []
    for column, name in ((FINAL, "in the end"), (MEAN, "over the run")):
        pairs = {
            count: [
                scores(rows_of("epochs"), column, update_epochs=count, divisor=c) for c in (largest, SMALLEST_BATCH)
            ]
            for count in (1, 4)
        }
        ends = {count: difference(*pair)[1].value for count, pair in pairs.items()}
        terms = [(sign * a, x) for count, sign in ((4, 1.0), (1, -1.0)) for a, x in difference_terms(*pairs[count])]
        more = contrast([(a * np.sign(ends[4].value), x) for a, x in terms])[0]
        verdicts.append(above(more))
        parts.append(f"{estimate_text(ends[1], 3)} with one epoch, {estimate_text(ends[4], 3)} with four, {name}")
    verdict = verdicts[0] if len(set(verdicts)) == 1 else f"{verdicts[0]} in the end, {verdicts[1]} over the run"
    return Outcome(verdict, f"c = {largest} minus c = {SMALLEST_BATCH}: " + "; ".join(parts))


def everywhere(study: str, x: Factors, y: Factors) -> Callable[[], Outcome]:
    """X is better than Y on every environment: it does not hold if Y is on one of them, by its interval."""

    def found() -> Outcome:
        verdicts, parts = [], []
        for column, name in ((FINAL, "in the end"), (MEAN, "over the run")):
            by_env = difference(scores(rows_of(study), column, **x), scores(rows_of(study), column, **y))[0]
            each = [one.value for one in by_env.values()]
            above, below = sum(one.low > 0 for one in each), sum(one.high < 0 for one in each)
            verdicts.append(FAILS if below else HOLDS if above == len(each) else UNDECIDED)
            higher = sum(one.value > 0 for one in each)
            parts.append(
                f"of {len(each)} environments {higher} are above 0, {above} by their intervals, and {below} below 0 by "
                f"theirs, {name}"
            )
        verdict = verdicts[0] if len(set(verdicts)) == 1 else f"{verdicts[0]} in the end, {verdicts[1]} over the run"
        return Outcome(verdict, "; ".join(parts))

    return found


def halving() -> Outcome:
    """The slopes of the return in log2(center) and log2(coefficient), their difference, mean over environments."""
    mean = doubling(MEAN)
    return Outcome(none(mean), f"doubling one minus doubling the other: {estimate_text(mean, 3)} over the run")


def halving_by_kl() -> Outcome:
    """The same of the KL divergence of an iteration; the two are alike if they are not told apart."""
    mean = doubling("approx_kl")
    verdict = FAILS if mean.low > 0 or mean.high < 0 else UNDECIDED
    return Outcome(verdict, f"doubling one minus doubling the other: {estimate_text(mean, 2)} doublings of the KL")


def doubling(column: str) -> Estimate:
    """The slope in log2(center) minus that in log2(coefficient), in the mean over environments."""
    rows = rows_of("prox-grid")
    envs = levels(rows, "env")
    each = [slopes(select(rows, env=env), column)[2] for env in envs]
    return contrast([(1 / len(envs), values) for values in each])[0]


def not_measured(rule: str) -> Outcome:
    return Outcome(UNDECIDED, f"not measured; `isobatch advise` checks it on your settings (`{rule}`)")


@cache
def gradient_claims() -> dict[str, Claim]:
    """What was measured for the blog post, by name; empty: nothing yet."""
    path = HERE / "gradients.json"
    post = json.loads(path.read_text()).get("post", {}) if path.is_file() else {}
    claims = (from_json(Claim, each) for each in post.get("claims", []))
    return {claim.name: claim for claim in claims}


def on_gradients(name: str) -> Outcome | None:
    """What was found on a claim of the blog post; None: nothing yet."""
    claims = gradient_claims()
    return Outcome(claims[name].verdict, claims[name].measured) if claims else None


MANY, LONG = ({"shape": shape, "settings": "searched at its shape"} for shape in ("128 x 8", "2 x 512"))
PAPER = [
    Entry(
        "figure 1a", "Treating stale data as recent makes training unstable", "staleness",
        compared("staleness", "decoupled minus recent, 8 iterations", stale(8, "decoupled"), stale(8, "recent"), above),
    ),
    *(
        Entry(
            "figure 1", f"Even a little staleness hurts with PPO's own objective, {which}", "staleness",
            compared("staleness", f"fresh data minus {name}, 4 iterations", {"staleness": 0}, stale(4, name), above),
        )
        for name, which in (
            ("recent", "the data taken for recent"), ("behavior", "both policies that of the data"),
        )
    ),
    Entry(
        "figure 1b", "With the decoupled objective little is lost until a staleness of about 8", "staleness",
        compared("staleness", "decoupled at 8 minus fresh data", stale(8, "decoupled"), {"staleness": 0}, no_loss),
    ),
    Entry(
        "figure 1c", "PPO's own objective holds learning back at small staleness: decoupled is better", "staleness",
        compared(
            "staleness", "decoupled minus behavior, 4 iterations", stale(4, "decoupled"), stale(4, "behavior"), above
        ),
    ),
    Entry(
        "figure 1c", "With very stale data the behavior policy's stability helps", "staleness",
        compared(
            "staleness", "behavior minus decoupled, 16 iterations, CartPole", stale(16, "behavior"),
            stale(16, "decoupled"), above,
        ),
    ),
    Entry(
        "figure 2", "With all adjustments learning does not depend on the batch size", "invariance",
        compared(
            "invariance", "c = 1 minus c = 64", {"rules": "all rules", "divisor": 1},
            {"rules": "all rules", "divisor": 64}, none,
        ),
    ),
    Entry(
        "sections 3.1, 3.2", "Invariance ends at large batches",
        "invariance",
        compared(
            "invariance", "c = 1 minus c = 1/16, of 1,024 samples", {"rules": "all rules", "divisor": 1},
            {"rules": "all rules", "divisor": 1 / 16}, above,
        ),
    ),
    Entry(
        "figure 2", "No EWMA and a weak KL penalty are a lower bound", "invariance",
        compared(
            "invariance", "all rules minus the reference, c = 1", {"rules": "all rules", "divisor": 1},
            {"rules": "no EWMA, weak KL penalty"}, above,
        ),
    ),
    Entry(
        "figure 2", "They are one for the smallest batch too", "invariance",
        compared(
            "invariance", "all rules at c = 64 minus the reference", {"rules": "all rules", "divisor": SMALLEST_BATCH},
            {"rules": "no EWMA, weak KL penalty"}, above,
        ),
    ),
    *(
        Entry(
            "figures 2, 3", f"Adam's step size is the adjustment that matters most: more than {name}", "invariance",
            compared(
                "invariance", f"without {name} minus without that of Adam, c = 64", without(rule)[1],
                without("no Adam rule")[1], above,
            ),
        )
        for name, rule in (
            ("that of advantage normalization", "no advantage rule"), ("that of the EWMA", "no EWMA rule"),
        )
    ),
    *(
        Entry(
            "figures 2, 3", f"The smallest batch needs the {name}", "invariance",
            compared("invariance", "with it minus without, c = 64", *without(rule), above),
        )
        for name, rule in (
            ("adjustment of Adam's step size", "no Adam rule"),
            ("adjustment of advantage normalization", "no advantage rule"),
            ("adjustment of the EWMA", "no EWMA rule"),
            ("adjustment of N_pi (inferred, not run)", "no N_pi rule"),
        )
    ),
    Entry(
        "section 3.2", "Adam's betas matter little: to adjust them changes nothing", "invariance",
        compared("invariance", "adjusted minus not, c = 64", *reversed(without("betas too")), none),
    ),
    *(
        Entry(
            "appendix C", f"Adam's step size follows the square root of the batch, {than}", "adam-rule",
            compared(
                "adam-rule", f"square root minus {rule}, c = 16", {"adam_rule": "square root", "divisor": 16},
                {"adam_rule": rule, "divisor": 16}, above,
            ),
        )
        for rule, than in (("linear", "not the batch itself"), ("none", "and does not stay"))
    ),
    *(
        Entry(
            "section 3.1", claim, "sgd-rule",
            compared(
                "sgd-rule", f"{rule}: c = {c} minus c = 64",
                {"sgd_rule": "nothing to do" if c == 1 else rule, "divisor": c},
                {"sgd_rule": rule, "divisor": SMALLEST_BATCH}, claims,
            ),
        )
        for c, where in ((1, ""), (4, ", below the base"))
        for rule, claim, claims in (
            ("linear", f"With SGD a learning rate that follows the batch itself keeps batch sizes alike{where}", none),
            ("square root", f"With SGD its square root does not{where}", differs),
        )
    ),
    *(
        Entry("section 4", f"The adjustments need one policy epoch{where}", "epochs", partial(epochs, c))
        for c, where in ((1, ""), (4, ", below the base"))
    ),
    *(
        Entry(
            "figure 4", f"EWMA improves {plain.upper()}, a little", "ewma",
            compared("ewma", f"{plain}-ewma minus {plain}", {"algo": f"{plain}-ewma"}, {"algo": plain}, improves),
        )
        for plain in ("ppo", "ppg")
    ),
    *(
        Entry(
            "figure 4", f"EWMA improves {plain.upper()} on every environment", "ewma",
            everywhere("ewma", {"algo": f"{plain}-ewma"}, {"algo": plain}),
        )
        for plain in ("ppo", "ppg")
    ),
    Entry(
        "appendix G", "Halving the center of mass acts like halving the KL coefficient, by the return", "prox-grid",
        halving,
    ),
    Entry("appendix G", "The same by the KL divergence of an iteration", "prox-grid", halving_by_kl),
]  # fmt: skip
POST = [
    *(
        Entry(claim.where, claim.claim, "gradients", partial(on_gradients, name))
        for name, claim in gradient_claims().items() if claim.where
    ),
    Entry("text", "Many environments for few steps beat few for many (Mayor et al. 2025)", "geometry",
          compared("geometry", "128 x 8 minus 2 x 512, each at settings of its own", MANY, LONG, above)),
]  # fmt: skip
RULES_OF_THUMB = {  # of the guide, that no experiment here is about: the rule of `advise` that has each
    "As many environments as the processor allows": "useful-envs",
    "Rollouts long enough for temporal structure": "credit-horizon",
    "Rollouts short enough not to stall updates": "update-often",
    "Minibatches of 32 to 256 to start with": "minibatch-size",
    "4 to 32 minibatches, at least 4 to 10 an epoch": "minibatch-count",
    "Minibatches of at least 10 times the action dimension": "minibatch-for-actions",
    "Samples of several environments in a minibatch": "mixed-minibatch",
    "REINFORCE: at least 1,000 samples": "reinforce-batch",
    "REINFORCE: reward-to-go and a baseline": "reinforce-baseline",
    "Continuous control: 2,000 to 10,000 samples an update": "continuous-control-batch",
    "No evaluation before a threshold on training": "evaluate-late",
}
GUIDE = [
    Entry("n_steps", "Longer rollouts reduce the bias of bootstrapping", "gradients",
          partial(on_gradients, "short-biased")),
    Entry("n_steps", "Consecutive samples are correlated, so worth less", "gradients",
          partial(on_gradients, "effective-samples")),
    Entry("n_envs", "More environments instead of steps learn better", "geometry",
          compared("geometry", "128 x 8 minus 2 x 512, each at settings of its own", MANY, LONG, above)),
    Entry("batch size", "A batch that changes needs a learning rate that follows", "adam-rule",
          compared("adam-rule", "square root minus unchanged, c = 16", {"adam_rule": "square root", "divisor": 16},
                   {"adam_rule": "none", "divisor": 16}, above)),
    *(Entry("rules of thumb", text, "../guide", partial(not_measured, rule)) for text, rule in RULES_OF_THUMB.items()),
]  # fmt: skip
QUESTION = [
    Entry(
        "question", f"A mean over all steps is as good as the textbook's sum over trajectories, with {name}",
        "aggregation",
        compared(
            "aggregation", "mean minus sum", {"optimizer": optimizer, "aggregation": "timestep"},
            {"optimizer": optimizer, "aggregation": "trajectory"}, no_loss,
        ),
    )
    for optimizer, name in (("adam", "Adam"), ("sgd", "SGD"))
] + [
    Entry(
        "question", f"Dividing by each trajectory's length gives another direction, and costs: {where}, with {name}",
        "aggregation",
        compared(
            "aggregation", "sum minus mean over trajectories of their means",
            which | {"optimizer": optimizer, "aggregation": "trajectory"},
            which | {"optimizer": optimizer, "aggregation": "trajectory-mean"}, above,
        ),
    )
    for which, where in (
        ({}, "all environments"), ({"env": "Breakout-MinAtar"}, "where lengths differ within a batch, on Breakout"),
    )
    for optimizer, name in (("adam", "Adam"), ("sgd", "SGD"))
]  # fmt: skip
ARXIV = "https://arxiv.org/abs/2110.00641"
BLOG = "https://iclr-blogposts.github.io/2026/blog/2026/ppo-batch-size/"
SOURCES = {
    "Hilton, Cobbe & Schulman 2021, [Batch size-invariance for policy optimization](" + ARXIV + ")": PAPER,
    f"[Effect of Parallel Environments and Rollout Steps in PPO]({BLOG}), ICLR Blogposts 2026": POST,
    "A community guide to n_envs, n_steps and batch size ([three levers](../guide.md))": GUIDE,
    "[Batches in policy gradient methods](https://stats.stackexchange.com/q/631002), Cross Validated": QUESTION,
}
INTRODUCTION = f"""\
**Which of these claims hold here?** One line for each claim that an experiment of this size can decide, with the effect
and its 95 % interval, in normalized return unless it says otherwise. A claim of a difference *holds* if the interval
lies above 0 and *does not hold* if it lies below 0, or wholly below {SMALLEST} where the claim is of a large one; a
claim of no difference *holds* if the interval lies within {SMALLEST} of 0 and *does not hold* if it excludes 0;
everything else is *undecided*. Environments are small. The settings that studies begin with were [searched](bases.md)
for each variant and environment, with equal effort for what is compared. Made from the committed rows by `python
docs/results/claims.py`. Advice without an experiment is checked by [`isobatch
advise`](../advice.md)."""


def lines() -> Iterator[str]:
    yield "# What the sources claim, and what was found"
    yield ""
    yield INTRODUCTION
    for source, entries in SOURCES.items():
        yield ""
        yield f"## {source}"
        yield ""
        yield "| where | claim | | effect | page |"
        yield "|---|---|---|---|---|"
        for entry in entries:
            found = entry.found()
            if found is None:
                continue
            link = f"[{entry.page.removeprefix('../')}]({entry.page}.md)"
            cells = [entry.where, entry.claim, f"**{found.verdict}**", found.effect, link]
            yield f"| {' | '.join(cells)} |"


def page() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    (HERE / "README.md").write_text(page())
