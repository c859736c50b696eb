"""Rules of thumb for the sizes of policy optimization, each a named check with its source.

Those of the guide are folklore: nobody has measured them on your problem. A measurement, here the critical batch size,
outranks them, and where the paper (Hilton, Cobbe & Schulman 2021) says something else, the paper does. A number that
the guide does not give, or a rule that it does not have, is ours, and the source says so. `docs/guide.md` tells the
guide's reasons.

Sizes are those of what is learned from: of whole episodes the samples that are surely used, not all that are
collected.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from isobatch.advice.facts import Facts
from isobatch.advice.findings import Conflict, Finding, Said, Suggestion, made
from isobatch.advice.memory_rule import rollout_memory
from isobatch.formatting import counted, rounded
from isobatch.rescaling.cautions import FEW_ITERATIONS
from isobatch.settings.accounting import GOOD_ROWS, Samples, samples_used, updates
from isobatch.settings.config import Config
from isobatch.settings.fields import LARGEST_INDEX
from isobatch.settings.geometry import minibatch_counts

GUIDE = "guide to n_envs, n_steps and batch size"
OURS = "ours"
PAPER = "Hilton 2021, section 6.2"
MEASURED = "measured: McCandlish 2018"

MINIBATCH_COUNTS = (4, 32)  # minibatches per rollout
MINIBATCH_SIZES = (32, 256)  # samples per minibatch, to start with
CONTINUOUS_SAMPLES = (2_000, 10_000)  # samples per update
REINFORCE_SAMPLES = 1_000  # samples per update
SAMPLES_PER_ACTION = 10  # samples per minibatch for each action dimension
FEWEST_ENVS, FEWEST_STEPS = 8, 64
STALLED = 10  # iterations with an update that no run should have fewer of, whatever its length
ENOUGH_SPEED = 0.8  # share of the highest speed that the fewest useful environments reach


def used(config: Config, facts: Facts) -> Samples:
    return samples_used(config, facts.time_limit)


def longer_rows(config: Config, facts: Facts, needed: int) -> Suggestion:
    """Rows of which whole episodes use as many samples as `needed`, in all rows together."""
    assert facts.time_limit is not None
    longer = max(facts.time_limit - 1 + math.ceil(needed / config.num_envs), GOOD_ROWS * facts.time_limit)
    return Suggestion("num_steps", config.num_steps, longer)


def rollout_size(config: Config, facts: Facts) -> Said:
    g, samples = config.geometry, used(config, facts)
    of_them = f", {samples.per_iteration} of them used: whole episodes" if samples.bound else ""
    return None, f"rollout = {g.num_envs:,} x {g.num_steps:,} = {g.iteration_batch:,} samples per iteration{of_them}."


def useful_envs(config: Config, facts: Facts) -> Said:
    """The fewest environments that reach most of the speed that was measured."""
    n = config.num_envs
    if not facts.throughput:
        return None, "as many environments as add speed; step times were not measured (--measure)."
    best = max(speed for _, speed in facts.throughput)
    useful = min(count for count, speed in facts.throughput if speed >= ENOUGH_SPEED * best)
    speeds = ", ".join(f"{speed:,.0f} with {count:,}" for count, speed in facts.throughput)
    more = ": more add samples to an iteration, no speed" if n > useful else ""
    text = f"steps per second: {speeds}. Up to {useful:,} environments are of use, here {n:,}{more}."
    enough = n >= useful / 2
    if not enough:
        text += f" With more of them the batches grow: isobatch rescale --to-num-envs {useful} goes with it."
    return enough, text, Suggestion("num_envs", n, useful)


def enough_envs(config: Config, facts: Facts) -> Said:
    n, text = config.num_envs, f"{counted(config.num_envs, 'environment')}, at least {FEWEST_ENVS} asked for."
    if config.complete_episodes:
        return None, f"{text} Not for whole episodes: few environments with long rows use more of what they collect."
    return n >= FEWEST_ENVS, text, Suggestion("num_envs", n, FEWEST_ENVS)


def envs_for_throughput(config: Config, facts: Facts) -> Said:
    """n_envs ~ B t_env / t_update: collecting B samples then takes as long as one gradient step on them."""
    n, batch = config.num_envs, config.geometry.optimization_batch
    if not facts.env_seconds or not facts.update_seconds:
        return None, "n_envs ~ B t_env / t_update; the two times are not known."
    ideal = max(1, round(min(batch * facts.env_seconds / facts.update_seconds, LARGEST_INDEX)))
    text = f"n_envs ~ {batch} x {facts.env_seconds:.3g} s / {facts.update_seconds:.3g} s = {ideal}, here {n}."
    return ideal / 2 <= n <= ideal * 2, text, Suggestion("num_envs", n, ideal)


def per_device(config: Config, facts: Facts) -> Said:
    """What devices do to the batch: here nothing, where environments are counted per device they multiply it."""
    n, parts, size = config.num_envs, facts.devices or 1, config.geometry.optimization_batch
    learned = used(config, facts).optimization
    elsewhere = "rsl_rl, Isaac Lab and RLlib count per device"
    if parts == 1:
        here = "num_envs counts the environments of all devices, so that --devices D leaves the batch as it is"
        return None, f"{here}; {elsewhere}, and there the batch is D times as large (isobatch rescale --to-devices D)."
    if n % parts:
        nearest = Suggestion("num_envs", n, parts * max(1, round(n / parts)))
        return False, f"{counted(n, 'environment')} cannot be shared equally by {parts} devices.", nearest
    if config.num_shards > 1 and config.num_shards % parts:
        text = f"{config.num_shards} shards cannot be shared equally by {parts} devices."
        return False, text, Suggestion("num_shards", config.num_shards, parts)
    if size % parts:
        text = f"minibatches of {size:,} cannot be shared equally by {parts} devices."
        return False, text, recut(config, shards=parts)
    shares = f"{n // parts:,} of the {counted(n, 'environment')} and {size // parts:,} samples of a minibatch"
    keeps = f"the batch stays: isobatch train --num-envs {n} --devices {parts}"
    grows = f"{parts} times the batch"
    if facts.critical_batch:  # samples needed go by 1 + B/B_crit
        more = (facts.critical_batch + parts * learned) / (facts.critical_batch + learned)
        grows += f", which needs {more:.2f} times the samples"
    there = f"{elsewhere}: give {n // parts:,} there; {n:,} would be {grows} (isobatch rescale --to-devices {parts})"
    return True, f"each of {parts} devices has {shares}, {keeps}. {there}."


def credit_horizon(config: Config, facts: Facts) -> Said:
    """Generalized advantage estimation looks 1/(1 - gamma lambda) steps ahead."""
    t, decay = config.num_steps, config.hypers.gamma * config.hypers.gae_lambda
    limit = facts.time_limit or math.inf
    ahead = 1 / (1 - decay) if decay < 1 else math.inf
    if limit < ahead:
        text = f"n_steps {t} against a horizon of {limit:,} steps, the longest episode."
        return t >= limit, text, Suggestion("num_steps", t, limit)
    if ahead == math.inf:
        both = "gamma and gae_lambda are 1, so episodes should fit into a rollout."
        return None, f"n_steps long enough for credit: {both}"
    text = f"n_steps {t} against a horizon 1/(1 - gamma lambda) of {rounded(ahead)} steps."
    return t >= ahead, text, Suggestion("num_steps", t, math.ceil(ahead))


def rollout_length(config: Config, facts: Facts) -> Said:
    t, text = config.num_steps, f"n_steps {config.num_steps}, at least {FEWEST_STEPS} to {2 * FEWEST_STEPS} asked for."
    return t >= FEWEST_STEPS, text, Suggestion("num_steps", t, FEWEST_STEPS)


def update_often(config: Config, facts: Facts) -> Said:
    """Stalled are updates that are fewer than `STALLED`; up to `FEW_ITERATIONS` nothing is said against a short run."""
    count = updates(config)
    waits = f" with an update (the first {config.staleness:,} of the run only collect)" if config.staleness else ""
    text = f"{counted(count, 'iteration')}{waits}, at least {FEW_ITERATIONS} so that n_steps does not stall updates"
    if STALLED <= count < FEW_ITERATIONS:
        return None, f"{text}; warned of below {STALLED}, since the guide has no number."
    steps = max(1, config.total_timesteps // ((FEW_ITERATIONS + config.staleness) * config.num_envs))
    change = Suggestion("num_steps", config.num_steps, 2 ** int(math.log2(steps)))
    return count >= FEW_ITERATIONS, f"{text}.", change


def recut(config: Config, low: float = 1, high: float = math.inf, shards: int = 0) -> Suggestion:
    """The number of equal minibatches from `low` to `high` that is nearest to the present one, if there is any."""
    now, rows = config.num_minibatches, config.num_envs // (shards or config.num_shards)
    counts = minibatch_counts(rows, config.num_steps, config.minibatch_scheme)
    within = [count for count in counts if low <= count <= high] or counts
    return Suggestion("num_minibatches", now, min(within, key=lambda count: abs(math.log(count / now))))


def minibatch_count(config: Config, facts: Facts) -> Said:
    count, (low, high) = config.num_minibatches, MINIBATCH_COUNTS
    text = f"num_minibatches {count}: {low} to {high} per rollout are common."
    if config.objective == "policy-gradient":
        return None, f"{text} Not for policy-gradient: no ratio corrects for them."
    return low <= count <= high, text, recut(config, low, high)


def minibatches_per_epoch(config: Config, facts: Facts) -> Said:
    count = config.num_minibatches
    text = f"num_minibatches {count}: at least 4 to 10 per epoch (8192 samples in 256s make 32)."
    if config.objective == "policy-gradient":
        return None, f"{text} Not for policy-gradient."
    return count >= MINIBATCH_COUNTS[0], text, recut(config, low=MINIBATCH_COUNTS[0])


def of_rollout(config: Config, facts: Facts, low: float, high: float) -> Suggestion:
    """Environments for an iteration of `low` to `high` samples; longer rows where whole episodes are too few."""
    samples, n = used(config, facts), config.num_envs
    of_a_row = samples.iteration / n
    if samples.iteration >= low:
        return Suggestion("num_envs", n, max(1, int(min(high / of_a_row, n))))
    if config.complete_episodes and samples.are_known:
        return longer_rows(config, facts, math.ceil(low))
    return Suggestion("num_envs", n, math.ceil(low / of_a_row))


def of_minibatch(config: Config, facts: Facts, low: float = 1, high: float = math.inf) -> Suggestion:
    """Minibatches of `low` to `high` samples; where only one can be, or none has as many, an iteration of that size."""
    samples = used(config, facts)
    if config.objective == "policy-gradient" or samples.iteration < low:
        return of_rollout(config, facts, low, high)
    return recut(config, samples.iteration / high, samples.iteration / low)


def judged(samples: Samples, passed: bool, too_many: bool = False) -> bool | None:
    """What only bounds say: `up to` so many may be fewer, so that there is nothing to pass."""
    return passed if samples.are_known or not (passed or too_many) else None


def minibatch_size(config: Config, facts: Facts) -> Said:
    samples, (low, high) = used(config, facts), MINIBATCH_SIZES
    text = f"{samples.per_minibatch} samples per minibatch, {low} to {high} to start with."
    size = samples.optimization
    return judged(samples, low <= size <= high, size > high), text, of_minibatch(config, facts, low, high)


def minibatch_for_actions(config: Config, facts: Facts) -> Said:
    samples = used(config, facts)
    if facts.action_dim is None:
        most = samples.optimization // SAMPLES_PER_ACTION
        said = f"{samples.per_minibatch} samples do for up to {most}"
        return None, f"minibatch >= {SAMPLES_PER_ACTION} x action dimension: {said}."
    least = SAMPLES_PER_ACTION * facts.action_dim
    product = f"{SAMPLES_PER_ACTION} x {facts.action_dim} actions = {least}"
    text = f"{samples.per_minibatch} samples per minibatch, at least {product} asked for."
    return judged(samples, samples.optimization >= least), text, of_minibatch(config, facts, least)


def envs_per_minibatch(config: Config, size: int) -> float:
    """Environments that a minibatch of `size` has samples of, expected: N (1 - (1 - 1/N)^B) when shuffled."""
    if config.minibatch_scheme == "envs":
        return max(1.0, config.num_envs / config.num_minibatches)
    return config.num_envs * (1 - (1 - 1 / config.num_envs) ** size)


def mixed_minibatch(config: Config, facts: Facts) -> Said:
    n, samples = config.num_envs, used(config, facts)
    mixed = envs_per_minibatch(config, samples.optimization)
    text = f"environments with samples in a minibatch: about {rounded(mixed)}, several asked for."
    shuffle = Suggestion("minibatch_scheme", config.minibatch_scheme, "shuffle")
    change = shuffle if n > 1 and config.minibatch_scheme == "envs" else Suggestion("num_envs", n, FEWEST_ENVS)
    return mixed >= 2, text, change


def reinforce_batch(config: Config, facts: Facts) -> Said:
    """Of whole episodes those samples count that are surely used: many more are collected."""
    samples, wanted = used(config, facts), f"REINFORCE wants at least {REINFORCE_SAMPLES:,}"
    text = f"{samples.per_minibatch} samples per update; {wanted}."
    if config.algo != "reinforce":
        return None, f"{text} Not for {config.algo}."
    needed, enough = REINFORCE_SAMPLES * config.num_minibatches, samples.optimization >= REINFORCE_SAMPLES
    if config.complete_episodes:
        text = f"{config.geometry.optimization_batch:,} samples collected per update, {samples.per_minibatch} used: "
        text += f"whole episodes; {wanted}."
        if samples.are_known:
            return enough, text, longer_rows(config, facts, needed)
    more = Suggestion("num_envs", config.num_envs, math.ceil(needed / config.num_steps))
    return judged(samples, enough), text, more


def reinforce_baseline(config: Config, facts: Facts) -> Said:
    text = f"REINFORCE wants reward-to-go (always on) and a baseline (here {'on' if config.baseline else 'off'})."
    if config.algo != "reinforce":
        return None, f"{text} Not for {config.algo}."
    return config.baseline, text, Suggestion("baseline", False, True)


def continuous_control(config: Config, facts: Facts) -> Said:
    samples, (low, high) = used(config, facts), CONTINUOUS_SAMPLES
    text = f"{samples.per_iteration} samples per update; continuous control has {low:,} to {high:,}."
    if facts.continuous is not True:
        why = "Not for discrete actions." if facts.continuous is False else "Kind of actions not known."
        return None, f"{text} {why}"
    size = samples.iteration
    return judged(samples, low <= size <= high, size > high), text, of_rollout(config, facts, low, high)


def critical_batch(config: Config, facts: Facts) -> Said:
    """Samples needed grow as 1 + B/B_crit (McCandlish et al. 2018)."""
    samples, limit = used(config, facts), facts.critical_batch
    if limit is None:
        return None, "the critical batch size was not given; it would outrank the folklore."
    size = samples.optimization
    cost = f"{samples.bound}{1 + size / limit:.2f} times the samples needed"
    text = f"optimization batch {samples.per_minibatch}, critical batch {rounded(limit, 4)}: {cost}."
    few = size <= limit / 2
    return few if few or samples.are_known else None, text, of_minibatch(config, facts, high=limit / 2)


def one_epoch(config: Config, facts: Facts) -> Said:
    epochs = config.update_epochs
    text = f"update_epochs {epochs}: start with one policy epoch, the easiest way to stay stable."
    return epochs == 1, text, Suggestion("update_epochs", epochs, 1)


def learning_rate_first(config: Config, facts: Facts) -> Said:
    now = f"{config.hypers.learning_rate:g}"
    return None, f"tune the learning rate (now {now}) before anything else, then rescale it with the batch by formula."


def evaluate_late(config: Config, facts: Facts) -> Said:
    return None, "no evaluation before the training return has reached a threshold (--eval-interval, --eval-threshold)."


def reproducible(config: Config, facts: Facts) -> Said:
    return None, "two runs in a row must give identical curves: `isobatch verify` with the same flags checks every bit."


CHECKS: dict[str, tuple[Callable[[Config, Facts], Said], str]] = {  # by name, with the source
    "rollout-size": (rollout_size, GUIDE),
    "rollout-memory": (rollout_memory, f"{GUIDE}; half of the free memory is {OURS}"),
    "useful-envs": (useful_envs, f"{GUIDE}; {ENOUGH_SPEED:.0%} of the speed is {OURS}"),
    "enough-envs": (enough_envs, OURS),
    "envs-for-throughput": (envs_for_throughput, OURS),
    "per-device": (per_device, OURS),
    "credit-horizon": (credit_horizon, f"{GUIDE}; the horizon is {OURS}"),
    "rollout-length": (rollout_length, OURS),
    "update-often": (update_often, f"{GUIDE}; the number is {OURS}"),
    "minibatch-count": (minibatch_count, GUIDE),
    "minibatches-per-epoch": (minibatches_per_epoch, GUIDE),
    "minibatch-size": (minibatch_size, GUIDE),
    "minibatch-for-actions": (minibatch_for_actions, GUIDE),
    "mixed-minibatch": (mixed_minibatch, GUIDE),
    "reinforce-batch": (reinforce_batch, GUIDE),
    "reinforce-baseline": (reinforce_baseline, GUIDE),
    "continuous-control-batch": (continuous_control, GUIDE),
    "critical-batch": (critical_batch, MEASURED),
    "one-epoch": (one_epoch, PAPER),
    "learning-rate-first": (learning_rate_first, PAPER),
    "evaluate-late": (evaluate_late, GUIDE),
    "reproducible": (reproducible, GUIDE),
}

# Rules of thumb that are ours, and the guide's own on the same lever, which win where they pass.
# Not `per-device`: what cannot be shared equally is refused, whatever anybody recommends.
OURS_AND_THE_GUIDES: dict[str, tuple[str, str]] = {
    "enough-envs": ("mixed-minibatch", f"a minibatch has several environments; at least {FEWEST_ENVS} is {OURS}"),
    "envs-for-throughput": ("useful-envs", "steps per second were measured, the two times only stand for them"),
    "rollout-length": (
        "credit-horizon",
        "the horizon comes from this run's gamma and lambda, the least length knows neither",
    ),
}


def conflicts(samples: Samples, findings: list[Finding]) -> list[Conflict]:
    """Checks that contradict each other, and which one to follow; `samples` are those of the config."""
    status = {f.name: f.status for f in findings}
    disputes: list[Conflict] = []
    if status["critical-batch"] == "warn" and status["minibatch-count"] == "pass":
        disputes.append(Conflict("critical-batch", "minibatch-count", "a measurement outranks a rule of thumb"))
    elif status["minibatch-size"] == "warn" and status["critical-batch"] == "pass":
        disputes.append(Conflict("critical-batch", "minibatch-size", "a measurement outranks a rule of thumb"))
    elif status["minibatch-size"] == "warn" and status["reinforce-batch"] != "note":
        disputes.append(Conflict("reinforce-batch", "minibatch-size", "whole returns are too noisy for a small batch"))
    elif status["minibatch-size"] == "warn" and status["minibatch-count"] == "pass":
        low, high = MINIBATCH_COUNTS[0] * MINIBATCH_SIZES[0], MINIBATCH_COUNTS[1] * MINIBATCH_SIZES[1]
        if not low <= samples.iteration <= high:
            why = (
                f"no size meets both with {samples.per_iteration} samples; what bounds a minibatch is the critical "
                "batch (section 3.1), not 256"
            )
            disputes.append(Conflict("minibatch-count", "minibatch-size", why))
    for ours, (guides, why) in OURS_AND_THE_GUIDES.items():
        if status[ours] == "warn" and status[guides] == "pass":
            disputes.append(Conflict(guides, ours, why))
    return disputes


def check(config: Config, facts: Facts) -> tuple[list[Finding], list[Conflict]]:
    """Every rule of thumb, and the contradictions among them."""
    findings = [made(name, source, *rule(config, facts)) for name, (rule, source) in CHECKS.items()]
    return findings, conflicts(used(config, facts), findings)
