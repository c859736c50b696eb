"""Speed of isobatch beside Stable-Baselines3 and Rejax: same network, same batches, same work, one run.

    python benchmarks/bench.py --peers-python .venv-peers/bin/python

Every side runs in a process of its own, one after the other, and the whole round is repeated, in alternating order, so
that a slow spell of the machine hits all of them. Medians are compared. A peer that can choose its number of threads is
measured with each choice, and its fastest one counts. Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
OURS, SB3, REJAX = HERE / "ours.py", HERE / "peers" / "sb3_ppo.py", HERE / "peers" / "rejax_ppo.py"
PEER_PACKAGES = ("stable-baselines3", "gymnasium", "torch", "rejax", "gymnax", "flax", "jax")
OUR_PACKAGES = ("isobatch", "jax", "jaxlib", "equinox", "optax", "gymnax")
SEEDS = 8
EPOCHS = 4
EWMA_COST = {"ppo": 0.12, "ppg": 0.03}  # algorithm -> the time that its -ewma variant may take beyond it
TIMEOUT = 600  # seconds a side may take

# CartPole-v1: 4 numbers seen, 2 actions; weights of the matrices of policy and value network.
POLICY_WEIGHTS = 4 * 64 + 64 * 64 + 64 * 2
VALUE_WEIGHTS = 4 * 64 + 64 * 64 + 64 * 1
FLOPS_FORMULA = (
    "FLOP per environment step = 2 (P + V) for acting and valuing, plus E x 6 (P + V) for E epochs of forward (2) "
    f"and backward (4) passes; P = {POLICY_WEIGHTS} and V = {VALUE_WEIGHTS} weights of the two networks, E = {EPOCHS}"
)
FLOPS_PER_STEP = (2 + 6 * EPOCHS) * (POLICY_WEIGHTS + VALUE_WEIGHTS)

Sample = dict[str, Any]


def main() -> int:
    args = parse_arguments()
    if not args.peers_python.exists():
        print(f"peers_python={str(args.peers_python)!r} does not exist: run `make peers` first.", file=sys.stderr)
        return 2
    scale = 0.1 if args.quick else 1.0
    rounds, pairs = (1, 1) if args.quick else (args.rounds, args.pairs)
    ours, peers = sys.executable, str(args.peers_python)
    sides = {
        "isobatch": [ours, OURS, "--steps", int(600_000 * scale)],
        "sb3, 1 thread": [peers, SB3, "--steps", int(40_960 * scale), "--threads", 1],
        "sb3, all threads": [peers, SB3, "--steps", int(40_960 * scale), "--threads", cores()],
        "rejax": [peers, REJAX, "--steps", int(400_000 * scale)],
        "rejax, 1 thread": [peers, REJAX, "--steps", int(400_000 * scale), "--threads", 1],
        "isobatch, 8 seeds": [ours, OURS, "--steps", int(200_000 * scale), "--seeds", SEEDS],
        "rejax, 8 seeds": [peers, REJAX, "--steps", int(100_000 * scale), "--seeds", SEEDS],
        "rejax, 8 seeds, 1 thread": [peers, REJAX, "--steps", int(100_000 * scale), "--seeds", SEEDS, "--threads", 1],
    }
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"warning: the machine is busy (load {load:.1f}); ratios will be noisy.")
    samples: dict[str, list[Sample]] = {name: [] for name in sides}
    peaks = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        peaks.append(run([ours, HERE / "matmul_peak.py"])["gflops"])
        for name in sorted(sides, reverse=number % 2 == 1):
            samples[name].append(measure(name, sides[name]))
    for plain in EWMA_COST:
        algos = (plain, f"{plain}-ewma")
        samples |= {f"isobatch {algo}": [] for algo in algos}
        for number in range(pairs):
            say(f"pair {number + 1} of {pairs}")
            for algo in algos if number % 2 == 0 else algos[::-1]:
                command = [ours, OURS, "--steps", int(400_000 * scale), "--algo", algo]
                samples[f"isobatch {algo}"].append(measure(f"isobatch {algo}", command))

    peak = max(peaks)
    results = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(load),
        "versions": {"ours": versions(ours, OUR_PACKAGES), "peers": versions(peers, PEER_PACKAGES)},
        "rounds": rounds,
        "pairs": pairs,
        "sides": {name: summary(taken) for name, taken in samples.items()},
        "targets": compare(samples),
        "peak": {
            "matmul_gflops": peak,
            "formula": FLOPS_FORMULA,
            "flop_per_step": FLOPS_PER_STEP,
            "share_single": speed(samples["isobatch"]) * FLOPS_PER_STEP / 1e9 / peak,
            "share_8_seeds": speed(samples["isobatch, 8 seeds"]) * FLOPS_PER_STEP / 1e9 / peak,
        },
    }
    text = report(results)
    print(text)
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "benchmark.json").write_text(json.dumps(results | {"samples": samples}, indent=1) + "\n")
        (RESULTS / "benchmark.md").write_text(text + "\n")
        say("written to benchmarks/results/benchmark.json and benchmark.md")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", type=Path, default=HERE.parent / ".venv-peers" / "bin" / "python")
    parser.add_argument("--rounds", type=int, default=3, help="how often every side is measured")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of an algorithm with and without EWMA")
    parser.add_argument("--quick", action="store_true", help="one short round to see that it works; writes nothing")
    return parser.parse_args()


def measure(name: str, command: list[Any]) -> Sample:
    sample = run(command)
    say(f"  {name:26s} {sample['steps_per_second']:>10,.0f} steps/s   compiled in {sample['compile_seconds']:.1f} s")
    return sample


def run(command: list[Any]) -> Sample:
    """The one JSON object that a side prints."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        sys.exit(f"{Path(command[1]).name} failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def speed(taken: list[Sample]) -> float:
    return statistics.median(sample["steps_per_second"] for sample in taken)


