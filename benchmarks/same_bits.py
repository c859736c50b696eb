"""Does this checkout train to the same bits as an earlier commit?

    python benchmarks/same_bits.py --before COMMIT [--only ppo@CartPole-v1]

For every algorithm on gymnax, Gymnasium and EnvPool, the command `isobatch train` is run in both checkouts and the text
of `metrics.csv` and every array of the last checkpoint are compared. A refactoring that claims to change no number
shows it with this. `RENAMED` says which arrays are called otherwise now.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ALGORITHMS = ("reinforce", "a2c", "ppo", "ppo-ewma", "ppg", "ppg-ewma")
SIZES = {
    "gymnax": ["--num-envs", "8", "--num-steps", "64"],
    "host": ["--num-envs", "4", "--num-steps", "64"],
    "reinforce": ["--num-envs", "4", "--num-steps", "600"],
}
RENAMED = {
    "learning/": "",
    "envs/episodes/total": "envs/episode_return",
    "envs/episodes/length": "envs/episode_length",
    "envs/episodes/counts": "envs/counts",
    "fills_in": "over",
}
STALE = ["--staleness", "2", "--proximal-policy", "recent"]
NORMALIZED = ["--normalize-observations", "--normalize-rewards"]
ACTORS = ["--actors", "2", "--max-lag", "2i", "--schedule", "fixed"]
NEXT_STEP = ["--autoreset", "next-step"]
CASES: dict[str, list[str]] = {
    f"{algo}@{env}": ["--algo", algo, "--env", env]
    for env in ("CartPole-v1", "gymnasium/CartPole-v1", "envpool/CartPole-v1")
    for algo in ALGORITHMS
} | {
    "ppo-normalized@Pendulum-v1": ["--algo", "ppo", "--env", "Pendulum-v1", *NORMALIZED],
    "ppo-seeds@CartPole-v1": ["--algo", "ppo", "--env", "CartPole-v1", "--num-seeds", "3"],
    "ppo-stale@CartPole-v1": ["--algo", "ppo", "--env", "CartPole-v1", *STALE],
    "ppo-stale@envpool/CartPole-v1": ["--algo", "ppo", "--env", "envpool/CartPole-v1", *STALE],
    "ppo-shared@gymnasium/Pendulum-v1": ["--algo", "ppo", "--env", "gymnasium/Pendulum-v1", "--arrangement", "shared"],
    "ppo-nextstep@gymnasium/CartPole-v1": ["--algo", "ppo", "--env", "gymnasium/CartPole-v1", *NEXT_STEP],
    "ppo-ewma-actors@gymnasium/CartPole-v1": ["--algo", "ppo-ewma", "--env", "gymnasium/CartPole-v1", *ACTORS],
    "ppo-noise@CartPole-v1": ["--algo", "ppo", "--env", "CartPole-v1", "--noise-scale"],
    "ppo@Breakout-MinAtar": ["--algo", "ppo", "--env", "Breakout-MinAtar"],
}  # fmt: skip


def command(name: str, flags: list[str]) -> list[str]:
    """One short run: about twenty iterations, and whole phases of PPG."""
    algo, env = name.split("@")
    size = SIZES["reinforce"] if algo == "reinforce" else SIZES["host" if "/" in env else "gymnax"]
    per_iteration = int(size[1]) * int(size[3])
    phases = ["--policy-iterations-per-phase", "4"] if algo.startswith("ppg") else []
    iterations = 6 if algo == "reinforce" else 20
    return [*flags, *size, *phases, "--total-timesteps", str(per_iteration * iterations)]


def train(source: Path, run: Path, flags: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "JAX_PLATFORMS": "cpu"}
    arguments = [sys.executable, "-m", "isobatch", "train", *flags, "--run-dir", str(run), "--quiet"]
    subprocess.run(arguments, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=600)


def arrays(run: Path) -> dict[str, np.ndarray]:
    """The arrays of the last checkpoint, by names in which what was regrouped since is undone."""
    newest = max((run / "checkpoints").iterdir(), key=lambda p: p.name)
    if newest.is_dir():  # of a commit that wrote them with orbax
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            stored = checkpointer.restore((newest / "state").absolute())
    else:
        from isobatch.training.checkpoint_file import read_checkpoint

        stored = {name: array for name, array in read_checkpoint(newest)[1].items() if array.size}  # as orbax has them
    return {renamed(name): np.asarray(leaf) for name, leaf in stored.items()}


def renamed(name: str) -> str:
    for now, before in RENAMED.items():
        name = name.replace(now, before)
    return name


def difference(before: Path, after: Path) -> str | None:
    texts = [(run / "metrics.csv").read_text() for run in (before, after)]
    if texts[0] != texts[1]:
        return "metrics.csv"
    was, now = arrays(before), arrays(after)
    if was.keys() != now.keys():
        return f"arrays {sorted(was.keys() ^ now.keys())[:4]}"
    return next((name for name in was if was[name].tobytes() != now[name].tobytes()), None)


def checkout(commit: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--keep", type=Path, help="a folder for the earlier runs, which are then made only once")
    args = parser.parse_args()
    here, worst = Path(__file__).parents[1], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source = checkout(args.before, folder / "source")
        kept = (args.keep or folder / "before").absolute()
        for name, flags in CASES.items():
            if args.only not in name:
                continue
            label = name.replace("/", "_")
            if not (kept / label / "checkpoints").is_dir():
                train(source, kept / label, command(name, flags))
            train(here, folder / "after" / label, command(name, flags))
            found = difference(kept / label, folder / "after" / label)
            print(f"{name:40} {'identical' if found is None else f'DIFFERS: {found}'}", flush=True)
            worst |= found is not None
    return worst


if __name__ == "__main__":
    sys.exit(main())
