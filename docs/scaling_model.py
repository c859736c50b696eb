"""How many devices pay off, on paper: python docs/scaling_model.py prints the table of docs/scaling.md.

The model, for D devices that hold b samples of an iteration each (the batch grows with D, and settings by rule):

    seconds of an iteration   b t + G x seconds of a sum over the devices (isobatch.planning.devices)
    samples to a score        proportional to 1 + B/B_crit, with B = D b / M the optimization batch
                              (isobatch.planning.samples)

t: seconds of collecting and learning from one sample on one device; G: gradient steps of an iteration. Time to a score
is samples x seconds per sample; the speed-up is that of one device, divided by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from isobatch.planning.devices import ACCELERATORS, MACHINES, Link
from isobatch.planning.samples import samples_needed

DEVICES = (2, 8, 64, 1024)


@dataclass(frozen=True)
class Run:
    name: str
    per_device: int  # b, samples of an iteration on a device
    minibatches: int
    epochs: int
    seconds: float  # t
    parameters: int
    critical_batch: float
    source: str  # of the critical batch


RUNS = (
    Run("CartPole, MLP 2 x 64", 1024, 4, 4, 1 / 160_000, 9_155, 393, "laboratory, CartPole 8 x 128, first checkpoint"),
    Run("MuJoCo, MLP 2 x 256", 2048, 32, 10, 1 / 17_000, 140_000, 3_781, "laboratory, Pendulum after 200,704 steps"),
    Run("Procgen, IMPALA on a GPU", 16_384, 8, 3, 1 / 20_000, 626_000, 32_768, "an assumption: not measured here"),
)
LINKS = (
    Link("processes of one machine (Gloo, measured 0.7 ms)", 3.5e-4, 1e9),
    MACHINES,
    ACCELERATORS,
)


def iteration_seconds(run: Run, link: Link, devices: int) -> float:
    steps = run.minibatches * run.epochs
    return run.per_device * run.seconds + steps * link.sum_seconds(devices, run.parameters)


def samples(run: Run, devices: int) -> float:
    """In units of S_min."""
    return float(samples_needed(1.0, devices * run.per_device / run.minibatches, run.critical_batch))


def speedup(run: Run, link: Link, devices: int, invariant: bool) -> float:
    """Of the time to a score; `invariant`: as if every batch needed as many samples."""
    throughput = devices * iteration_seconds(run, link, 1) / iteration_seconds(run, link, devices)
    return throughput if invariant else throughput * samples(run, 1) / samples(run, devices)


def main() -> None:
    columns = [f"{d:,} devices" for d in DEVICES]
    print(f"| run | critical batch | link | {' | '.join(columns)} | more pay up to |")
    print("|---|---|---|" + "---|" * (len(columns) + 1))
    for run in RUNS:
        for link in LINKS:
            both = [f"{speedup(run, link, d, False):.1f} ({speedup(run, link, d, True):.0f})" for d in DEVICES]
            best = max((2**k for k in range(11)), key=lambda d: speedup(run, link, d, False))
            critical = f"{run.critical_batch:,.0f} ({run.source})"
            print(f"| {run.name} | {critical} | {link.name} | {' | '.join(both)} | {best:,} |")


if __name__ == "__main__":
    main()