def summary(taken: list[Sample]) -> dict[str, float]:
    speeds = [sample["steps_per_second"] for sample in taken]
    return {
        "steps_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
        "compile_seconds": statistics.median(sample["compile_seconds"] for sample in taken),
        "seeds": taken[0]["seeds"],
        "steps_per_seed": taken[0]["steps"],
    }


def compare(samples: dict[str, list[Sample]]) -> list[dict[str, Any]]:
    """The ratios that were promised, with the peer's fastest variant of each."""

    def fastest(*names: str) -> str:
        return max(names, key=lambda name: speed(samples[name]))

    sb3 = fastest("sb3, 1 thread", "sb3, all threads")
    rejax = fastest("rejax", "rejax, 1 thread")
    rejax8 = fastest("rejax, 8 seeds", "rejax, 8 seeds, 1 thread")
    rows = [
        ratio("single run", samples, "isobatch", sb3, 15.0),
        ratio("single run", samples, "isobatch", rejax, 1.2),
        ratio("8 seeds, all of them", samples, "isobatch, 8 seeds", rejax8, 2.0),
    ]
    return [*rows, *(ewma_cost(samples, plain, target) for plain, target in EWMA_COST.items())]


def ewma_cost(samples: dict[str, list[Sample]], plain: str, target: float) -> dict[str, Any]:
    """How much longer the averaged variant of an algorithm takes, pair by pair."""
    pairs = zip(samples[f"isobatch {plain}"], samples[f"isobatch {plain}-ewma"], strict=True)
    slower = [ewma["seconds"] / ewma["steps"] / (one["seconds"] / one["steps"]) - 1 for one, ewma in pairs]
    cost = statistics.median(slower)
    return {
        "what": f"{plain}-ewma, time beyond {plain}",
        "against": f"isobatch {plain}",
        "value": cost,
        "spread": [min(slower), max(slower)],
        "target": target,
        "met": cost <= target,
    }


def ratio(what: str, samples: dict[str, list[Sample]], ours: str, peer: str, target: float) -> dict[str, Any]:
    value = speed(samples[ours]) / speed(samples[peer])
    by_round = [
        a["steps_per_second"] / b["steps_per_second"] for a, b in zip(samples[ours], samples[peer], strict=True)
    ]
    return {
        "what": what,
        "against": peer,
        "value": value,
        "spread": [min(by_round), max(by_round)],
        "target": target,
        "met": value >= target,
    }


def report(results: dict[str, Any]) -> str:
    computer, peak = results["machine"], results["peak"]
    lines = [
        "# Speed",
        "",
        "CartPole-v1, 8 environments x 128 steps, 4 minibatches, 4 epochs, two separate 64x64 tanh networks, Adam. "
        f"{results['date']}, {computer['cpu']}, {computer['cores']} cores, load {computer['load_at_start']:.1f} at the "
        f"start. Medians of {results['rounds']} rounds and {results['pairs']} pairs with and without EWMA; in brackets "
        "the lowest and the highest.",
        "",
        "| what | against | measured | target | |",
        "|---|---|---|---|---|",
    ]
    for row in results["targets"]:
        low, high = row["spread"]
        if "-ewma" in row["what"]:
            value, target = f"{row['value']:+.1%} ({low:+.1%} to {high:+.1%})", f"at most {row['target']:+.0%}"
        else:
            value, target = f"{row['value']:.2f} x ({low:.2f} to {high:.2f})", f"at least {row['target']:g} x"
        lines.append(
            f"| {row['what']} | {row['against']} | {value} | {target} | {'met' if row['met'] else 'not met'} |"
        )
    lines += ["", "| side | seeds | steps per second, all seeds | compile, s |", "|---|---|---|---|"]
    for name, side in results["sides"].items():
        speeds = f"{side['steps_per_second']:,.0f} ({side['slowest']:,.0f} to {side['fastest']:,.0f})"
        lines.append(f"| {name} | {side['seeds']} | {speeds} | {side['compile_seconds']:.1f} |")
    lines += [
        "",
        f"Matrix-product peak, float32, all cores: {peak['matmul_gflops']:.0f} GFLOP/s. Share reached while training: "
        f"{peak['share_single']:.0%} by one run, {peak['share_8_seeds']:.0%} by 8 seeds. {peak['formula']}: "
        f"{peak['flop_per_step']:,} in all.",
        "",
        "Stable-Baselines3 compiles nothing: its column holds the first iteration. Versions: "
        + "; ".join(
            f"{whose}: " + ", ".join(f"{name} {version}" for name, version in found.items())
            for whose, found in results["versions"].items()
        )
        + ".",
    ]
    return "\n".join(lines)


def machine(load: float) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    models = (
        [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "load_at_start": load,
    }


def cores() -> int:
    return len(os.sched_getaffinity(0))


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Installed versions, as another Python sees them."""
    if python == sys.executable:
        return {name: importlib.metadata.version(name) for name in packages}
    code = "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    return run([python, "-c", code, *packages])


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
