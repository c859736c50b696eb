"""Run the commands that the pages quote and put what they print in place.

    python docs/refresh.py           rewrite the pages
    python docs/refresh.py --check   exit 1 and name the pages that are out of date

A page quotes a command between two comments; `$` shows it with its output as text, `%` puts the output itself there:

    <!-- $ isobatch rescale --factor 4 -->
    <!-- end -->
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
QUOTE = re.compile(r"(<!-- (?P<kind>[$%]) (?P<command>.*?) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
# Plain text of a fixed width, from the source beside these pages.
SETTING = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
SETTING["PYTHONPATH"] = str(DOCS.parent.resolve() / "src")


def output(command: str) -> str:
    """What a command prints, errors included, without trailing blanks."""
    program, *words = shlex.split(command)
    start = [sys.executable, *(["-m", "isobatch"] if program == "isobatch" else [])]
    done = subprocess.run(
        [*start, *words], cwd=DOCS, env=os.environ | SETTING, capture_output=True, text=True, check=False
    )
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).strip("\n").split("\n"))


def refreshed(page: str) -> str:
    """A page with the output of its commands."""

    def replace(match: re.Match[str]) -> str:
        command = match["command"]
        text = output(command)
        body = text if match["kind"] == "%" else f"```text\n$ {command}\n{text}\n```"
        return f"{match[1]}{body}\n{match[5]}"

    return QUOTE.sub(replace, page)


def main(words: list[str]) -> int:
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        old = path.read_text()
        new = refreshed(old)
        if new != old:
            stale.append(path.name)
            if "--check" not in words:
                path.write_text(new)
    if stale:
        print(f"{'out of date' if '--check' in words else 'rewritten'}: {', '.join(stale)}")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
