"""Actors that collect while the learner learns: what do they bring, what do they cost, and what do kills do to them?

    python benchmarks/asynchrony.py speed      against collecting and learning by turns, in turns
    python benchmarks/asynchrony.py bound      what two cores allow: the parts of an iteration, each alone
    python benchmarks/asynchrony.py returns    is as much learned in as many steps?
    python benchmarks/asynchrony.py wall-clock seconds to a score at several lags, and a picture: which one is best?
    python benchmarks/asynchrony.py kills      SIGKILL of actors and of whole runs: the bound, and the bits of a resume
    python benchmarks/asynchrony.py endurance  10 million steps: memory, files and threads of all processes

Each writes its table into benchmarks/results/asynchrony-NAME.md; Gymnasium's LunarLander needs the extra `box2d`. For
speed and wall-clock the machine should do nothing else. Which settings `returns` and `wall-clock` compare comes from
benchmarks/lag_search.py; how actors compare with Stable-Baselines3 is measured by `benchmarks/bench.py --only actors`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "asynchrony-wall-clock.png"
CARTPOLE = "--env envpool/CartPole-v1 --num-envs 64 --num-steps 128 --num-minibatches 4"
LUNAR = "--env gymnasium/LunarLander-v3 --num-envs 64 --num-steps 32 --num-minibatches 16 --learning-rate 3e-4"
SPEED = {  # name -> settings, steps of a run, actors
    "EnvPool CartPole, 64 x 128": (CARTPOLE, 3_000_000, "1"),
    "Gymnasium LunarLander, 64 x 32": (LUNAR, 327_680, "4"),
}
# What is learned also from smaller iterations, with the learning rate that the rules give for them.
SMALLER = "--env envpool/CartPole-v1 --num-envs 64 --num-steps 32 --num-minibatches 4 --learning-rate 1.25e-3"
RUNS = SPEED | {"EnvPool CartPole, 64 x 32": (SMALLER, 0, "1")}
LEARNED = 300_000  # steps of each seed, in `returns`
BY_TURNS = "by turns"
LAGS = {BY_TURNS: "", "1 iteration": "--max-lag 1i", "2 iterations": "--max-lag 2i", "4 iterations": "--max-lag 4i"}
KINDS = {name: LAGS[name] for name in (BY_TURNS, "1 iteration", "2 iterations")}
OBJECTIVES = {  # the average is the one that `lag_search.py` found to lose least
    "PPO": "",
    "decoupled": "--stale-objective decoupled",
    "averaged": f"--proximal-policy ewma --beta-prox {64 / 65:.5f}",
}
SAME_BY_TURNS = {"decoupled": "PPO"}  # on fresh data one is the other
SCORES = {  # name -> return to reach, steps of a run
    "EnvPool CartPole, 64 x 128": (200.0, 300_000),
    "Gymnasium LunarLander, 64 x 32": (-50.0, 120_000),
}
WINDOW = 20_480  # environment steps over which a return is averaged before it counts as reached
WARM_UP = 0.25  # of the steps of a run, before which its speed is not counted


def command(words: str, run: Path) -> list[str]:
    where = [] if "--resume" in words else ["--run-dir", str(run)]
    return [sys.executable, "-m", "isobatch", "train", *words.split(), "--quiet", "--json", *where]


def started(words: str, run: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(words, run), stdout=subprocess.DEVNULL, stderr=run.with_suffix(".err").open("a"))


def finished(words: str, run: Path) -> dict:
    done = subprocess.run(command(words, run), capture_output=True, timeout=3600)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr.decode()}")
    return json.loads(done.stdout)


def steady_speed(run: Path) -> float:
    """Steps per second after the beginning, in which processes start."""
    rows = [[float(cell) for cell in row[:2]] for row in list(csv.reader((run / "timing.csv").open()))[1:]]
    first = next(row for row in rows if row[0] >= WARM_UP * rows[-1][0])
    return (rows[-1][0] - first[0]) / (rows[-1][1] - first[1])


def lags(run: Path) -> tuple[float, int]:
    """Mean and largest age of rollouts when they were used, in updates."""
    rows = [[int(cell) for cell in row] for row in list(csv.reader((run / "schedule.csv").open()))[1:]]
    ages = [row[0] - row[3] for row in rows]
    return statistics.mean(ages), max(ages)


def speed(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """By turns, so that all meet the same machine."""
    yield "| run | max_lag | steps/s | times the run by turns (rounds) | mean lag, largest, in iterations |"
    yield "|---|---|---|---|---|"
    for name, (words, steps, actors) in SPEED.items():
        speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        ages = {}
        for turn in range(args.rounds):
            for kind, flags in KINDS.items():
                run = scratch / f"{len(name)}-{kind}-{turn}"
                lag = f"--actors {actors} {flags}" if flags else ""
                finished(f"{words} --total-timesteps {steps} {lag}", run)
                speeds[kind].append(steady_speed(run))
                ages[kind] = "{:.2f}, {}".format(*lags(run)) if flags else ""
        for kind, found in speeds.items():
            ratios = [ours / base for ours, base in zip(found, speeds[BY_TURNS], strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            shown = spread if ages[kind] else ""
            yield f"| {name} | {kind} | {statistics.median(found):,.0f} | {shown} | {ages[kind]} |"


def arms(kinds: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Objective, lag and flags; objectives that differ on old data only have one run by turns."""
    for objective, flags in OBJECTIVES.items():
        for kind, lag in kinds.items():
            if lag or objective not in SAME_BY_TURNS:
                yield objective, kind, f"{flags} {lag}"


