"""PPO-EWMA in one file, in the manner of CleanRL: change `num_envs`, and the other settings follow.

What PPO-EWMA adds to PPO are three objects of isobatch.torch, each a few lines: an average of the agent's weights
(`Ewma`), the loss that holds on to it (`LossWithProximal`), and moments of the advantages over iterations
(`AdvantageMoments`). The lines with one of them are marked with `# +`.

Settings are tuned at `tuned_envs` environments. At another number the minibatches change with it, and so do learning
rate, decay of the average and decay of the moments, by the rules of `isobatch rescale`.

Install  pip install isobatch torch gymnasium
Run      python examples/cleanrl_ppo_ewma.py --num-envs 4
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

import isobatch as ib
from isobatch.torch import AdvantageMoments, Ewma, LossWithProximal


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 200_000
    num_envs: int = 16
    tuned_envs: int = 16
    """environments at which the settings below were tuned"""
    num_steps: int = 64
    num_minibatches: int = 8
    update_epochs: int = 1
    learning_rate: float = 2.5e-3
    gamma: float = 0.98
    gae_lambda: float = 0.9
    clip_coef: float = 0.2
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 10.0
    beta_prox: float = 8 / 9
    """decay of the average of the agent's weights: its age is 8 gradient steps, one iteration"""


def rescaled(args: Args) -> ib.Config:
    """The settings at `num_envs`."""
    tuned = ib.preset(
        "ppo-ewma",
        args.env_id,
        num_envs=args.tuned_envs,
        num_steps=args.num_steps,
        num_minibatches=args.num_minibatches,
        update_epochs=args.update_epochs,
        learning_rate=args.learning_rate,
        beta_prox=args.beta_prox,
        total_timesteps=args.total_timesteps,
    )
    return ib.rescale(tuned, num_envs=args.num_envs).after


def layer_init(layer: nn.Linear, std: float = np.sqrt(2)) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


def network(inputs: int, outputs: int, std: float) -> nn.Sequential:
    first, second = layer_init(nn.Linear(inputs, 64)), layer_init(nn.Linear(64, 64))
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), layer_init(nn.Linear(64, outputs), std))


class Agent(nn.Module):
    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        inputs = int(np.prod(envs.single_observation_space.shape))
        self.critic = network(inputs, 1, std=1.0)
        self.actor = network(inputs, envs.single_action_space.n, std=0.01)

    def policy(self, obs: torch.Tensor) -> Categorical:
        return Categorical(logits=self.actor(obs))

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs).squeeze(-1)


def main(args: Args) -> list[float]:
    """Train, and return the returns of all episodes in the order in which they ended."""
    config = rescaled(args)
    hypers, batch_size = config.hypers, config.geometry.iteration_batch
    print(
        f"{config.num_envs} environments: minibatches of {config.geometry.optimization_batch}, learning rate "
        f"{hypers.learning_rate:.3g}, beta_prox {hypers.beta_prox:.4f}, advantage decay {hypers.adv_norm_decay:.4f}"
    )
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    make = [lambda: gym.make(args.env_id) for _ in range(config.num_envs)]
    envs = gym.vector.SyncVectorEnv(make, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    agent = Agent(envs)
    optimizer = optim.Adam(agent.parameters(), lr=hypers.learning_rate, eps=1e-5)
    proximal = Ewma(agent.actor, hypers.beta_prox)  # +
    moments = AdvantageMoments(hypers.adv_norm_decay)  # +
    loss_of = LossWithProximal(clip_eps=args.clip_coef)  # +

    shape = (config.num_steps, config.num_envs)
    obs = torch.zeros((*shape, *envs.single_observation_space.shape))
    actions, log_probs, rewards, values, next_values = (torch.zeros(shape) for _ in range(5))
    dones = torch.zeros(shape)
    running, returns, start = np.zeros(config.num_envs), [], time.time()
    next_obs = torch.as_tensor(envs.reset(seed=args.seed)[0])
    iterations = args.total_timesteps // batch_size

    for iteration in range(1, iterations + 1):
        for step in range(config.num_steps):
            with torch.no_grad():
                policy = agent.policy(next_obs)
                action = policy.sample()
            obs[step], actions[step], log_probs[step] = next_obs, action, policy.log_prob(action)
            after, reward, terminated, truncated, infos = envs.step(action.numpy())
            done = terminated | truncated
            # The state that the action led to, also where an episode ended and another one has begun.
            reached = after.copy()
            for i in np.flatnonzero(done):
                reached[i] = infos["final_obs"][i]
            with torch.no_grad():
                values[step] = agent.value(next_obs)
                next_values[step] = agent.value(torch.as_tensor(reached)) * torch.as_tensor(~terminated)
            rewards[step], dones[step] = torch.as_tensor(reward), torch.as_tensor(done).float()
            next_obs = torch.as_tensor(after)
            running += reward
            returns += running[done].tolist()
            running[done] = 0

        deltas = rewards + args.gamma * next_values - values
        advantages, later = torch.zeros_like(rewards), torch.zeros(config.num_envs)
        for step in reversed(range(config.num_steps)):
            later = deltas[step] + args.gamma * args.gae_lambda * (1 - dones[step]) * later
            advantages[step] = later
        targets = (advantages + values).flatten()
        moments.update(advantages)  # +
        b_advantages = moments.normalize(advantages).flatten()  # +
        b_obs, b_actions, b_log_probs = obs.flatten(0, 1), actions.flatten(), log_probs.flatten()

        for _ in range(args.update_epochs):
            for mb in np.array_split(np.random.permutation(batch_size), config.num_minibatches):
                policy = agent.policy(b_obs[mb])
                with torch.no_grad():
                    log_prox = Categorical(logits=proximal(b_obs[mb])).log_prob(b_actions[mb])  # +
                log_prob = policy.log_prob(b_actions[mb])
                pg_loss = loss_of(log_prob, log_prox, b_log_probs[mb], b_advantages[mb]).mean()  # +
                v_loss = 0.5 * ((agent.value(b_obs[mb]) - targets[mb]) ** 2).mean()
                loss = pg_loss + args.vf_coef * v_loss - args.ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
                proximal.update(agent.actor)  # +

        if iteration % max(1, iterations // 10) == 0 and returns:
            steps = iteration * batch_size
            rate = steps / (time.time() - start)
            print(f"{steps:>9,} steps  return {np.mean(returns[-100:]):7.1f}  {rate:,.0f} steps/s")
    envs.close()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for field in fields(Args):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=type(field.default), default=field.default)
    main(Args(**vars(parser.parse_args())))
