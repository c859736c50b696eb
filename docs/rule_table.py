"""The rescaling rules as a table, for the page that quotes it (see refresh.py)."""

from __future__ import annotations

import re

from preset_tables import table

from isobatch.rescaling.rules import RULES


def rules() -> str:
    """One line per rule, in the order in which they are registered."""
    lines = [
        [
            f"`{rule.name}`",
            "yes" if rule.default else "",
            ", ".join(f"`{name}`" for name in rule.fields),
            f"`{rule.equation}`",
            re.sub(r"arXiv ([\d.]+\d)", r"[arXiv \1](https://arxiv.org/abs/\1)", rule.source),
        ]
        for rule in RULES.values()
    ]
    return table(["rule", "by default", "sets", "to", "source"], lines)


if __name__ == "__main__":
    print(rules())
