"""What a benchmark wrote, for the pages that quote it (see refresh.py).

python measured.py asynchrony-speed    benchmarks/results/asynchrony-speed.md, its command first, and its picture
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"


def measured(name: str) -> str:
    """The command that made it, what it wrote, and what it drew."""
    file, picture = RESULTS / f"{name}.md", Path("images") / f"{name}.png"
    if not file.exists():
        return "Not measured yet."
    command, _, text = file.read_text().partition("\n\n")
    shown = f"\n\n![{name.replace('-', ' ').capitalize()}]({picture})" if (DOCS / picture).exists() else ""
    return f"{command}:\n\n{text.strip()}{shown}"


if __name__ == "__main__":
    print(measured(sys.argv[1]))
