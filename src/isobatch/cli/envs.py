"""List the environments by id, with their observations, actions and time limits."""

from __future__ import annotations

import argparse

from isobatch.cli import console
from isobatch.cli.flags import Parser


def add_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    from isobatch.envs import env_ids, make_env

    found = {env_id: make_env(env_id) for env_id in env_ids()}
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
                    for env_id, env in found.items()
                ]
            }
        )
        return 0
    rows = [
        [env_id, " x ".join(map(str, env.obs_shape)), str(env.action_space), str(env.max_steps)]
        for env_id, env in found.items()
    ]
    console.out.print(console.table("", ["id", "observation", "actions", "time limit"], rows))
    return 0
