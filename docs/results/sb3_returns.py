"""PPOEWMA and PPO of Stable-Baselines3 at the zoo's batch, and with other numbers of environments.

    python docs/results/sb3_returns.py [--envs CartPole-v1 ...] [--seeds 8] [--rows FILE]
    python docs/results/sb3_returns.py --page         train nothing: write the table and the picture of the rows again

Settings are the zoo's (examples/ppo_ewma.yml; PPO without the average), and so is the length of a run, or a share of it
(SHARES). At 1 and 64 environments PPO keeps its settings and PPOEWMA is rescaled by the rules, at 64 also with the
rollout as large as it was. The environments are EnvPool's (`make setup-envpool`), which are sooner stepped. A score is
the mean return of the episodes that end in the last tenth of a training. Rows that are in FILE are not trained again.
Writes docs/results/sb3-returns.md and its picture.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import envpool
import numpy as np
import torch
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from isobatch.drawing import COLORS, new_panels, save_figure
from isobatch.formatting import with_interval
from isobatch.settings.geometry import divisors
from isobatch.statistics.aggregates import contrast
from isobatch.statistics.bootstrap import Estimate
from isobatch.statistics.normalization import bounds_of
from isobatch.torch import PPOEWMA, rescaled

HERE = Path(__file__).parent
PAGE, ROWS, PICTURE = HERE / "sb3-returns.md", HERE / "sb3-returns.jsonl", HERE / "sb3-returns.png"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
ZOO = yaml.safe_load((HERE.parents[1] / "examples" / "ppo_ewma.yml").read_text())
OWN = ("beta_prox", "advantage_norm")
# Of the zoo's million steps: what gradient steps of four samples, at n_envs = 1, allow on two cores.
SHARES = {"CartPole-v1": 1.0, "Acrobot-v1": 0.06, "LunarLander-v3": 0.2}


class FromEnvPool(VecEnv):
    """Environments of EnvPool as Stable-Baselines3 has them: one that ends begins anew in the same step."""

    def __init__(self, name: str, count: int, seed: int) -> None:
        # Seeds of environments are seed, seed + 1, ...: those of two runs must not overlap.
        self.pool = envpool.make(name, "gymnasium", num_envs=count, num_threads=1, seed=1000 * seed)
        super().__init__(count, self.pool.observation_space, self.pool.action_space)
        self.actions = np.zeros(count, int)

    def reset(self) -> np.ndarray:
        return np.array(self.pool.reset()[0])

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        out, rewards, terminated, truncated, info = self.pool.step(self.actions)
        assert (info["env_id"] == np.arange(self.num_envs)).all()
        seen, ended, infos = np.array(out), terminated | truncated, [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(ended):
            infos[i] = {
                "terminal_observation": seen[i].copy(),
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
            }
        if ended.any():  # the step after an end is a reset
            which = np.flatnonzero(ended)
            first, _, _, _, info = self.pool.step(self.actions[which], which)
            seen[info["env_id"]] = first
        return seen, np.array(rewards), ended, infos

    def close(self) -> None:
        self.pool.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs  # no render_mode

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def variants(zoo: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name of the row -> settings, with the algorithm."""
    plain = {name: value for name, value in zoo.items() if name not in OWN}
    rows: dict[str, dict[str, Any]] = {
        f"PPO, {zoo['n_envs']}": plain | {"kind": PPO},
        f"PPOEWMA, {zoo['n_envs']}": zoo | {"kind": PPOEWMA},
    }
    for n_envs in (1, 64):
        rows[f"PPO, {n_envs}, unchanged"] = plain | {"n_envs": n_envs, "kind": PPO}
        rows[f"PPOEWMA, {n_envs}, by the rules"] = rescaled(zoo, n_envs, keep="minibatch-count") | {"kind": PPOEWMA}
    rows["PPOEWMA, 64, rollout kept"] = rescaled(zoo, 64, keep="iteration-batch") | {"kind": PPOEWMA}
    return rows


