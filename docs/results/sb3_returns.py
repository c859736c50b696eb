"""PPOEWMA and PPO of Stable-Baselines3 at the zoo's batch, and with other numbers of environments.

    python docs/results/sb3_returns.py [--envs CartPole-v1 ...] [--seeds 8] [--share 1.0] [--out FILE]

Settings are the zoo's (examples/ppo_ewma.yml; PPO without the average). At 1 and 64 environments PPO keeps its settings
and PPOEWMA is rescaled by the rules, at 64 also with the rollout as large as it was. The environments are EnvPool's
(`make setup-envpool`), which are sooner stepped. The figure is the mean return of the last tenth of the training, over
seeds, with a 95 % bootstrap interval. `--share` cuts the zoo's training time. What is in the file FILE (JSON lines) is
not trained again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import envpool
import numpy as np
import torch
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from isobatch.formatting import plain_table, with_interval
from isobatch.settings.geometry import divisors
from isobatch.statistics.bootstrap import estimate, unit_mean
from isobatch.torch import PPOEWMA, rescaled

ZOO = yaml.safe_load((Path(__file__).parents[2] / "examples" / "ppo_ewma.yml").read_text())
OWN = ("beta_prox", "advantage_norm")


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
    model, returns = kind(policy, envs, seed=seed, device="cpu", **settings), []

    def keep(scope: dict[str, Any], _: dict[str, Any]) -> bool:
        ended = (info["episode"]["r"] for info in scope["infos"] if "episode" in info)
        returns.extend((model.num_timesteps, r) for r in ended)
        return True

    model.learn(steps, callback=keep)
    last = [r for t, r in returns if t > 0.9 * steps] or [returns[-1][1] if returns else float("nan")]
    return float(np.mean(last))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", default=list(ZOO), choices=list(ZOO))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--share", type=float, default=1.0, help="of the zoo's training time")
    parser.add_argument("--out", type=Path, default=Path("sb3-returns.jsonl"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(row["env"], row["variant"], row["seed"], row["share"]): row["return"] for row in done}
    for env in args.envs:
        table = []
        for name, settings in variants(ZOO[env]).items():
            scores = []
            for seed in range(args.seeds):
                key = (env, name, seed, args.share)
                if key not in known:
                    known[key] = final_return(settings, env, seed, args.share)
                    row = dict(zip(("env", "variant", "seed", "share"), key, strict=True)) | {"return": known[key]}
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                scores.append(known[key])
            array = np.array(scores)
            mean = estimate(lambda weights, array=array: unit_mean(array, weights), len(array), what="seeds")
            table.append([name, with_interval(mean), f"{array.min():.1f}"])
        print(f"\n{env}, {args.seeds} seeds, {args.share:g} of the zoo's steps")
        print(plain_table(["algorithm, environments", "return", "worst seed"], table), flush=True)


if __name__ == "__main__":
    main()
