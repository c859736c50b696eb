"""Tables of the presets, for the pages that quote them (see refresh.py).

python preset_tables.py choices    what each algorithm chooses
python preset_tables.py ppo        the settings of one algorithm that differ from the defaults
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from isobatch.settings.config import Config
from isobatch.settings.presets import ALGORITHMS, BY_HAND, preset

CHOICES = (
    "objective",
    "importance_policy",
    "proximal_policy",
    "advantage_norm",
    "aggregation",
    "minibatch_scheme",
)
RATIO = ("importance_policy", "proximal_policy")  # without meaning where the objective has no ratio


def choices() -> str:
    """One line per algorithm, one column per choice."""
    lines = []
    for name in ALGORITHMS:
        settings = usual(name).to_dict()
        unused = RATIO if settings["objective"] == "policy-gradient" else ()
        lines.append([f"[{name}]({name}.md)", *("-" if c in unused else str(settings[c]) for c in CHOICES)])
    return table(["algorithm", *(c.replace("_", " ") for c in CHOICES)], lines)


def differences(algo: str) -> str:
    """One line per setting: its default, the algorithm's, and where an environment's preset differs from that.

    Those that were searched or published elsewhere have pages of their own.
    """
    default, general = Config().to_dict(), usual(algo).to_dict()
    envs = sorted(BY_HAND)
    special = {env: preset(algo, env).to_dict() for env in envs}
    lines = []
    for name in default:
        if name in ("algo", "env"):
            continue
        cells = [shown(general[name]) if general[name] != default[name] else ""]
        cells += [shown(special[env][name]) if special[env][name] != general[name] else "" for env in envs]
        if any(cells):
            lines.append([f"`{name}`", shown(default[name]), *cells])
    return table(["setting", "default", algo, *(f"on {env}" for env in envs)], lines)


def usual(algo: str) -> Config:
    """The algorithm's preset on an environment that has none."""
    return Config().replace(**ALGORITHMS[algo], algo=algo)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    print(choices() if sys.argv[1] == "choices" else differences(sys.argv[1]))