def final_return(settings: dict[str, Any], env: str, seed: int, share: float) -> float:
    """Mean return of the episodes that end in the last tenth of a training."""
    settings = dict(settings)
    kind, n_envs = settings.pop("kind"), settings.pop("n_envs")
    steps, policy = int(share * float(settings.pop("n_timesteps"))), settings.pop("policy")
    envs: VecEnv = VecMonitor(FromEnvPool(env, n_envs, seed))
    if settings.pop("normalize", False):
        envs = VecNormalize(envs, gamma=settings.get("gamma", 0.99))
    for name in ("learning_rate", "clip_range"):
        if isinstance(settings.get(name), str):
            settings[name] = LinearSchedule(float(settings[name].removeprefix("lin_")), 0.0, 1.0)
    rollout = n_envs * settings["n_steps"]
    settings["batch_size"] = max(d for d in divisors(rollout) if d <= settings.get("batch_size", 64))
    settings["policy_kwargs"] = {"optimizer_kwargs": {"fused": True}}  # a tenth of the time, for either algorithm
    model, returns = kind(policy, envs, seed=seed, device="cpu", **settings), []

    def keep(scope: dict[str, Any], _: dict[str, Any]) -> bool:
        ended = (info["episode"]["r"] for info in scope["infos"] if "episode" in info)
        returns.extend((model.num_timesteps, r) for r in ended)
        return True

    model.learn(steps, callback=keep)
    last = [r for t, r in returns if t > 0.9 * steps] or [returns[-1][1] if returns else float("nan")]
    return float(np.mean(last))


def trained(env: str, seeds: int, file: Path) -> None:
    """Train what is not in the file yet."""
    known = {(row["env"], row["variant"], row["seed"]) for row in rows_in(file)}
    for name, settings in variants(ZOO[env]).items():
        for seed in range(seeds):
            if (env, name, seed) in known:
                continue
            score = final_return(settings, env, seed, SHARES[env])
            row = {"env": env, "variant": name, "seed": seed, "share": SHARES[env], "return": score}
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")


def rows_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def scores_of(rows: list[dict[str, Any]], env: str) -> dict[str, np.ndarray]:
    """Variant -> returns of its seeds, in the order of the table."""
    mine = [row for row in rows if row["env"] == env]
    return {
        name: np.array([row["return"] for row in sorted(mine, key=lambda row: row["seed"]) if row["variant"] == name])
        for name in dict.fromkeys(row["variant"] for row in mine)
    }


def mean_of(values: np.ndarray, env: str) -> Estimate:
    """With an interval that goes no further than an episode's return can."""
    mean = contrast([(1, values)])[0]
    low, high = bounds_of(env)
    return Estimate(mean.value, max(mean.low, low), min(mean.high, high))


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| task | algorithm, environments | seeds | return | minus PPO at the zoo's | worst seed |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for env in dict.fromkeys(row["env"] for row in rows):
        scores = scores_of(rows, env)
        base = next(iter(scores.values()))
        for name, values in scores.items():
            cells = [with_interval(mean_of(values, env))]
            cells.append("" if values is base else with_interval(contrast([(1, values), (-1, base)])[0]))
            lines.append(f"| {env} | {name} | {len(values)} | {' | '.join(cells)} | {values.min():.1f} |")
    return lines


def with_table(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with what these rows say."""
    shares = ", ".join(f"{share:.0%} on {env}" for env, share in SHARES.items())
    about = f"Brackets hold 95 % intervals. Length of a run, of the zoo's: {shares}."
    block = "\n".join([BEGIN, about, "", *table(rows), "", f"![Returns]({PICTURE.name})", END])
    return re.sub(f"{BEGIN}.*?{END}", lambda _: block, page, flags=re.DOTALL)


def draw(rows: list[dict[str, Any]]) -> None:
    """A panel for each task: seeds, mean and 95 % interval of each variant."""
    envs = list(dict.fromkeys(row["env"] for row in rows))
    figure, panels = new_panels(1, len(envs), (3.6 * len(envs), 3.2))
    for panel, env in zip(panels, envs, strict=True):
        scores = scores_of(rows, env)
        for place, (name, values) in enumerate(scores.items()):
            mean, color = mean_of(values, env), COLORS[not name.startswith("PPO,")]
            panel.plot(values, np.full(len(values), place), "o", color=color, alpha=0.35, markersize=3)
            panel.plot([mean.low, mean.high], [place, place], color=color)
            panel.plot(mean.value, place, "D", color=color, markersize=5)
        panel.set(title=env, xlabel="return", yticks=range(len(scores)))
        panel.set_yticklabels(scores if env == envs[0] else [name.partition(", ")[2] for name in scores])
        panel.invert_yaxis()
    save_figure(figure, PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", default=list(ZOO), choices=list(ZOO))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--page", action="store_true", help="train nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    for env in [] if args.page else args.envs:
        trained(env, args.seeds, args.rows)
    if args.rows == ROWS:
        rows = rows_in(ROWS)
        PAGE.write_text(with_table(PAGE.read_text(), rows))
        draw(rows)


if __name__ == "__main__":
    main()
