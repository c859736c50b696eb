"""List the environments by id, or find those whose id contains the words given.

Without a backend before it an id is that of an environment written in JAX, else Gymnasium's. `module:Id` imports a
module that registers environments with Gymnasium.
"""

from __future__ import annotations

import argparse

from isobatch.cli import console
from isobatch.cli.flags import Parser
from isobatch.envs.catalog import IN_JAX, INSTALL, envpool_ids, gymnasium_limits, is_installed
from isobatch.errors import UsageError, near_matches
from isobatch.formatting import counted, plain_table

COLUMNS = ["id", "observation", "actions", "time limit"]


def add_flags(parser: Parser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="only ids that contain all of these: lunar, envpool/")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    in_jax = {env_id: facts for env_id, facts in IN_JAX.items() if _matches(env_id, args.words)}
    limits = {f"gymnasium/{env_id}": limit for env_id, limit in gymnasium_limits().items()}
    gymnasium = [env_id for env_id in limits if _matches(env_id, args.words)]
    envpool = [env_id for name in envpool_ids() if _matches(env_id := f"envpool/{name}", args.words)]
    if args.words and not (in_jax or gymnasium or envpool):
        known = [*IN_JAX, *limits, *(f"envpool/{name}" for name in envpool_ids())]
        hint = near_matches(" ".join(args.words), known) or "; `isobatch envs` lists them."
        raise UsageError(f"no environment's id contains {' and '.join(map(repr, args.words))}{hint}")
    if args.json:
        keys = ("observation_shape", "action_space", "max_steps")
        envs = [{"id": env_id} | dict(zip(keys, facts, strict=True)) for env_id, facts in in_jax.items()]
        console.print_json({"envs": envs, "gymnasium": gymnasium, "envpool": envpool})
        return 0
    rows = [
        [env_id, " x ".join(map(str, facts.obs_shape)), facts.actions, str(facts.max_steps)]
        for env_id, facts in in_jax.items()
    ]
    if args.words:
        rows += [[env_id, "-", "-", str(limits[env_id] or "-")] for env_id in gymnasium]
        rows += [[env_id, "-", "-", "-"] for env_id in envpool]
        console.out.print(plain_table(COLUMNS, rows))  # may have thousands of rows
        return 0
    console.out.print(console.table("written in JAX", COLUMNS, rows))
    console.out.print()
    names = ", ".join(env_id.removeprefix("gymnasium/") for env_id in gymnasium)
    console.out.print(console.bullet(names, "gymnasium/  "))
    number = f"{counted(len(envpool), 'environment')}: `isobatch envs envpool/`"
    console.out.print()
    console.out.print(console.bullet(number if is_installed() else f"not installed: {INSTALL}", "envpool/  "))
    return 0


def _matches(env_id: str, words: list[str]) -> bool:
    return all(word.lower() in env_id.lower() for word in words)