def returns(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Means over the run, since old data may delay what is learned."""
    from isobatch.formatting import with_interval
    from isobatch.statistics.aggregates import contrast

    mean = f"mean return over the run of {args.seeds} seeds, 95 % interval"
    yield f"| run | objective | max_lag | {mean} | minus by turns | KL | lag |"
    yield "|---|---|---|---|---|---|---|"
    for number, (name, (words, _, actors)) in enumerate(RUNS.items()):
        by_turns = {}
        for objective, kind, flags in arms({kind: LAGS[kind] for kind in (BY_TURNS, "2 iterations")}):
            run = scratch / f"{number}-{objective}-{kind}"
            lag = f"--actors {actors}" if "--max-lag" in flags else ""
            finished(f"{words} --total-timesteps {LEARNED} --num-seeds {args.seeds} {lag} {flags}", run)
            scores = learned(run)
            by_turns.setdefault(objective, by_turns.get(SAME_BY_TURNS.get(objective, ""), scores))
            against = with_interval(contrast([(1, scores), (-1, by_turns[objective])])[0]) if lag else ""
            mean = with_interval(contrast([(1, scores)])[0])
            age = f"{lags(run)[0]:.2f}" if lag else "0"
            yield f"| {name} | {objective} | {kind} | {mean} | {against} | {mean_kl(run):.2g} | {age} |"
    yield ""
    yield (
        f"{LEARNED:,} steps of each seed; KL from the policy that collected, mean over the run; lag in iterations, "
        "mean over the rollouts that were used."
    )


def learned(run: Path) -> np.ndarray:
    """The mean return over the run, of each seed."""
    from isobatch.training.metrics import RETURN, read_metrics

    table = read_metrics(run)
    return np.array([np.nanmean(table[RETURN][table["seed"] == seed]) for seed in np.unique(table["seed"])])


def mean_kl(run: Path) -> float:
    from isobatch.training.metrics import read_metrics

    return float(np.nanmean(read_metrics(run)["losses/approx_kl"]))


class Course(NamedTuple):
    """How one seed's return went."""

    seconds: np.ndarray  # since the first line of the run: what started before is not counted
    steps: np.ndarray
    returns: np.ndarray  # of the episodes of the last `WINDOW` steps

    def reached(self, score: float) -> tuple[float, float]:
        """Seconds and steps until the score; infinite if it was not reached."""
        there = np.flatnonzero(self.returns >= score)
        return (float(self.seconds[there[0]]), float(self.steps[there[0]])) if len(there) else (np.inf, np.inf)


def courses(run: Path) -> list[Course]:
    """Of each seed."""
    from isobatch.training.metrics import EPISODES, RETURN, read_metrics

    table = read_metrics(run)
    clock = np.array([[float(cell) for cell in row[:2]] for row in list(csv.reader((run / "timing.csv").open()))[1:]])
    found = []
    for seed in np.unique(table["seed"]):
        steps, episodes, mean = (table[name][table["seed"] == seed] for name in ("env_steps", EPISODES, RETURN))
        kernel = np.ones(max(1, int(WINDOW // steps[0])))
        total, count = (
            np.convolve(part, kernel)[: len(steps)] for part in (np.where(episodes > 0, mean, 0) * episodes, episodes)
        )
        known = np.flatnonzero(count > 0)  # where no episode ended, the last ones still count
        latest = known[np.maximum(np.searchsorted(known, np.arange(len(steps)), side="right") - 1, 0)]
        returns = total[latest] / count[latest]
        found.append(Course(np.interp(steps, clock[:, 0], clock[:, 1]) - clock[0, 1], steps, returns))
    return found


def wall_clock(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Several seeds at once, which share a clock."""
    from isobatch.drawing import COLORS, new_panels, save_figure

    median = f"seconds to it, median of {args.seeds} seeds (range)"
    yield f"| run | return | objective | max_lag | {median} | steps | reached |"
    yield "|---|---|---|---|---|---|---|"
    figure, panels = new_panels(len(SPEED), len(OBJECTIVES), (11, 3.2 * len(SPEED)))
    rows = np.reshape(np.asarray(panels), (len(SPEED), len(OBJECTIVES)))
    best = []
    for (name, (words, _, actors)), row in zip(SPEED.items(), rows, strict=True):
        score, steps = SCORES[name]
        medians: dict[str, float] = {}
        curves: dict[tuple[str, str], list[Course]] = {}
        for objective, kind, flags in arms(LAGS):
            run = scratch / f"{len(name)}-{objective}-{kind}-clock"
            lag = f"--actors {actors}" if "--max-lag" in flags else ""
            finished(f"{words} --total-timesteps {steps} --num-seeds {args.seeds} --log-interval 1 {lag} {flags}", run)
            seeds = curves[objective, kind] = courses(run)
            seconds, needed = np.array([course.reached(score) for course in seeds]).T
            medians[f"{objective}, {kind}"] = float(np.median(seconds))
            spread = f"{shown(np.median(seconds))} ({shown(min(seconds))} to {shown(max(seconds))})"
            there = f"{np.isfinite(seconds).sum()} of {len(seconds)}"
            yield f"| {name} | {score:g} | {objective} | {kind} | {spread} | {shown(np.median(needed))} | {there} |"
        for objective, axes in zip(OBJECTIVES, row, strict=True):
            for kind, color in zip(LAGS, COLORS, strict=False):
                fresh = SAME_BY_TURNS.get(objective, objective) if kind == BY_TURNS else objective
                seeds = curves[fresh, kind]
                mean = np.mean([course.returns for course in seeds], axis=0)
                axes.plot(seeds[0].seconds, mean, color=color, label=kind)
            axes.axhline(score, color="#888888", linewidth=0.8)
            axes.set(title=f"{name}\n{objective}", xlabel=f"seconds of training, {args.seeds} seeds at once")
        row[0].set_ylabel("return")
        row[0].legend(title="lag of up to", fontsize=8, frameon=False)
        low, high = (f(axes.get_ylim()[end] for axes in row) for end, f in enumerate((min, max)))
        for axes in row:
            axes.set_ylim(low, high)
        first = min(medians, key=lambda arm: medians[arm])
        base = medians[f"PPO, {BY_TURNS}"]
        gain = "" if first.endswith(BY_TURNS) else f", in {medians[first] / base:.0%} of the time of PPO by turns"
        best.append(f"{name}: soonest {first}{gain}")
    save_figure(figure, PICTURE)
    yield ""
    yield f"{'; '.join(best)}."


def shown(number: float) -> str:
    return "never" if np.isinf(number) else f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


WALK = "--env gymnasium/CartPole-v1 --num-envs 8 --num-steps 32 --total-timesteps 81920 --num-minibatches 2"
LONG = WALK.replace("81920", "655360")
ACTORS = "--actors 2 --max-lag 2i"
KEPT = "--checkpoint-interval 20 --log-interval 5"


def kills(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Of an actor, in runs with a free schedule; of the whole run, with a fixed schedule and with a replayed one."""
    luck = random.Random(args.seed)
    clock = time.monotonic()
    finished(f"{WALK} {ACTORS} --schedule fixed {KEPT}", scratch / "fixed")
    seconds = time.monotonic() - clock
    done = runs = worst = again = 0
    while done < args.kills:
        run = scratch / f"free{runs}"
        process = started(f"{LONG} {ACTORS} {KEPT}", run)
        while process.poll() is None and done < args.kills:
            time.sleep(luck.uniform(4, 7))  # a new one takes seconds to begin
            victims = actors_of(process.pid)
            if victims and process.poll() is None:
                os.kill(luck.choice(victims), signal.SIGKILL)
                done += 1
        if process.wait():
            raise SystemExit(f"{run} ended with code {process.returncode}: {run.with_suffix('.err').read_text()}")
        finished(f"--replay {run} {KEPT}", scratch / f"replayed{runs}")
        worst, runs = max(worst, lags(run)[1]), runs + 1
        again += is_same(run, scratch / f"replayed{runs - 1}")
        print(f"{done} actors killed", file=sys.stderr, flush=True)
    yield f"{done} kills of an actor in {runs} runs with a free schedule: all ended, no rollout was more than {worst} "
    yield f"updates old (max_lag 2 iterations), and {again} of {runs} were had again to the bit by --replay."
    yield ""
    for name, base, words in (
        ("a fixed schedule", scratch / "fixed", f"{WALK} {ACTORS} --schedule fixed"),
        ("a replayed one", scratch / "free0", f"--replay {scratch / 'free0'}"),
    ):
        done = runs = same = 0
        while done < args.kills // 2:
            run = scratch / f"whole{name[2]}{runs}"
            while done < args.kills // 2:
                goes_on = f"--resume {run}" if (run / "config.yaml").exists() else words
                process = started(f"{goes_on} {KEPT}", run)
                time.sleep(luck.uniform(0.3, 0.9) * seconds)
                if process.poll() is not None:
                    break
                process.kill()
                process.wait()
                done += 1
            goes_on = f"--resume {run}" if (run / "config.yaml").exists() else words
            finished(f"{goes_on} {KEPT}", run)
            same, runs = same + is_same(run, base), runs + 1
            print(f"{done} runs with {name} killed, {same} of {runs} identical", file=sys.stderr, flush=True)
        yield f"{done} kills of the whole run with {name}: {same} of {runs} identical to the one that was left alone."
        yield ""


def is_same(one: Path, other: Path) -> bool:
    from isobatch.training.verification import first_difference

    schedules = [(run / "schedule.csv").read_bytes() for run in (one, other)]
    return schedules[0] == schedules[1] and first_difference(one, other) is None


def actors_of(pid: int) -> list[int]:
    """The processes of the actors of a run."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            if b"actors.processes" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def endurance(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Looked at every few seconds; the beginning, in which everything is made, is left out."""
    words = f"{CARTPOLE} --total-timesteps {args.steps} --actors 2 --max-lag 2i"
    process = started(words, scratch / "run")
    seen = []
    while process.poll() is None:
        time.sleep(3)
        try:
            seen.append([sum(parts) for parts in zip(*map(held, [process.pid, *actors_of(process.pid)]), strict=True)])
        except (OSError, KeyError):  # one has just ended
            continue
    if process.wait():
        raise SystemExit(f"ended with code {process.returncode}")
    half = seen[len(seen) // 5 : -1]
    yield f"{args.steps:,} steps, {len(half)} looks at the learner and two actors together:"
    yield ""
    yield "| | first tenth of the looks | last tenth |"
    yield "|---|---|---|"
    tenth = max(1, len(half) // 10)
    for index, name in enumerate(("memory, MB", "open files", "threads")):
        column = [row[index] for row in half]
        yield f"| {name} | {statistics.mean(column[:tenth]):,.0f} | {statistics.mean(column[-tenth:]):,.0f} |"


def held(pid: int) -> tuple[float, int, int]:
    """Memory in MB, open files and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(status["VmRSS"].split()[0]) / 1000, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def bound(scratch: Path, args: argparse.Namespace) -> Iterator[str]:
    """Of the CartPole run: a rollout and an update by themselves, in milliseconds of clock and of processors."""
    from isobatch.settings.presets import preset
    from isobatch.training.devices import use_cores

    sizes = dict(num_envs=64, num_steps=128, num_minibatches=4, actors=1, max_lag="1i", total_timesteps=8192 * 100)
    config = preset("ppo", "envpool/CartPole-v1", **sizes)
    use_cores(1, config)
    import jax
    import jax.numpy as jnp

    from isobatch.envs.registry import environment_of
    from isobatch.rollouts.actors.interface import LocalBackend, Place, PolicyVersion
    from isobatch.rollouts.env_groups import LocalEnvs
    from isobatch.training.actor_functions import RolloutFunctions, actor_functions_for
    from isobatch.training.async_program import standings_of
    from isobatch.training.host_functions import split
    from isobatch.training.programs import initial_states, stack_hypers

    env, states, hypers = environment_of(config), initial_states(config, [0]), stack_hypers([config.hypers])
    functions = actor_functions_for(config, env, states, hypers)
    before = standings_of(states, 1)[0]
    policy = (states.networks, states.obs_moments, hypers.obs_clip)
    backend = LocalBackend(functions.acting, Place(env, config, np.array([0]), LocalEnvs(64), 60.0))
    carry = backend.open(before.envs, 0, print)
    key, keys = functions.keys_of(before.key, 0)
    of_run, published = RolloutFunctions(functions, hypers), PolicyVersion(policy)

    def rollout() -> Any:
        content = of_run.digest(policy, before, key, *backend.collect(carry, 0, published, keys, 1))
        return jax.block_until_ready(content.segment)

    segment, _ = functions.join([rollout()], np.zeros(1, np.float32), None, None)
    update_keys = functions.update_keys(states.key)

    def update() -> None:
        jax.block_until_ready(functions.learn(*split(states.learning), segment, hypers, jnp.int32(0), update_keys))

    yield "| part | ms | ms of processors |"
    yield "|---|---|---|"
    spent = []
    for name, part in (("rollout of 64 x 128 steps", rollout), ("update from it", update)):
        part()
        clock, used = time.perf_counter(), time.process_time()
        for _ in range(50):
            part()
        spent.append((20 * (time.perf_counter() - clock), 20 * (time.process_time() - used)))
        yield f"| {name} | {spent[-1][0]:.1f} | {spent[-1][1]:.1f} |"
    turns, best = sum(wall for wall, _ in spent), max(spent[1][0], sum(used for _, used in spent) / 2)
    yield ""
    speeds = f"{8192 / turns:,.0f} thousand steps a second; at once on two cores at most {8192 / best:,.0f} thousand"
    yield f"By turns {speeds}, {turns / best:.2f} times as many."
    backend.close()


PARTS = {
    "speed": speed,
    "bound": bound,
    "returns": returns,
    "wall-clock": wall_clock,
    "kills": kills,
    "endurance": endurance,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        lines = []
        for line in PARTS[args.part](Path(scratch), args):
            print(line, flush=True)
            lines.append(line)
    RESULTS.mkdir(exist_ok=True)
    text = f"`python benchmarks/asynchrony.py {' '.join(sys.argv[1:])}`\n\n" + "\n".join(lines).rstrip() + "\n"
    (RESULTS / f"asynchrony-{args.part}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
