"""The page on gradients, and what the README says of it, from gradients.json: words are chosen by verdicts."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isobatch.formatting import TO, with_interval
from isobatch.laboratory.results import from_json
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.blog_post_claims import FARTHER, PAIR_LAGS
from isobatch.studies.blog_post_results import PostResults

HERE = Path(__file__).parent
KINDS = {
    "CartPole-v1": "discrete actions, ends when the pole falls",
    "Acrobot-v1": "discrete actions, ends when the goal is reached",
    "Breakout-MinAtar": "images, a convolutional network, ends when the ball is lost",
}
QUANTITIES = ("variance", "squared_bias", "error", "effective_samples")
POST = "https://iclr-blogposts.github.io/2026/blog/2026/ppo-batch-size/"
BEYOND = {
    "geometries": "Variance, squared bias and error over N x T at equal data, effective samples, and time",
    "lambdas": "The effect of lambda at three rollout lengths",
    "lags": "Correlation against lag in covariance form, and what each lag adds to the variance of a rollout",
    "training-time": "Error, effective samples and critical batch size over training",
}
NEWEST = "000000440-"  # how pictures of the last policy begin
POST_PICTURES = (
    *(f"figure-{n}.png" for n in ("1", "1-means", *range(2, 7))),
    *(f"{NEWEST}{name}.png" for name in ("geometries", "lambdas", "lags")),
    "training-time.png",
)
HEADLINE, END = "<!-- measured by docs/results/gradients.py -->", "<!-- end of what was measured -->"
INTRODUCTION = """\
# How noisy, how biased, how correlated is the policy gradient?

