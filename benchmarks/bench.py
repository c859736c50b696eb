"""Speed of isobatch beside Stable-Baselines3, Rejax and PyTorch: same network, same batches, same work, one run.

    python benchmarks/bench.py --peers-python .venv-peers/bin/python [--only jax ewma hosts actors procgen]

Every side runs in a process of its own, one after the other, and the whole round is repeated, in alternating order, so
that a slow spell of the machine hits all of them. Medians are compared. A peer that can choose its number of threads or
its vectorization is measured with each choice, and its fastest one counts. Results go to benchmarks/results/, group by
group: those that are not measured again stay.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
OURS, PROCGEN, EWMA, PEAK, ALONE = (
    HERE / f"{name}.py" for name in ("ours", "procgen", "ewma_cost", "matmul_peak", "envpool_alone")
)
SB3, REJAX, TORCH = (HERE / "peers" / f"{name}.py" for name in ("sb3_ppo", "rejax_ppo", "torch_procgen"))
PEER_PACKAGES = ("stable-baselines3", "gymnasium", "torch", "rejax", "gymnax", "flax", "jax", "envpool")
OUR_PACKAGES = ("isobatch", "jax", "jaxlib", "equinox", "optax", "gymnax", "gymnasium", "envpool")
SEEDS = 8
EPOCHS = 4
TIMEOUT = 900  # seconds a side may take

# CartPole-v1: 4 numbers seen, 2 actions; weights of the matrices of policy and value network.
POLICY_WEIGHTS = 4 * 64 + 64 * 64 + 64 * 2
VALUE_WEIGHTS = 4 * 64 + 64 * 64 + 64 * 1
FLOPS_FORMULA = (
    "FLOP per environment step = 2 (P + V) for acting and valuing, plus E x 6 (P + V) for E epochs of forward (2) "
    f"and backward (4) passes; P = {POLICY_WEIGHTS} and V = {VALUE_WEIGHTS} weights of the two networks, E = {EPOCHS}"
)
FLOPS_PER_STEP = (2 + 6 * EPOCHS) * (POLICY_WEIGHTS + VALUE_WEIGHTS)

Sample = dict[str, Any]
Samples = dict[str, list[Sample]]
Sides = dict[str, list[Any]]


class Promise(NamedTuple):
    """So many times as fast as the fastest of these."""

    what: str
    ours: str
    peers: tuple[str, ...]
    target: float | None


class Group(NamedTuple):
    """What is measured side by side."""

    title: str
    work: str
    sides: Callable[[str, str, float], Sides]
    promises: tuple[Promise, ...]
    peers: bool = True  # whether other libraries take part


def jax_sides(ours: str, peers: str, scale: float) -> Sides:
    return {
        "isobatch": [ours, OURS, "--steps", int(600_000 * scale)],
        "sb3, 1 thread": [peers, SB3, "--steps", int(40_960 * scale), "--threads", 1],
        "sb3, all threads": [peers, SB3, "--steps", int(40_960 * scale), "--threads", cores()],
        "rejax": [peers, REJAX, "--steps", int(400_000 * scale)],
        "rejax, 1 thread": [peers, REJAX, "--steps", int(400_000 * scale), "--threads", 1],
        "isobatch, 8 seeds": [ours, OURS, "--steps", int(200_000 * scale), "--seeds", SEEDS],
        "rejax, 8 seeds": [peers, REJAX, "--steps", int(100_000 * scale), "--seeds", SEEDS],
        "rejax, 8 seeds, 1 thread": [peers, REJAX, "--steps", int(100_000 * scale), "--seeds", SEEDS, "--threads", 1],
    }


def host_sides(ours: str, peers: str, scale: float) -> Sides:
    """Batches of 64 environments in minibatches of three sizes; the smallest in more epochs, over fewer steps."""
    few, some, many = (int(steps * scale) for steps in (16_384, 65_536, 262_144))
    sides = {
        "isobatch, Gymnasium, 8": [ours, OURS, "--env", "gymnasium/CartPole-v1", "--steps", many // 2],
        **sb3_sides("sb3, 8", [peers, SB3, "--steps", some]),
    }
    for size, steps, work in (("2,048", some, []), ("256", some, ["--minibatches", 32]), ("64", few, SMALLEST)):
        batch = ["--num-envs", 64, *work]
        pools = [ours, OURS, "--env", "envpool/CartPole-v1", *batch]
        sides |= {f"isobatch, EnvPool, {size}": [*pools, "--steps", 2 * many]}
        sides |= sb3_sides(f"sb3, {size}", [peers, SB3, *batch, "--steps", steps])
    return sides | {
        "isobatch, inside JAX, 2,048": [ours, OURS, "--num-envs", 64, "--steps", 4 * many],
        "EnvPool alone": [ours, ALONE, "--steps", 2 * many],
    }


def actor_sides(ours: str, peers: str, scale: float) -> Sides:
    """Long enough that what actors have collected when the clock starts, at most two iterations, does not count."""
    some, many = (int(steps * scale) for steps in (131_072, 2_097_152))
    pools = [ours, OURS, "--env", "envpool/CartPole-v1", "--num-envs", 64, "--steps", many]
    return {
        "isobatch, by turns": pools,
        "isobatch, actor, lag 1": [*pools, "--actors", 1, "--max-lag", 1],
        "isobatch, actor, lag 2": [*pools, "--actors", 1, "--max-lag", 2],
        "isobatch, inside JAX": [ours, OURS, "--num-envs", 64, "--steps", many],
        "EnvPool alone": [ours, ALONE, "--steps", many],
        "sb3, 1 thread": [peers, SB3, "--num-envs", 64, "--steps", some, "--threads", 1],
        "sb3, all threads": [peers, SB3, "--num-envs", 64, "--steps", some, "--threads", cores()],
    }


def sb3_names(name: str) -> tuple[str, ...]:
    return tuple(f"{name}, {way}" for way in ("1 thread", "all threads", "processes"))


def sb3_sides(name: str, command: list[Any]) -> Sides:
    """With its environments in its own process, or in one each."""
    ways = (["--threads", 1], ["--threads", cores()], ["--vectorization", "subproc"])
    return {side: [*command, *way] for side, way in zip(sb3_names(name), ways, strict=True)}


def procgen_sides(ours: str, peers: str, scale: float) -> Sides:
    iterations = ["--iterations", max(1, int(3 * scale))]
    return {"isobatch": [ours, PROCGEN, *iterations], "pytorch": [peers, TORCH, *iterations]}


SB3_BY_TURNS = ("sb3, 1 thread", "sb3, all threads")
SMALLEST = ["--minibatches", 128, "--epochs", 10]
NETWORK = "4 minibatches, 4 epochs, two separate 64x64 tanh networks, Adam"
GROUPS = {
    "jax": Group(
        "Environments inside JAX",
        f"CartPole-v1, 8 environments x 128 steps, {NETWORK}.",
        jax_sides,
        (
            Promise("single run", "isobatch", ("sb3, 1 thread", "sb3, all threads"), 15.0),
            Promise("single run", "isobatch", ("rejax", "rejax, 1 thread"), 1.2),
            Promise("8 seeds, all of them", "isobatch, 8 seeds", ("rejax, 8 seeds", "rejax, 8 seeds, 1 thread"), 2.0),
        ),
    ),
    "ewma": Group(
        "What EWMA costs",
        "CartPole-v1, 8 environments x 128 steps, both variants in one process, chunk by chunk in turn. Medians of the "
        "ratios of neighboring chunks, in brackets their middle half.",
        lambda ours, peers, scale: {"ewma": [ours, EWMA, "--chunks", max(2, int(40 * scale))]},
        (),
        peers=False,
    ),
    "hosts": Group(
        "Environments outside JAX",
        f"CartPole-v1, 8 environments x 128 steps, {NETWORK}; or 64 environments x 128 steps in minibatches of 2,048 "
        "(4 of them), of 256 (32), or of 64 with 10 epochs, the defaults of Stable-Baselines3. The latter with its "
        "environments in its own process, or in one each. *Inside JAX*: the same run of gymnax's CartPole-v1, whose "
        "environments cost next to nothing. *EnvPool alone*: its `xla()` with random actions, no policy, no learning.",
        host_sides,
        (
            Promise("Gymnasium, 8 environments", "isobatch, Gymnasium, 8", sb3_names("sb3, 8"), 2.0),
            Promise("EnvPool, 64, minibatches of 2,048", "isobatch, EnvPool, 2,048", sb3_names("sb3, 2,048"), 8.0),
            Promise("inside JAX, minibatches of 2,048", "isobatch, inside JAX, 2,048", sb3_names("sb3, 2,048"), None),
            Promise("EnvPool alone, no learning", "EnvPool alone", sb3_names("sb3, 2,048"), None),
            Promise("EnvPool, 64, minibatches of 256", "isobatch, EnvPool, 256", sb3_names("sb3, 256"), None),
            Promise("EnvPool, 64, minibatches of 64", "isobatch, EnvPool, 64", sb3_names("sb3, 64"), None),
        ),
    ),
    "actors": Group(
        "Collecting while learning",
        f"EnvPool's CartPole-v1, 64 environments x 128 steps, {NETWORK}: by turns, and with one actor that collects "
        "while the learner learns. *Inside JAX* and *EnvPool alone* are the two halves of the work by themselves.",
        actor_sides,
        (
            Promise("by turns", "isobatch, by turns", SB3_BY_TURNS, None),
            Promise("actor, lag of 1 iteration", "isobatch, actor, lag 1", SB3_BY_TURNS, 5.5),
            Promise("actor, lag of 2 iterations", "isobatch, actor, lag 2", SB3_BY_TURNS, 5.5),
            Promise("actor, lag of 1 iteration", "isobatch, actor, lag 1", ("isobatch, by turns",), 1.5),
            Promise("actor, lag of 2 iterations", "isobatch, actor, lag 2", ("isobatch, by turns",), 1.5),
            Promise("inside JAX", "isobatch, inside JAX", SB3_BY_TURNS, None),
            Promise("EnvPool alone, no learning", "EnvPool alone", SB3_BY_TURNS, None),
        ),
    ),
    "procgen": Group(
        "Images",
        "Procgen's StarPilot (easy) of EnvPool, 64 environments x 64 steps, 8 minibatches, 1 epoch, the IMPALA network "
        "for policy and value, Adam; PyTorch in a minimal loop in the manner of CleanRL.",
        procgen_sides,
        (Promise("steps per second", "isobatch", ("pytorch",), None),),
    ),
}


def main() -> int:
    args = parse_arguments()
    ours, peers = sys.executable, str(args.peers_python)
    if not args.peers_python.exists() and any(GROUPS[name].peers for name in args.only):
        print(f"peers_python={peers!r} does not exist: run `make peers` first.", file=sys.stderr)
        return 2
    scale, rounds = (0.1, 1) if args.quick else (1.0, args.rounds)
    file = RESULTS / "benchmark.json"
    kept = json.loads(file.read_text()) if file.is_file() else {}
    for name in args.only:
        kept[name] = measure_group(name, ours, peers, scale, rounds)
        text = report({known: kept[known] for known in GROUPS if known in kept})
        if not args.quick:
            RESULTS.mkdir(exist_ok=True)
            file.write_text(json.dumps(kept, indent=1) + "\n")
            (RESULTS / "benchmark.md").write_text(text + "\n")
    print(text)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", type=Path, default=HERE.parent / ".venv-peers" / "bin" / "python")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS), help="measure these groups")
    parser.add_argument("--rounds", type=int, default=3, help="how often every side is measured")
    parser.add_argument("--quick", action="store_true", help="one short round to see that it works; writes nothing")
    return parser.parse_args()


def measure_group(name: str, ours: str, peers: str, scale: float, rounds: int) -> dict[str, Any]:
    group = GROUPS[name]
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"warning: the machine is busy (load {load:.1f}); ratios will be noisy.")
    sides = {side: command for side, command in group.sides(ours, peers, scale).items() if can_run(command)}
    samples: Samples = {side: [] for side in sides}
    peaks = []
    for number in range(1 if name == "ewma" else rounds):
        say(f"{name}, round {number + 1}")
        if name == "jax":
            peaks.append(run([ours, PEAK])["gflops"])
        for side in sorted(sides, reverse=number % 2 == 1):
            samples[side].append(run(sides[side]))
            if name != "ewma":
                say(f"  {side:26s} {samples[side][-1]['steps_per_second']:>10,.0f} steps/s")
    found = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(load),
        "versions": {"ours": versions(ours, OUR_PACKAGES)}
        | ({"peers": versions(peers, PEER_PACKAGES)} if group.peers else {}),
        "rounds": rounds,
        "samples": samples,
        "promises": [kept_promise(promise, samples) for promise in group.promises if promise.ours in samples],
    }
    if name == "ewma":
        found |= {"promises": samples.pop("ewma")[0]["costs"]}
    return found | ({"peak": peak_of(samples, max(peaks))} if peaks else {})


def can_run(command: list[Any]) -> bool:
    """Whether what a side needs is there: without the extra envpool the others are measured."""
    needs_envpool = command[1] in (ALONE, PROCGEN) or any(str(part).startswith("envpool/") for part in command)
    return not needs_envpool or importlib.util.find_spec("envpool") is not None


def run(command: list[Any]) -> Sample:
    """The one JSON object that a side prints."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        sys.exit(f"{Path(command[1]).name} failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def speed(taken: list[Sample]) -> float:
    return statistics.median(sample["steps_per_second"] for sample in taken)


