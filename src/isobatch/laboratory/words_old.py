"""What a diagnosis means, in sentences with the numbers behind them. Reads the JSON of `diagnosis`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Found = dict[str, Any]
FAINT = 0.01  # a correlation below this is as good as none
PLAIN = 0.2  # of a quantity: what makes less of a difference is not worth a sentence


def sentences(result: Found) -> list[str]:
    """The recommendation first."""
    said: list[str] = []
    if "geometries" in result:
        said += _geometry(result["geometries"])
        said += _resets(result["geometries"])
        said += _bias(result["geometries"])
        said += _unseen(result["geometries"])
        said += _noise(result["geometries"])
    if "lambdas" in result:
        said += _lambda(result["lambdas"])
    if "lags" in result:
        said += _lags(result["lags"])
    if "minibatches" in result:
        said += _minibatches(result["minibatches"])
    if "restraint" in result:
        said += _restraint(result["restraint"])
    if "aggregations" in result:
        said += _aggregations(result["aggregations"])
    return said


def name(row: Found) -> str:
    return f"{row['num_envs']}x{row['num_steps']}"


def _geometry(found: Found) -> Iterator[str]:
    if found["complete_episodes"]:
        yield (
            "This run's own updates use whole episodes only (complete_episodes); the geometries here are rollouts, "
            "begun in the middle of episodes, of which all steps count. For whole episodes see the aggregations."
        )
    rows = found["rows"]
    best = min(rows, key=lambda row: row["error"]["value"])
    own = next((row for row in rows if row.get("own")), None)
    against = own if own is not None and own is not best else max(rows, key=lambda row: row["error"]["value"])
    ratio = against["error_to_best"]
    whose = " (this run's)" if against is own else ""
    if own is best and len(rows) > 1:
        yield f"Of the geometries of {found['budget']:,} samples this run's own, {name(own)}, has the lowest error."
    if against is best:
        pass  # there is nothing to compare it with
    elif ratio["low"] is not None and ratio["low"] > 1:
        yield (
            f"At this policy {name(best)} has {_times(ratio)} lower gradient mean squared error than "
            f"{name(against)}{whose}."
        )
    else:
        yield (
            f"{name(best)} has the lowest gradient error, but {name(against)}{whose} cannot be told from it "
            f"({_times(ratio)}): measure more chains, or choose by time."
        )
    quick = min(rows, key=lambda row: in_equal_time(row, best))
    gain = best["error"]["value"] / in_equal_time(quick, best) if in_equal_time(quick, best) > 0 else 0.0
    if gain > 1 + PLAIN:
        taken, least = (1e3 * row["seconds_per_batch"] for row in (quick, best))
        yield (
            f"Weighed against time {name(quick)} is best: a batch takes {taken:.1f} ms (to collect, and one gradient) "
            f"and {least:.1f} ms at {name(best)}; what is collected in equal time has {gain:.1f} times less error."
        )
    known = [row for row in rows if row["effective_samples"]["value"] is not None]
    worst = min(known, key=lambda row: row["effective_samples"]["value"], default=best)
    value = worst["effective_samples"]
    if value["high"] is not None and value["high"] < (1 - PLAIN) * found["budget"]:
        than = "" if worst is best else f"; those of {name(best)} {_number(best['effective_samples'])}"
        yield f"The {found['budget']:,} samples of {name(worst)} are worth {_number(value)} independent ones{than}."


def in_equal_time(row: Found, best: Found) -> float:
    """Error of the mean of as many batches as the time of one of `best` allows: more batches do not lower the bias."""
    batches = best["seconds_per_batch"] / row["seconds_per_batch"]
    return row["variance"]["value"] / batches + max(row["squared_bias"]["value"], 0.0)


def _resets(found: Found) -> Iterator[str]:
    """Whether environments that reach their time limit together make a difference."""
    if found["staggered_resets"]:
        return
    gains = [
        (row["variance"]["value"] / row["other_resets_variance"]["value"], row)
        for row in found["rows"]
        if row["across"]["low"] is not None and row["across"]["low"] > PLAIN * row["other_resets_variance"]["value"] > 0
    ]
    if gains:
        gain, row = max(gains, key=lambda pair: pair[0])
        others = "staggered resets (--staggered-resets)" if found["sets_clocks"] else "resets at different times"
        yield (
            f"Environments that were reset together hang together: at {name(row)} {others} would lower the variance "
            f"{gain:.1f} times."
        )


def _unseen(found: Found) -> Iterator[str]:
    """What environments outside JAX do not let one see."""
    if found["unseen_limits"]:
        yield (
            f"The value function stands in for what would follow the {found['unseen_limits']:,} time limits in the "
            "chains, since environments outside JAX do not go on there: its error at them is not part of the bias."
        )
    if found["waited"] != found["time_limit"]:
        limit = f"The time limit of {found['time_limit']:,} steps is long" if found["time_limit"] else (
            "No time limit is known"
        )  # fmt: skip
        yield (
            f"{limit}: chains and batches were begun {found['waited']:,} to {2 * found['waited']:,} steps after a "
            "reset, which may be earlier in an episode than training finds its environments."
        )


def _bias(found: Found) -> Iterator[str]:
    heavy = [
        row
        for row in found["rows"]
        if row["squared_bias"]["low"] is not None and row["squared_bias"]["low"] > row["variance"]["value"]
    ]
    if not heavy:
        return
    everywhere = len(heavy) == len(found["rows"])
    where = "At every rollout length" if everywhere else f"Up to T = {max(row['num_steps'] for row in heavy)}"
    source = "of the value function" if found["bootstrap"] else "of returns that are cut off (bootstrap=False)"
    remedies = ([] if everywhere else ["longer rollouts"]) + (["a larger lambda"] if found["gae_lambda"] < 1 else [])
    then = f"; try {' or '.join(remedies)}" if remedies else ""
    yield (
        f"{where}, at lambda {found['gae_lambda']:g}, the error is mostly bias {source}: more environments do not help "
        f"there{then}."
    )


def _noise(found: Found) -> Iterator[str]:
    own = next((row for row in found["rows"] if row.get("own")), found["rows"][-1])
    critical = own["critical_batch"]
    if critical["value"] is None or critical["high"] is None:
        low = critical["low"]
        at_least = f" (at least {low:,.0f} samples)" if low is not None and low > 0 else ""
        yield f"The gradient cannot be told from its noise here: the critical batch size is out of reach{at_least}."
    else:
        yield (
            f"At {name(own)} noise and signal are equal at a batch of {critical['value']:,.0f} samples "
            f"({critical['low']:,.0f} to {critical['high']:,.0f}), the critical batch size."
        )
        if own["across"]["value"] > PLAIN * own["variance"]["value"]:
            yield "That counts independent batches: environments that are reset together share noise, however many."


def _lambda(found: Found) -> Iterator[str]:
    """At the run's own rollout length if it was measured, else at the longest."""
    own = [row for row in found["rows"] if row["own_geometry"]]
    steps = own[0]["num_steps"] if own else max(row["num_steps"] for row in found["rows"])
    rows = [row for row in found["rows"] if row["num_steps"] == steps]
    best = min(rows, key=lambda row: row["error"]["value"])
    used = next(row for row in rows if row["gae_lambda"] == found["own"])
    if used["error"]["value"] > (1 + PLAIN) * best["error"]["value"] > 0:
        yield (
            f"At {name(best)} lambda {best['gae_lambda']:g} has the lowest error; this run's, {found['own']:g}, has "
            f"{_times(used['error_to_best'])} as much."
        )


