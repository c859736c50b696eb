"""Rejax' side of the benchmark: PPO on CartPole-v1, one seed or several under vmap. Run with the peers' Python.

The work is that of benchmarks/ours.py: 8 envs x 128 steps, 4 minibatches, 4 epochs, two separate 64x64 tanh networks
(Rejax always keeps actor and critic apart), Adam. Its `max_grad_norm` clips element by element, which is no more work.
Rejax evaluates 128 episodes every `eval_freq` steps: here its evaluation is replaced by nothing, and the final return
is measured after the clock has stopped. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import time

NUM_ENVS, NUM_STEPS, NUM_MINIBATCHES, NUM_EPOCHS = 8, 128, 4, 4
ITERATION_BATCH = NUM_ENVS * NUM_STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500 * ITERATION_BATCH, help="environment steps per seed to time")
    parser.add_argument("--seeds", type=int, default=1, help="seeds trained at once, under one vmap in one jit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of XLA's pool; its own choice if left out")
    args = parser.parse_args()
    if args.threads:
        os.environ["PJRT_NPROC"] = str(args.threads)  # read when JAX starts its backend
    import jax
    import jax.numpy as jnp
    from rejax import PPO

    steps = max(args.steps // ITERATION_BATCH, 1) * ITERATION_BATCH
    algorithm = PPO.create(
        env="CartPole-v1",
        agent_kwargs=dict(activation="tanh", hidden_layer_sizes=(64, 64)),
        num_envs=NUM_ENVS,
        num_steps=NUM_STEPS,
        num_minibatches=NUM_MINIBATCHES,
        num_epochs=NUM_EPOCHS,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        learning_rate=2.5e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
    )
    evaluate = algorithm.eval_callback
    algorithm = algorithm.replace(eval_callback=lambda algorithm, state, key: jnp.zeros(()))

    # One seed gets no batch axis: a vmap of width 1 would only slow it down.
    keys = (
        jax.random.PRNGKey(args.seed)
        if args.seeds == 1
        else jax.random.split(jax.random.PRNGKey(args.seed), args.seeds)
    )
    train = algorithm.train if args.seeds == 1 else jax.vmap(algorithm.train)
    begin = time.perf_counter()
    compiled = jax.jit(train).lower(keys).compile()
    compile_seconds = time.perf_counter() - begin

    jax.block_until_ready(compiled(keys))  # warm-up
    begin = time.perf_counter()
    state, _ = jax.block_until_ready(compiled(keys))
    seconds = time.perf_counter() - begin

    first = state if args.seeds == 1 else jax.tree.map(lambda x: x[0], state)
    _, returns = evaluate(algorithm, first, jax.random.PRNGKey(args.seed + 1))
    print(
        json.dumps(
            {
                "library": "rejax",
                "version": importlib.metadata.version("rejax"),
                "steps": steps,
                "seeds": args.seeds,
                "seconds": seconds,
                "compile_seconds": compile_seconds,
                "steps_per_second": args.seeds * steps / seconds,
                "final_return": float(jnp.mean(returns)),
            }
        )
    )


if __name__ == "__main__":
    main()