def kept_promise(promise: Promise, samples: Samples) -> dict[str, Any]:
    """The ratio that was promised, to the peer's fastest variant."""
    peer = max(promise.peers, key=lambda name: speed(samples[name]))
    value = speed(samples[promise.ours]) / speed(samples[peer])
    by_round = [
        a["steps_per_second"] / b["steps_per_second"] for a, b in zip(samples[promise.ours], samples[peer], strict=True)
    ]
    low, high = min(by_round), max(by_round)
    target = promise.target
    return {
        "what": promise.what,
        "against": peer,
        "measured": f"{value:.2f} x ({low:.2f} to {high:.2f})",
        "target": "-" if target is None else f"at least {target:g} x",
        "met": None if target is None else value >= target,
    }


def peak_of(samples: Samples, peak: float) -> dict[str, Any]:
    """The share of the machine's matrix products that training reaches."""
    return {
        "matmul_gflops": peak,
        "share_single": speed(samples["isobatch"]) * FLOPS_PER_STEP / 1e9 / peak,
        "share_8_seeds": speed(samples["isobatch, 8 seeds"]) * FLOPS_PER_STEP / 1e9 / peak,
    }


def report(results: dict[str, Any]) -> str:
    lines = [
        "# Speed",
        "",
        "`make bench`: medians, in brackets the lowest and the highest of all rounds. Compilation is not in the "
        "speeds; of libraries that compile nothing, that column holds the first iteration.",
    ]
    for name, found in results.items():
        lines += section(GROUPS[name], found)
    return "\n".join(lines)