**Do long rollouts make policy gradients noisy, because their samples are correlated? Or are short ones worse, because
they are biased?** Every number has its 95 % interval, from a bootstrap over independent environments or batches, never
over time steps. What the quantities are: [the gradient laboratory](../gradients.md). Made by `python
docs/results/gradients.py`, from the numbers in [gradients.json](gradients.json).
"""


def picture_name(part: str, name: str) -> str:
    return f"gradients-{part}-{name.removeprefix(NEWEST)}"


def page_of(numbers: dict[str, Any]) -> str:
    lines = INTRODUCTION.split("\n")
    if "post" in numbers:
        lines += post_lines(numbers)
    measured = {env: numbers[env] for env in KINDS if env in numbers}
    lines += summary_lines(measured)
    for env, result in measured.items():
        lines += environment_lines(env, result)
    return "\n".join(lines).rstrip() + "\n"


def post_of(numbers: dict[str, Any]) -> PostResults:
    return from_json(PostResults, {name: each for name, each in numbers["post"].items() if name != "commands"})


def post_lines(numbers: dict[str, Any]) -> Iterator[str]:
    post = post_of(numbers)
    yield from ("## The blog post on Pendulum-v1", "")
    yield paragraph(
        f"PPO with 4 environments x 256 steps, as in [the post]({POST}), measured after "
        f"{post.cosines[-1].env_steps:,} steps. A claim *holds* or *does not hold* where the interval of its effect "
        "says so. Cosines of samples are means over 16 batches."
    )
    yield from ("", "```", *numbers["post"]["commands"], "```", "")
    yield from ("| where | claim | | measured |", "|---|---|---|---|")
    for claim in post.claims:
        yield f"| {claim.where} | {claim.claim} | **{claim.verdict}** | {claim.measured} |"
    yield from ("", paragraph("In plain words: " + " ".join(on_correlation(post))), "")
    yield from (paragraph(" ".join(on_noise(post, numbers))), "")
    yield from ("### The post's six figures, repeated", "")
    for n in range(1, 7):
        yield from (f"![Figure {n} of the post, repeated](gradients-post-figure-{n}.png)", "")
        if n == 1:
            yield from ("![Mean cosine against lag, signed and absolute](gradients-post-figure-1-means.png)", "")
    yield from ("### Beyond the post: the variance itself", "")
    for name, caption in BEYOND.items():
        yield from (f"![{caption}](gradients-post-{name}.png)", "", caption + ".", "")


def on_correlation(post: PostResults) -> Iterator[str]:
    """Likeness in direction, up to sign and in covariance form."""
    yield "are gradients of one trajectory more alike than those of two?"
    words = {"holds": "are", "does not hold": "are not", "undecided": "cannot be told to be"}
    for how, name, kind, cosine in (
        ("In direction", "direction", "mean", "mean cosine"),
        ("Up to sign", "line", "absolute", "mean absolute cosine"),
    ):
        parts = []
        for when, numbers in zip(("early", "late"), post.cosines, strict=True):
            values = " and ".join(
                f"{signed(getattr(numbers.within[lag], kind))} at lag {lag}" for lag in (PAIR_LAGS[0], PAIR_LAGS[-1])
            )
            near, far = (words[post.claim(f"{name}-{when}{ending}").verdict] for ending in ("", FARTHER))
            apart = f"{' and '.join(map(str, PAIR_LAGS[1:]))} steps"
            verdict = f"they {near}" if near == far else f"neighbors {near}, those {apart} apart {far}"
            across = signed(getattr(numbers.across, kind))
            parts.append(f"at step {numbers.env_steps:,} {verdict} ({cosine} {values}, {across} across trajectories)")
        yield f"{how}: {'; '.join(parts)}."
    yield (
        "A cosine weighs a small gradient like a large one. Var(G_B) is made of products, in which large gradients "
        f"count most: there, at the later policy, {covariance(post)}."
    )
    neighbors = [each.within[1] for each in post.correlations]
    above = sum(each.low > 0 for each in neighbors)
    yield (
        f"Over training the correlation at lag 1 is {min(each.value for each in neighbors):+.2f} to "
        f"{max(each.value for each in neighbors):+.2f}, and above 0 by its interval at {above} of {len(neighbors)} "
        "checkpoints."
    )
    worth, steps = post.claim("effective-samples"), "independent samples as it has steps"
    yield {
        "holds": "A rollout of 256 steps is worth fewer independent samples than it has steps",
        "does not hold": f"A rollout of 256 steps is worth about as many {steps}",
        "undecided": f"Whether a rollout of 256 steps is worth as many {steps} cannot be told",
    }[worth.verdict] + f": 1,024 are worth {number(worth.effects[0].estimate)}."


def covariance(post: PostResults) -> str:
    """The correlation of neighbors, near zero and near that of two trajectories or not."""
    small = {
        "holds": "is close to zero",
        "does not hold": "is not zero",
        "undecided": "cannot be told to be close to zero",
    }[post.claim("covariance-small").verdict]
    baseline = {
        "holds": "comes close",
        "does not hold": "does not come close",
        "undecided": "cannot be told to come close",
    }[post.claim("covariance-baseline").verdict]
    return f"the correlation of neighbors {small} and, with the lag, {baseline} to that of two trajectories"


def on_noise(post: PostResults, numbers: dict[str, Any]) -> Iterator[str]:
    """Of long rollouts, its reason, and bias."""
    noisier = post.claim("longer-noisier")
    yield {
        "holds": "Long rollouts are noisier here at equal data",
        "does not hold": "Long rollouts are not noisier here at equal data",
        "undecided": "Whether long rollouts are noisier here at equal data cannot be told",
    }[noisier.verdict] + f": the variance at 16 x 64 is {number(noisier.effects[0].estimate)} times that at 4 x 256."
    if ends := variance_range():
        low, high = ends
        yield (
            f"On other policies and environments 2 x 512 has {low} to {high} times the variance of 128 x 8 "
            "([where intervals tell the two apart](geometry.md))."
        )
    grows = post.claim("individual-grows")
    yield {
        "holds": "Each single sample is noisier in a long rollout, since its advantage sums more rewards",
        "does not hold": "Single samples are not noisier in a long rollout",
        "undecided": "Whether single samples are noisier in a long rollout cannot be told",
    }[grows.verdict] + f": {number(grows.effects[0].estimate)} times from T = 16 to T = 256."
    yield from on_environments(numbers)
    yield {
        "holds": "And very short rollouts are biased, more than long ones.",
        "does not hold": "Very short rollouts are not more biased than long ones.",
        "undecided": "Whether very short rollouts are more biased than long ones cannot be told.",
    }[post.claim("short-biased").verdict]


def on_environments(numbers: dict[str, Any]) -> Iterator[str]:
    """Where the last policy's long rollouts are worth less than their samples."""
    for env, worth in last_worth(numbers).items():
        if worth.high < 1024:
            yield f"On {env}, late in training, samples are correlated: 1,024 of 4 x 256 are worth {number(worth)}."


def last_worth(numbers: dict[str, Any]) -> dict[str, Estimate]:
    """Effective samples of 4x256 at the last policy, by environment."""
    return {
        env: estimate(long_row(numbers[env]["checkpoints"][-1])["effective_samples"]) for env in KINDS if env in numbers
    }


