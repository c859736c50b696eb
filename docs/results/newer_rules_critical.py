"""Measure the critical batch sizes that the study `newer-rules` gives to its rules, `CRITICAL` of that study.

    python docs/results/newer_rules_critical.py [--only CartPole-v1]

S / |G|^2 over the second half of the study's base with noise_scale=True, on seeds that the study does not use. Prints
a table.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from isobatch.studies.claims.newer_rules import CRITICAL, around
from isobatch.training.metrics import critical_batch, read_metrics
from isobatch.training.trainer import train

SEEDS = {"seed": 100, "num_seeds": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(CRITICAL), help="one of the environments")
    args = parser.parse_args()
    print("| environment | measured | in the study |\n|---|---:|---:|")
    for env in [args.only] if args.only else CRITICAL:
        base = next(around(env, "laptop")).config.replace(noise_scale=True)
        with tempfile.TemporaryDirectory() as folder:
            train(base, run_dir=Path(folder) / "run", **SEEDS)
            print(
                f"| {env} | {critical_batch(read_metrics(Path(folder) / 'run')):.1f} | {CRITICAL[env]:g} |", flush=True
            )


if __name__ == "__main__":
    main()
