"""The noise of policy gradients that another framework computed: here PyTorch, of a Stable-Baselines3 policy.

isobatch wants one gradient per sample, as rows [n, P], and for each sample its batch (here: a rollout), its trajectory
(one environment's part of that rollout) and its time step. All statistics follow from inner products of the rows.
The modules used here need NumPy only, not JAX.

Install  pip install isobatch stable-baselines3
Run      python examples/bring_your_own_gradients.py
"""

from __future__ import annotations

import sys

import numpy as np

try:
    import torch
    from torch.func import functional_call, grad, vmap
except ImportError as missing:
    sys.exit(f"This example needs PyTorch ({missing}): pip install stable-baselines3, which brings it along.")

from isobatch.gradients.correlation import lag_correlation
from isobatch.gradients.layout import Layout, gram_of, mean_gram
from isobatch.gradients.noise import noise_scale
from isobatch.gradients.pairs import pair_sums
from isobatch.gradients.variance import decompose

ENVS, STEPS, ROLLOUTS = 4, 64, 16
APART = 4  # one rollout of four is kept: episodes are short this early, so those are as good as independent
LAGS = (1, 4, 16)


def per_sample_gradients(actor: torch.nn.Module, obs, action, advantage) -> np.ndarray:
    """Gradients [n, P] of the losses -log pi(a|s) A with respect to the actor's parameters; it maps obs to logits."""
    parameters = {name: p.detach() for name, p in actor.named_parameters()}

    def loss(parameters, obs, action, advantage):
        return torch.nn.functional.cross_entropy(functional_call(actor, parameters, obs), action) * advantage

    tensors = torch.as_tensor(obs), torch.as_tensor(action).long(), torch.as_tensor(advantage)
    by_name = vmap(grad(loss), in_dims=(None, 0, 0, 0))(parameters, *tensors)
    return torch.cat([g.flatten(start_dim=1) for g in by_name.values()], dim=1).numpy()


def collect():
    """Train a little, then keep rollouts [rollout, time, environment, ...] of the policy as it is."""
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import CallbackList
        from stable_baselines3.common.env_util import make_vec_env
    except ImportError as missing:
        sys.exit(f"This example needs Stable-Baselines3 ({missing}): pip install stable-baselines3")
    torch.set_num_threads(1)  # networks this small are slower with more
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", ENVS, seed=0), n_steps=STEPS, seed=0, device="cpu")
    model.learn(1024)
    callback, buffer, kept = CallbackList([]), model.rollout_buffer, []
    callback.init_callback(model)
    for i in range(ROLLOUTS * APART):
        model.collect_rollouts(model.env, callback, buffer, STEPS)
        if i % APART == 0:
            kept.append((buffer.observations, buffer.actions[..., 0], buffer.advantages))
    actor = torch.nn.Sequential(model.policy.mlp_extractor.policy_net, model.policy.action_net)
    return actor, *(np.stack(arrays) for arrays in zip(*kept, strict=True))


def report(gradients: np.ndarray, layout: Layout, steps: int) -> str:
    """What can be said about gradients [n, P] of trajectories of equal length; 95 % intervals in brackets."""
    gram = gram_of(gradients)
    noise, parts = noise_scale(mean_gram(gram, layout.trajectory), steps), decompose(gram, layout, lags=[])
    lines = [
        f"{layout.batches} batches of {layout.batch_sizes[0]} samples, gradients of {gradients.shape[1]} parameters.",
        f"Variance of a batch's gradient: {parts.total}, of which",
        f"    single samples        {parts.individual}",
        f"    pairs in a trajectory {parts.within}",
        f"    pairs across them     {parts.across}",
        f"A batch is as noisy as {parts.effective_samples} independent samples would be.",
        *(
            f"Correlation of two gradients at lag {lag}: {correlation}"
            for lag, correlation in lag_correlation(pair_sums(gram, layout), LAGS)
        ),
        f"Critical batch size (gradient noise scale): {noise.critical_batch} samples.",
    ]
    return "\n".join(lines)


def main() -> None:
    actor, obs, action, advantage = collect()
    rollout, time, env = (index.ravel() for index in np.indices(advantage.shape))
    flat = (a.reshape(advantage.size, *a.shape[3:]) for a in (obs, action, advantage))
    gradients = per_sample_gradients(actor, *flat)
    print(report(gradients, Layout.of(trajectory=rollout * ENVS + env, batch=rollout, time=time), STEPS))


if __name__ == "__main__":
    main()
