"""PyTorch's side of the Procgen benchmark: a minimal PPO loop in the manner of CleanRL's ppo_procgen.py, on EnvPool.

The work is that of benchmarks/procgen.py: 64 envs x 64 steps, 8 minibatches, 1 epoch, IMPALA's network for policy and
value, Adam, gradients clipped by global norm. Run with the peers' Python. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

warnings.simplefilter("ignore")
import envpool  # noqa: E402

NUM_ENVS, NUM_STEPS, NUM_MINIBATCHES = 64, 64, 8
BATCH = NUM_ENVS * NUM_STEPS
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, MAX_NORM = 0.999, 0.95, 0.2, 0.01, 0.5, 0.5


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(F.relu(self.one(F.relu(x))))


class Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.blocks = nn.Sequential(Residual(outputs), Residual(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(F.max_pool2d(self.conv(x), 3, 2, 1))


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.torso = nn.Sequential(
            Stage(3, 16), Stage(16, 32), Stage(32, 32), nn.Flatten(), nn.ReLU(), nn.Linear(32 * 8 * 8, 256), nn.ReLU()
        )
        self.actor, self.critic = nn.Linear(256, 15), nn.Linear(256, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        features = self.torso(obs.float() / 255.0)
        return torch.distributions.Categorical(logits=self.actor(features)), self.critic(features)[:, 0]


class Loop:
    """Rollouts and updates, with the seconds that each part takes."""

    def __init__(self, env_id: str) -> None:
        self.envs = envpool.make_gymnasium(env_id, num_envs=NUM_ENVS, seed=0)
        self.obs = torch.from_numpy(self.envs.reset()[0])
        self.done = torch.zeros(NUM_ENVS)
        self.agent = Agent()
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=5e-4, eps=1e-5)
        self.seconds = {"environment": 0.0, "inference": 0.0, "update": 0.0}

    def timed(self, name: str, begin: float) -> None:
        self.seconds[name] += time.perf_counter() - begin

    def iterate(self) -> None:
        data: dict[str, Any] = {
            "obs": torch.zeros((NUM_STEPS, NUM_ENVS, 3, 64, 64), dtype=torch.uint8),
            "action": torch.zeros((NUM_STEPS, NUM_ENVS), dtype=torch.long),
        } | {name: torch.zeros((NUM_STEPS, NUM_ENVS)) for name in ("log_prob", "value", "reward", "done")}
        for t in range(NUM_STEPS):
            begin = time.perf_counter()
            with torch.no_grad():
                policy, value = self.agent(self.obs)
                action = policy.sample()
                seen = (self.obs, action, policy.log_prob(action), value, self.done)
            for name, part in zip(("obs", "action", "log_prob", "value", "done"), seen, strict=True):
                data[name][t] = part
            self.timed("inference", begin)
            begin = time.perf_counter()
            obs, reward, terminated, truncated, _ = self.envs.step(action.numpy().astype(np.int32))
            self.timed("environment", begin)
            data["reward"][t] = torch.from_numpy(reward)
            self.obs, self.done = torch.from_numpy(obs), torch.from_numpy(terminated | truncated).float()
        begin = time.perf_counter()
        with torch.no_grad():
            last = self.agent(self.obs)[1]
        self.timed("inference", begin)
        begin = time.perf_counter()
        self.update(data, last)
        self.timed("update", begin)

    def update(self, data: dict[str, Any], last: torch.Tensor) -> None:
        advantage, running = torch.zeros_like(data["reward"]), torch.zeros(NUM_ENVS)
        for t in reversed(range(NUM_STEPS)):
            after = self.done if t == NUM_STEPS - 1 else data["done"][t + 1]
            following = last if t == NUM_STEPS - 1 else data["value"][t + 1]
            delta = data["reward"][t] + GAMMA * following * (1 - after) - data["value"][t]
            running = delta + GAMMA * LAMBDA * (1 - after) * running
            advantage[t] = running
        flat = {name: part.flatten(0, 1) for name, part in data.items()}
        advantages, targets = advantage.flatten(), (advantage + data["value"]).flatten()
        for rows in torch.randperm(BATCH).view(NUM_MINIBATCHES, -1):
            policy, value = self.agent(flat["obs"][rows])
            ratio = (policy.log_prob(flat["action"][rows]) - flat["log_prob"][rows]).exp()
            mine = advantages[rows]
            mine = (mine - mine.mean()) / (mine.std() + 1e-8)
            gain = torch.minimum(ratio * mine, ratio.clamp(1 - CLIP, 1 + CLIP) * mine).mean()
            loss = -gain - ENTROPY * policy.entropy().mean() + VALUE * 0.5 * (value - targets[rows]).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.agent.parameters(), MAX_NORM)
            self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="StarpilotEasy-v0")
    parser.add_argument("--iterations", type=int, default=2, help="iterations to time, after one to warm up")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    loop = Loop(args.env)
    begin = time.perf_counter()
    loop.iterate()
    warm_up = time.perf_counter() - begin
    loop.seconds = dict.fromkeys(loop.seconds, 0.0)
    begin = time.perf_counter()
    for _ in range(args.iterations):
        loop.iterate()
    seconds = time.perf_counter() - begin
    steps = args.iterations * BATCH
    print(
        json.dumps(
            {
                "library": "pytorch",
                "version": torch.__version__,
                "steps": steps,
                "seeds": 1,
                "seconds": seconds,
                "compile_seconds": warm_up,
                "steps_per_second": steps / seconds,
                "shares": {name: taken / seconds for name, taken in loop.seconds.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
