"""List the environments by id: those of gymnax with their observations, actions and time limits, then the ids of
Gymnasium and EnvPool."""

from __future__ import annotations

import argparse

from isobatch.cli import console
from isobatch.cli.flags import Parser


def add_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    from isobatch.envs.envpool_backend import INSTALL, envpool_ids
    from isobatch.envs.gymnasium_backend import gymnasium_ids
    from isobatch.envs.registry import env_ids, make_env

    in_jax = {env_id: make_env(env_id) for env_id in env_ids()}
    gymnasium, envpool = gymnasium_ids(), envpool_ids()
    if args.json:
        console.print_json(
            {
                "envs": [
                    {
                        "id": env_id,
                        "observation_shape": env.obs_shape,
                        "action_space": str(env.action_space),
                        "max_steps": env.max_steps,
                    }
                    for env_id, env in in_jax.items()
                ],
                "gymnasium": [f"gymnasium/{env_id}" for env_id in gymnasium],
                "envpool": [f"envpool/{env_id}" for env_id in envpool],
            }
        )
        return 0
    rows = [
        [env_id, " x ".join(map(str, env.obs_shape)), str(env.action_space), str(env.max_steps)]
        for env_id, env in in_jax.items()
    ]
    console.out.print(console.table("written in JAX", ["id", "observation", "actions", "time limit"], rows))
    console.out.print(f"\ngymnasium/, and module:Id for ids that a module registers\n{', '.join(gymnasium)}")
    listing = ", ".join(envpool) or f"not installed: {INSTALL}"
    console.out.print(f"\nenvpool/\n{listing}", markup=False)
    return 0