def section(group: Group, found: dict[str, Any]) -> list[str]:
    computer = found["machine"]
    rounds = f", {found['rounds']} rounds" if found["samples"] else ""
    lines = [
        "",
        f"## {group.title}",
        "",
        f"{group.work} {found['date']}, {computer['cpu']}, {computer['cores']} cores, load "
        f"{computer['load_at_start']:.1f} at the start{rounds}.",
        "",
        "| what | against | measured | target | |",
        "|---|---|---|---|---|",
    ]
    for row in found["promises"]:
        met = {None: "", True: "met", False: "not met"}[row["met"]]
        lines.append(f"| {row['what']} | {row['against']} | {row['measured']} | {row['target']} | {met} |")
    if found["samples"]:
        lines += sides_table(found["samples"])
    if "peak" in found:
        peak = found["peak"]
        lines += [
            "",
            f"Matrix-product peak, float32, all cores: {peak['matmul_gflops']:.0f} GFLOP/s. Share reached while "
            f"training: {peak['share_single']:.0%} by one run, {peak['share_8_seeds']:.0%} by 8 seeds. "
            f"{FLOPS_FORMULA}: {FLOPS_PER_STEP:,} in all.",
        ]
    whose = [
        f"{side}: " + ", ".join(f"{package} {version}" for package, version in each.items())
        for side, each in found["versions"].items()
    ]
    return [*lines, "", f"Versions: {'; '.join(whose)}."]


def sides_table(samples: Samples) -> list[str]:
    parts = sorted({part for taken in samples.values() for part in taken[0].get("shares", {})})
    columns = ["side", "seeds", "steps per second, all seeds", "compile, s", *(f"{part}, share" for part in parts)]
    lines = ["", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for name, taken in samples.items():
        speeds = [sample["steps_per_second"] for sample in taken]
        shares = [statistics.median(sample["shares"][part] for sample in taken) for part in parts]
        cells = [
            name,
            str(taken[0]["seeds"]),
            f"{speed(taken):,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})",
            f"{statistics.median(sample['compile_seconds'] for sample in taken):.1f}",
            *(f"{share:.1%}" for share in shares),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


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
    """Installed versions, as this or another Python sees them; what is not installed is left out."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    there = run([python, "-c", code])
    return {name: there[name] for name in packages if name in there}


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