def _lags(found: Found) -> Iterator[str]:
    seen = [row for row in found["correlation"] if row["estimate"]["low"] is not None]
    if not seen:
        return
    clear = [row for row in seen if row["estimate"]["low"] > 0 or row["estimate"]["high"] < 0]
    if not clear:
        widest = max(max(abs(r["estimate"]["low"]), abs(r["estimate"]["high"])) for r in seen)
        yield f"Gradients along a trajectory are not measurably correlated at any lag (all within {widest:.2g})."
        return
    most = max(clear, key=lambda row: abs(row["estimate"]["value"]))
    if abs(most["estimate"]["value"]) < FAINT:
        value = most["estimate"]["value"]
        yield f"Gradients along a trajectory are hardly correlated: by {value:+.1g} at most, at lag {most['lag']}."
        return
    alone = found["shares"][0]["estimate"]["value"]
    yield (
        f"Gradients along a trajectory are correlated most at lag {most['lag']}, by {most['estimate']['value']:+.3f} "
        f"({most['estimate']['low']:+.3f} to {most['estimate']['high']:+.3f}); single samples alone would make "
        f"{alone:.0%} of the variance of a rollout of {found['num_steps']} steps."
    )


def _minibatches(found: Found) -> Iterator[str]:
    row = next((row for row in found["rows"] if row["own"] and row["added"]["value"] > 0), found["rows"][0])
    squared = row["squared_batch_gradient"]["value"]
    if squared > 0:
        yield (
            f"A minibatch of {row['size']} adds {row['added']['value'] / squared:.1f} times the squared length of the "
            "batch's own gradient as variance, for that one step."
        )


def _restraint(found: Found) -> Iterator[str]:
    last = found["rows"][-1]
    clipped = found["objective"] == "clip"
    what = "Clipping" if clipped else "The KL penalty"
    moved = f"{last['clip_fraction']['value']:.0%} of the samples are out of range" if clipped else (
        f"the KL from the behavior policy is {last['kl']['value']:.2g}"
    )  # fmt: skip
    epochs = "1 epoch" if last["epoch"] == 1 else f"{last['epoch']} epochs"
    yield (
        f"{what}: after {epochs} {moved}; the gradient has a cosine of {last['cosine']['value']:.2f} with the one "
        f"without it, and {last['length_ratio']['value']:.2f} times its length."
    )


def _aggregations(found: Found) -> Iterator[str]:
    variation = found["factor_variation"]["value"]
    if variation == 0:
        yield "All episodes are equally long: the aggregations differ by constant factors only."
        return
    cosine = next(row["estimate"] for row in found["cosines"] if row["pair"] == ["timestep", "trajectory-mean"])
    yield (
        f"Batches of {found['episodes_per_batch']} whole episodes: the factor N / sum T_i between timestep and "
        f"trajectory aggregation varies by {variation:.0%} from batch to batch, and trajectory-mean has a cosine of "
        f"{cosine['value']:.2f} with them."
    )


def _times(ratio: Found) -> str:
    """A ratio of two errors. Their estimates can fall below zero, they cannot."""
    low, high = max(ratio["low"] or 0.0, 0.0), ratio["high"]
    if ratio["value"] is None:
        return f"at least {low:.1f} times"
    return f"{ratio['value']:.1f} times ({low:.1f} to {'inf' if high is None else f'{high:.1f}'})"


def _number(value: Found) -> str:
    if value["value"] is None:
        return "more than can be told"
    ends = "" if value["low"] is None or value["high"] is None else f" ({value['low']:,.0f} to {value['high']:,.0f})"
    return f"{value['value']:,.0f}{ends}"
