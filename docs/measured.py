"""What a benchmark wrote, for the pages that quote it (see refresh.py).

python measured.py asynchrony-speed    benchmarks/results/asynchrony-speed.md, its command first
"""

from __future__ import annotations

import sys
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


def measured(name: str) -> str:
    """The command that made it, and what it wrote."""
    command, _, text = (RESULTS / f"{name}.md").read_text().partition("\n\n")
    return f"{command}:\n\n{text.strip()}"


if __name__ == "__main__":
    print(measured(sys.argv[1]))
