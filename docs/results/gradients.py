"""Measure policy gradients on several environments and write docs/results/gradients.md: a blog post, and beyond.

    python docs/results/gradients.py [--only ENV|post] [--out runs/gradients]
    python docs/results/gradients.py --page

What is measured is kept; a run that was interrupted goes on. The numbers of the page are kept in gradients.json beside
it: what is not measured now keeps its part of both, and `--page` writes the page, and what the README says of it, from
that file alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gradients_page import POST_PICTURES, QUANTITIES, page_of, picture_name, with_caption

HERE = Path(__file__).parent
NUMBERS, PAGE, README = HERE / "gradients.json", HERE / "gradients.md", HERE.parents[1] / "README.md"
ENVIRONMENTS = {
    "CartPole-v1": (128, (10, 100, 488)),
    "Acrobot-v1": (128, (10, 50, 244)),
    "Breakout-MinAtar": (64, (10, 50, 146)),
}  # chains to measure on, and iterations after which the policy is measured
SECTIONS = "geometries,lambdas,lags,minibatches,trust-region,aggregations"
DIGITS = 6  # of a number in gradients.json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["post", *ENVIRONMENTS], help="measure this alone")
    parser.add_argument("--out", type=Path, default=Path("runs/gradients"))
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of gradients.json")
    args = parser.parse_args()
    for name in () if args.page else ("post", *ENVIRONMENTS):
        if args.only in (None, name):
            keep(name, measure_post(args.out) if name == "post" else measure_environment(name, args.out / name))
    numbers = json.loads(NUMBERS.read_text())
    PAGE.write_text(page_of(numbers))
    README.write_text(with_caption(README.read_text(), numbers))


def measure_post(out: Path) -> dict[str, Any]:
    run(command := post_command(out))
    for name in POST_PICTURES:
        shutil.copy(out / "post" / name, HERE / picture_name("post", name))
    return {"commands": [" ".join(command)]} | json.loads((out / "post" / "claims.json").read_text())


def measure_environment(env: str, folder: Path) -> dict[str, Any]:
    train, diagnose = train_command(env, folder), diagnose_command(env, folder)
    if not (folder / "run.json").is_file():
        run(train)
    result = run(diagnose)
    last, pictures = result["checkpoints"][-1], Path(result["out"])
    shutil.copy(pictures / "training-time.png", HERE / f"gradients-{env}.png")
    shutil.copy(pictures / f"{last['iteration']:09d}-geometries.png", HERE / f"gradients-{env}-geometries.png")
    return {
        "commands": [" ".join(train), " ".join(diagnose)],
        "checkpoints": [checkpoint_numbers(each) for each in result["checkpoints"]],
    }


def checkpoint_numbers(measured: dict[str, Any]) -> dict[str, Any]:
    """What the page says of one policy."""
    kept = ("num_envs", "num_steps", *QUANTITIES, "measured_variance")
    lags = measured["lags"]
    return {
        "env_steps": measured["env_steps"],
        "geometries": [{name: row[name] for name in kept if name in row} for row in measured["geometries"]["rows"]],
        "correlation": {name: lags[name] for name in ("correlation", "across")},
        "single_samples": lags["shares"][0]["estimate"],
        "sentences": measured["sentences"],
    }


def keep(name: str, numbers: dict[str, Any]) -> None:
    """In gradients.json, one line for each part."""
    parts = json.loads(NUMBERS.read_text()) if NUMBERS.is_file() else {}
    parts[name] = numbers
    lines = (
        f"{json.dumps(each)}: {json.dumps(rounded(parts[each]))}" for each in ("post", *ENVIRONMENTS) if each in parts
    )
    NUMBERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def rounded(value: Any) -> Any:
    """Numbers with as many digits as a page can show."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def post_command(out: Path) -> list[str]:
    return ["isobatch", "study", "run", "pendulum-post", "--out", str(out / "post")]


def train_command(env: str, folder: Path) -> list[str]:
    kept = ["--checkpoint-interval", "10", "--keep-checkpoints", "50", "--run-dir", str(folder)]
    return ["isobatch", "train", "--env", env, "--algo", "ppo", *kept]


def diagnose_command(env: str, folder: Path) -> list[str]:
    chains, iterations = ENVIRONMENTS[env]
    words = ["isobatch", "diagnose", str(folder), "--budget", "1024", "--chains", str(chains)]
    return [*words, "--sections", SECTIONS, "--checkpoint", ",".join(map(str, iterations))]


def run(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", *words, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
