"""The blog post "batch size in PPO: environments or steps?" on Pendulum-v1, figure by figure, and what it leaves open.

The post trains PPO with 4 environments x 256 steps and looks at single batches. Here its six figures are made anew, and
then the quantity they are about, Var(G_B), is measured itself: over N x T, over lambda, over training, with intervals.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from isobatch.drawing import COLORS, new_figure, save_figure
from isobatch.files import replace_file
from isobatch.gradients.correlation import cosine_across, cosine_matrix, cosine_pairs
from isobatch.gradients.layout import Layout
from isobatch.gradients.variance import direct_variance
from isobatch.laboratory.batches import batch_products
from isobatch.laboratory.diagnosis import Say, Watch, diagnose, key_of, policy_of, store, stored
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.plots_old import draw_all, heatmap, histograms, training_time
from isobatch.laboratory.sections_old import Policy, batches, sample_cosines
from isobatch.settings.config import Config
from isobatch.settings.parsing import plain_json
from isobatch.settings.presets import preset
from isobatch.statistics.bootstrap import Estimate, estimate, pair_mean, unit_mean
from isobatch.training.loading import load_run
from isobatch.training.trainer import train

EARLY, LATE = 390, 440  # iterations: the post's 399,360 and 450,560 steps
EVERY = 20  # iterations between the checkpoints of figure 2
LAMBDAS = (0.0, 0.95, 1.0)
SHAPES = ((4, 256), (16, 64))
SPREAD_LAGS = (1, 10, 40)
HEATMAP = 5  # batches in a heatmap, as in the post
BATCHES = 64  # to measure the variance directly
CHAINS = 256
SPREADS = 16  # batches whose pairs of samples are compared
OVER_TRAINING = (20, 100, 200, 300, LATE)
SHOWN = ("1024x1", "64x16", "4x256")
SMALL = 0.05  # of a quantity: as good as nothing
Found = dict[str, Any]


def post_config() -> Config:
    """PPO as in the post: 4 environments x 256 steps, lambda 0.95."""
    return preset(
        "ppo",
        "Pendulum-v1",
        num_envs=4,
        num_steps=256,
        gae_lambda=0.95,
        total_timesteps=LATE * 1024,
        lr_schedule="constant",
        learning_rate=3e-4,
    )


def reproduce(out: Path, seed: int = 0, watch: Watch = lambda what, done: None, say: Say = print) -> Found:
    """Train if there is no run yet, measure what is not measured yet, draw everything, judge the claims."""
    run_dir, results = out / "run", out / "results"
    watch("training", 0.0)
    if not (run_dir / "config.yaml").is_file():
        kept = LATE // 10
        train(post_config(), run_dir=run_dir, checkpoint_interval=10, keep_checkpoints=kept, say=say)
    options = LabOptions(measure_seed=seed, chains=CHAINS, lambdas=(0.0, 0.5, 0.9, 0.95, 1.0))
    found = {
        "figures": _figures(run_dir, results, options, watch),
        "lags": _lags(run_dir, results, options, watch),
        "over_training": _diagnose(run_dir, results, options, "geometries", OVER_TRAINING, watch, 0.45, 0.75),
        "late": _diagnose(run_dir, results, options, "all", (LATE,), watch, 0.75, 1.0)[0],
        "staggered": _diagnose(
            run_dir, out / "staggered", options, "geometries", (LATE,), watch, 0.97, 1.0, {"staggered_resets": True}
        )[0],
    }
    claims = judge(found)
    replace_file(out / "claims.json", json.dumps({"claims": claims}, indent=1) + "\n")
    watch("drawing", 1.0)
    return {"claims": claims, "pictures": [str(path) for path in draw(found, out)]}


def _diagnose(
    run_dir: Path, out: Path, options: LabOptions, sections: str, iterations: tuple[int, ...], watch: Watch,
    begin: float, end: float, changes: Found | None = None,
) -> list[Found]:  # fmt: skip
    options = dataclasses.replace(options, sections=sections)
    which = ",".join(map(str, iterations))

    def part(what: str, done: float) -> None:
        watch(what, begin + (end - begin) * done)

    return diagnose(run_dir, options, which, None, out, changes or {}, part)


def _lags(run_dir: Path, out: Path, options: LabOptions, watch: Watch) -> list[Found]:
    """Figure 2: the covariance form over the checkpoints, in chains of 256 steps."""
    few = dataclasses.replace(options, chains=64, geometries="4x256", budget=1024)
    iterations = tuple(range(EVERY, LATE + 1, EVERY))
    return _diagnose(run_dir, out / "lags", few, "lags", iterations, watch, 0.15, 0.45)


def _figures(run_dir: Path, out: Path, options: LabOptions, watch: Watch) -> Found:
    """What figures 1 and 3 to 6 show, from single batches as in the post; and the variance of many."""
    found: Found = {}
    for place, iteration in enumerate((EARLY, LATE)):
        watch(f"the post's figures at iteration {iteration}", 0.03 + 0.06 * place)
        loaded = load_run(run_dir, str(iteration))
        about = policy_of(loaded, options, None, {})
        key = key_of(about, iteration, "figures")
        path = out / f"{iteration:09d}-figures.json"
        made = stored(path, key)
        if made is None:
            made = plain_json(_figure_numbers(about, iteration == LATE))
            store(path, key, made)
        found[str(iteration)] = made
    return found


def _figure_numbers(about: Policy, late: bool) -> Found:
    numbers: Found = {"cosines": {f"{lam:g}": sample_cosines(about, lam) for lam in LAMBDAS}}
    if late:
        numbers["spreads"] = {f"{lam:g}": _spreads(about, lam) for lam in LAMBDAS}
        numbers["batches"] = {
            f"{n}x{t}, {lam:g}": _batch_numbers(about, n, t, lam) for n, t in SHAPES for lam in LAMBDAS
        }
    return numbers


def _batch_numbers(about: Policy, num_envs: int, num_steps: int, lam: float) -> Found:
    config = about.config.replace(gae_lambda=lam)
    seed = about.options.measure_seed + 7
    products = batch_products(config, about.policy, about.source, num_envs, num_steps, BATCHES, seed)
    cosines = cosine_matrix(products, Layout.of(np.arange(BATCHES)))
    extreme = estimate(lambda w: pair_mean(np.abs(cosines), w), BATCHES, what="batches")
    return {"cosines": cosines, "variance": direct_variance(products), "extreme": extreme}


def _spreads(about: Policy, lam: float) -> Found:
    """Mean |cosine| of pairs, within a trajectory at some lags less that across trajectories; over several batches."""
    rows = []
    for gram, layout in batches(about, SPREADS, lam):
        across = np.abs(cosine_across(gram, layout)).mean()
        rows.append([np.abs(cosine_pairs(gram, layout, lag)).mean() - across for lag in SPREAD_LAGS])
    table = np.array(rows)

    def over_batches(place: int) -> Estimate:
        return estimate(lambda w: unit_mean(table[:, place], w), SPREADS, what="batches")

    return {str(lag): over_batches(place) for place, lag in enumerate(SPREAD_LAGS)}


def draw(found: Found, out: Path) -> list[Path]:
    """Every figure of the post, then those beyond it."""
    late, early = found["figures"][str(LATE)], found["figures"][str(EARLY)]
    title = "PPO on Pendulum-v1"
    paths = []

    def keep(figure: Any, name: str) -> None:
        paths.append(out / name)
        save_figure(figure, out / name)

    figure, (left, right) = new_figure(1, 2, (11, 4))
    histograms(left, early["cosines"]["0.95"], ("1", "3", "5", "7"), f"step {EARLY * 1024:,}")
    histograms(right, late["cosines"]["0.95"], ("1", "5", "10", "40"), f"step {LATE * 1024:,}")
    figure.suptitle("Figure 1: cosines of centered gradients, within a trajectory at some lags and across", fontsize=10)
    keep(figure, "figure-1.png")

    keep(_figure_2(found["lags"]), "figure-2.png")

    figure, panels = new_figure(1, 2, (9, 4))
    for axes, (n, t) in zip(panels, SHAPES, strict=True):
        heatmap(axes, np.array(late["batches"][f"{n}x{t}, 0.95"]["cosines"])[:HEATMAP, :HEATMAP], f"{n}x{t}")
    figure.suptitle("Figure 3: cosines between the gradients of five batches, lambda 0.95", fontsize=10)
    keep(figure, "figure-3.png")

    figure, panels = new_figure(1, 2, (11, 4))
    for axes, lam in zip(panels, ("0", "1"), strict=True):
        histograms(axes, late["cosines"][lam], ("40",), f"lambda {lam}")
    figure.suptitle("Figure 4: cosines at lag 40", fontsize=10)
    keep(figure, "figure-4.png")

    figure, axes = new_figure()
    for color, lam in enumerate(map("{:g}".format, LAMBDAS)):
        one = late["cosines"][lam]
        axes.stairs(
            one["with_mean"]["density"], one["edges"], color=COLORS[color], label=f"lambda {lam}", linewidth=1.6
        )
    axes.set(xlabel="cosine of a sample's gradient with the mean of its batch", ylabel="density")
    axes.legend(frameon=False)
    axes.set_title("Figure 5: samples and their batch", fontsize=10)
    keep(figure, "figure-5.png")

    figure, panels = new_figure(2, 3, (11, 7))
    for row, (n, t) in zip(panels, SHAPES, strict=True):
        for axes, lam in zip(row, map("{:g}".format, LAMBDAS), strict=True):
            matrix = np.array(late["batches"][f"{n}x{t}, {lam}"]["cosines"])[:HEATMAP, :HEATMAP]
            heatmap(axes, matrix, f"{n}x{t}, lambda {lam}")
    figure.suptitle("Figure 6: cosines between the gradients of five batches", fontsize=10)
    keep(figure, "figure-6.png")

    paths += draw_all(found["late"], out, f"{title}, {LATE * 1024:,} steps")
    training_time(found["over_training"], out / "training-time.png", title)
    return [*paths, out / "training-time.png"]


def _figure_2(results: list[Found]) -> Any:
    figure, axes = new_figure()
    steps = np.array([result["env_steps"] for result in results])
    for color, lag in enumerate((1, 5, 10, 20)):
        rows = [next(r["estimate"] for r in result["lags"]["correlation"] if r["lag"] == lag) for result in results]
        values = np.array([row["value"] for row in rows])
        axes.plot(steps, values, "o-", color=COLORS[color], label=f"lag {lag}", markersize=3)
        low, high = ([row[end] for row in rows] for end in ("low", "high"))
        axes.fill_between(steps, low, high, color=COLORS[color], alpha=0.12, linewidth=0)
    axes.axhline(0, color="0.4", linewidth=1)
    axes.set(xlabel="environment steps", ylabel="covariance / variance of one sample")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    axes.set_title("Figure 2: correlation in covariance form (bands: 95 % intervals)", fontsize=10)
    return figure


def judge(found: Found) -> list[Found]:
    """The post's claims, each with a verdict that follows from intervals, and the numbers behind it."""
    late = found["figures"][str(LATE)]
    spreads, batches = late["spreads"], late["batches"]
    rows = {f"{row['num_envs']}x{row['num_steps']}": row for row in found["late"]["geometries"]["rows"]}
    staggered = {f"{r['num_envs']}x{r['num_steps']}": r for r in found["staggered"]["geometries"]["rows"]}
    lags = {row["lag"]: row["estimate"] for row in found["late"]["lags"]["correlation"]}
    alone = found["late"]["lags"]["shares"][0]["estimate"]
    means = {lam: late["cosines"][lam]["with_mean"]["mean"] for lam in ("0", "0.95", "1")}
    extreme = {shape: batches[f"{shape}, 0.95"]["extreme"] for shape in ("4x256", "16x64")}
    ratio = rows["16x64"]["variance_to_own"]  # of 16x64 to 4x256
    worth = {end: np.inf if value is None else value for end, value in rows["4x256"]["effective_samples"].items()}
    short, long = rows["64x16"]["squared_bias"], rows["4x256"]["squared_bias"]
    return [
        _claim(
            "Gradients of one trajectory are more alike in direction than those of different ones",
            all(spreads["0.95"][str(lag)]["low"] > 0 for lag in SPREAD_LAGS),
            any(spreads["0.95"][str(lag)]["high"] < 0 for lag in SPREAD_LAGS),
            "mean absolute cosine within less across: "
            + ", ".join(f"{_words(spreads['0.95'][str(lag)])} at lag {lag}" for lag in SPREAD_LAGS),
        ),
        _claim(
            "In covariance form the correlation is close to zero (the post: -0.007 to 0)",
            all(max(abs(e["low"]), abs(e["high"])) < SMALL for e in lags.values()),
            any(e["low"] > SMALL or e["high"] < -SMALL for e in lags.values()),
            ", ".join(f"{_words(lags[lag])} at lag {lag}" for lag in (1, 5, 10, 20)),
        ),
        _claim(
            "Gradients of 4x256 batches are more often strongly aligned or opposed than those of 16x64",
            extreme["4x256"]["low"] > extreme["16x64"]["high"],
            extreme["4x256"]["high"] < extreme["16x64"]["low"],
            f"mean absolute cosine between {BATCHES} batches: {_words(extreme['4x256'])} at 4x256, "
            f"{_words(extreme['16x64'])} at 16x64",
        ),
        _claim(
            "At equal data a longer rollout has a larger variance: 4x256 more than 16x64",
            ratio["high"] < 1,
            ratio["low"] > 1,
            f"Var(16x64) / Var(4x256) is {_words(ratio)}; directly, on {BATCHES} batches each: "
            f"{_words(batches['4x256, 0.95']['variance'])} at 4x256, "
            f"{_words(batches['16x64, 0.95']['variance'])} at 16x64",
        ),
        _claim(
            "It is the covariance along a trajectory that does it: long rollouts have a smaller effective sample size",
            worth["high"] < 1024,
            worth["low"] > (1 - SMALL) * 1024,
            f"1,024 samples of 4x256 are worth {_words(worth)} independent ones; single samples make {_words(alone)} "
            "of the variance of a rollout of 1,024 steps",
        ),
        _claim(
            "Short rollouts are biased, long ones less so",
            short["low"] > long["high"],
            short["high"] < long["low"],
            "squared bias " + ", ".join(f"{_words(rows[name]['squared_bias'])} at {name}" for name in SHOWN),
        ),
        _claim(
            "A larger lambda makes the directions of single gradients more various",
            means["0"] > means["0.95"] > means["1"],
            means["0"] < means["1"],
            "in one batch, mean cosine of a sample with the batch's gradient: "
            + ", ".join(f"{m:+.3f} at lambda {lam}" for lam, m in means.items()),
        ),
        _claim(
            "No lambda removes the likeness along a trajectory, not even 0",
            all(spreads[lam]["40"]["low"] > 0 for lam in spreads),
            any(spreads[lam]["40"]["high"] < 0 for lam in spreads),
            "mean absolute cosine at lag 40, less across: "
            + ", ".join(f"{_words(e['40'])} at lambda {lam}" for lam, e in spreads.items()),
        ),
        _claim(
            "Not in the post: environments that reach their time limit together hang together",
            rows["1024x1"]["across"]["low"] > 0,
            rows["1024x1"]["across"]["high"] < SMALL * rows["1024x1"]["variance"]["value"],
            "variance reset together and staggered: "
            + ", ".join(f"{_words(rows[n]['variance'])} and {_words(staggered[n]['variance'])} at {n}" for n in SHOWN),
        ),
    ]


def _claim(claim: str, holds: bool, fails: bool, evidence: str) -> Found:
    verdict = "holds" if holds else "does not hold" if fails else "cannot be told"
    return {"claim": claim, "verdict": verdict, "evidence": evidence}


def _words(estimate: Found) -> str:
    value, low, high = (_number(estimate[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