def variance_range() -> tuple[str, str] | None:
    """The least and the most that 2 x 512 has of the variance of 128 x 8, of policies at which intervals are apart."""
    ratios = []
    for line in (HERE / "geometry.md").read_text().split("\n"):
        found = [re.search(rf"{shape} ([\d.]+) \[([\d.]+), ([\d.]+)\]", line) for shape in ("128 x 8", "2 x 512")]
        if ": variance of the gradient" in line and all(found):
            short, long = (Estimate(*map(float, match.groups())) for match in found if match)
            if not short.overlaps(long):
                ratios.append(long.value / short.value)
    return (f"{min(ratios):.1f}", f"{max(ratios):.1f}") if ratios else None


def summary_lines(measured: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What a long rollout is worth, for each environment and age of the policy, in one table."""
    yield from ("## Are the samples of a long rollout correlated?", "")
    yield paragraph(
        "How many independent samples 1,024 samples of 4 x 256 are worth, the share of a rollout's variance that "
        "single samples account for, and where the lowest error was."
    )
    yield ""
    yield "| environment | after steps | effective samples of 4x256 | share of single samples | lowest error |"
    yield "|---|---:|---:|---:|---|"
    for env, result in measured.items():
        for checkpoint in result["checkpoints"]:
            best = min(checkpoint["geometries"], key=lambda row: row["error"]["value"])
            cells = (long_row(checkpoint)["effective_samples"], checkpoint["single_samples"])
            worth, alone = (number(estimate(each)) for each in cells)
            yield f"| {env} | {checkpoint['env_steps']:,} | {worth} | {alone} | {shape_of(best)} |"
    yield ""


def environment_lines(env: str, result: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {env}: {KINDS[env]}", "", "```", *result["commands"], "```", "")
    yield "| after steps | N x T | variance | squared bias | error | effective samples of 1,024 | variance, direct |"
    yield "|---:|---|---:|---:|---:|---:|---:|"
    for checkpoint in result["checkpoints"]:
        for row in checkpoint["geometries"][::2]:
            cells = [number(estimate(row[name])) for name in QUANTITIES]
            cells.append(number(estimate(row["measured_variance"])) if "measured_variance" in row else "")
            yield f"| {checkpoint['env_steps']:,} | {shape_of(row)} | {' | '.join(cells)} |"
    yield from ("", f"![Over training, {env}](gradients-{env}.png)", "")
    yield from (f"![The last policy, {env}](gradients-{env}-geometries.png)", "")
    for checkpoint in result["checkpoints"]:
        yield from (f"After {checkpoint['env_steps']:,} steps:", "")
        yield from (f"- {sentence}" for sentence in checkpoint["sentences"])
        yield ""


def with_caption(readme: str, numbers: dict[str, Any]) -> str:
    """The README with what it says of these measurements."""
    if "post" not in numbers:
        return readme
    caption = paragraph(f"*{' '.join(caption_of(numbers))}*")
    return re.sub(f"{HEADLINE}.*?{END}", lambda _: f"{HEADLINE}\n{caption}\n{END}", readme, flags=re.DOTALL)


def caption_of(numbers: dict[str, Any]) -> Iterator[str]:
    post = post_of(numbers)
    early, late = post.cosines
    yield f"Pendulum-v1, PPO after {late.env_steps:,} steps."
    if post.claim("short-biased").verdict == "holds":
        yield "Very short rollouts are biased."
    yield "Are long ones noisy because neighboring gradients are correlated, as folklore has it?"
    lag = min(late.within)
    within, across = (
        [signed(each) for each in pair]
        for pair in (
            (early.within[lag].mean, late.within[lag].mean),
            (early.across.mean, late.across.mean),
        )
    )
    parts = [
        f"Their mean cosine is {within[0]} at one checkpoint and {within[1]} at another, that of two trajectories "
        f"{across[0]} and {across[1]}",
        f"in covariance form, of which the variance is made, [{covariance(post)}](docs/results/gradients.md)",
    ]
    if ends := variance_range():
        parts.append(
            f"long rollouts have [{ends[0]} to {ends[1]} times](docs/results/geometry.md) the variance of as many "
            "samples in short ones, depending on policy and environment"
        )
    yield "; ".join(parts) + "."
    yield from on_environments(numbers)


def long_row(checkpoint: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in checkpoint["geometries"] if row["num_steps"] == 256)


def shape_of(row: dict[str, Any]) -> str:
    return f"{row['num_envs']}x{row['num_steps']}"


def estimate(content: dict[str, Any]) -> Estimate:
    return from_json(Estimate, content)


def number(measured: Estimate) -> str:
    return with_interval(measured, ends=TO)


def signed(measured: Estimate) -> str:
    """A cosine: +.32."""
    return f"{measured.value:+.2f}".replace("0.", ".", 1)


def paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
