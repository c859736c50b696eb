"""Rescale every published settings file under some folders in both directions, and back again.

    python benchmarks/published_files.py DIR_OR_FILE... [--json FILE]

The folders hold checkouts or unpacked archives of other libraries (rl_zoo3, Isaac Lab, mjlab, rl_games, MuJoCo
Playground, PufferLib, ML-Agents, TorchRL, ...); they are only read. For each entry of each file whose library is
recognized: written unchanged it is the same text; with half and with twice the environments it is written, read again
and rescaled back; then every setting has its old value. Numbers are compared as numbers, to 14 digits: `1e-4`, which
YAML takes for a text, comes back as 0.0001.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isobatch import interop
from isobatch.errors import UsageError
from isobatch.interop.detection import likely_library
from isobatch.interop.keys import find
from isobatch.interop.library import Library, LibrarySettings
from isobatch.rescaling import rescale
from isobatch.settings.config import Config

SUFFIXES = (".yaml", ".yml", ".ini", ".py", ".json")
ENOUGH = 4  # names that a library has to know of a file
PYTHON_MARKS = ("num_mini_batches", "unroll_length")
ENVIRONMENTS = (None, 4096, 3072, 1225)
"""Numbers to try where a file leaves it to a script; the last ones for minibatches that these do not divide."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR_OR_FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts and the failures there too")
    args = parser.parse_args(words)
    counts: dict[str, Counter[str]] = {}
    failures: list[str] = []
    for folder in args.folders:
        within = folder.rglob("*") if folder.is_dir() else [folder]
        for path in sorted(path for path in within if path.suffix in SUFFIXES and path.is_file()):
            text = path.read_text(errors="replace")
            if path.suffix == ".py" and not any(word in text for word in PYTHON_MARKS):
                continue
            for library in libraries_of(text):
                row = counts.setdefault(library.title, Counter())
                row["files"] += 1
                for entry in library.form.entries(text) or [None]:
                    row["entries"] += 1
                    for result, trouble in checked(library, text, entry, algorithm(path)):
                        row[result] += 1
                        if trouble:
                            failures.append(
                                f"{library.title}: {path.relative_to(folder.parent)} {entry or ''}: {trouble}"
                            )
    print(table(counts))
    for failure in failures:
        print(failure)
    if args.json:
        args.json.write_text(json.dumps({"counts": counts, "failures": failures}, indent=1))
    return 1 if failures else 0


def libraries_of(text: str) -> list[Library]:
    """The library that knows the most of a file; a Python file can hold functions of several."""
    several = [library for library in interop.LIBRARIES.values() if "\ndef " in text and _has_entries(library, text)]
    if several:
        return several
    likely = likely_library(text, [library for name, library in interop.LIBRARIES.items() if name != "cleanrl"])
    return [likely[0]] if likely and likely[1] >= ENOUGH else []


def _has_entries(library: Library, text: str) -> bool:
    try:
        return bool(library.form.entries(text))
    except UsageError:
        return False


def algorithm(path: Path) -> str:
    return "a2c" if "a2c" in path.stem and path.suffix == ".yml" else "ppo"


def checked(library: Library, text: str, entry: str | None, algo: str) -> Iterator[tuple[str, str]]:
    """What was done with an entry, and what went wrong, if something did."""
    try:
        there = first_read(library, text, entry, algo)
    except UsageError as error:
        yield "refused", str(error)
        return
    outside = find(there.settings, ("n_envs",)) is None and library.name == "zoo" and there.config.num_envs > 1
    if there.text(there.config) == text or outside:  # where n_envs is left to a script, it is added
        yield "unchanged", ""
    else:
        yield "failed", "written unchanged it is another text"
    for name in ("larger", "smaller"):
        try:
            trouble = there_and_back(there, entry, algo, larger=name == "larger")
        except UsageError as error:
            trouble = str(error)
        yield (f"{name} and back", "") if not trouble else ("failed", f"{name}: {trouble}")


def first_read(library: Library, text: str, entry: str | None, algo: str) -> LibrarySettings:
    """The settings, with the first number of environments that fits where the file does not say it."""
    error = UsageError("")
    for number in ENVIRONMENTS:
        overrides = None if number is None else {"num_envs": number}
        try:
            there = interop.read(library, text, env=entry, algo=algo, overrides=overrides)
        except UsageError as complaint:
            error = error if str(error) else complaint
            continue
        if number or library.name != "zoo" or "n_envs" in there.settings or there.env:
            return there
    raise error


def there_and_back(there: LibrarySettings, entry: str | None, algo: str, *, larger: bool) -> str:
    """What is another value after the way there and back, in words, or nothing."""
    after, text = resized(there, larger=larger)
    overrides = {"num_envs": after.num_envs} if there.config.num_envs in ENVIRONMENTS else None
    again = interop.read(there.library, text, env=entry, algo=algo, overrides=overrides)
    back = rescale(again.config, num_envs=there.config.num_envs, num_steps=there.config.num_steps).after
    written = again.write(back)
    new = flat(written)
    changed = [name for name, old in flat(there.settings).items() if not same(new.get(name), old)]
    if changed == [("batch_size",)] and there.config.num_minibatches == back.num_minibatches == 1:
        return ""  # above the rollout it means all of it, and comes back as that
    return ", ".join(f"{'.'.join(map(str, name))} is {new.get(name)!r}" for name in changed)


def flat(settings: Any, way: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Every value by the names on the way to it."""
    if not isinstance(settings, dict) or not settings:
        return {way: settings}
    return {name: value for key, part in settings.items() for name, value in flat(part, (*way, key)).items()}


def resized(there: LibrarySettings, *, larger: bool) -> tuple[Config, str]:
    """Twice or half the environments; where that is no whole number, another divisor, or half the steps."""
    config = there.config
    ways: list[dict[str, Any]] = [{"factor": factor} for factor in ((0.5,) if larger else (2, 3, 5, 7, 11, 13))]
    ways += [] if larger else [{"num_steps": config.num_steps // 2}]
    error = UsageError("")
    for way in ways:
        try:
            after = rescale(config, **way).after
            return after, there.text(after)
        except UsageError as complaint:
            error = error if str(error) else complaint
    raise error


def same(new: Any, old: Any) -> bool:
    if new == old:
        return True
    try:
        new, old = (value.removeprefix("lin_") if isinstance(value, str) else value for value in (new, old))
        return math.isclose(float(new), float(old), rel_tol=1e-14)
    except (TypeError, ValueError):
        return False


def table(counts: dict[str, Counter[str]]) -> str:
    columns = ["files", "entries", "unchanged", "larger and back", "smaller and back", "refused", "failed"]
    rows = [[title, *(str(row[name]) for name in columns)] for title, row in counts.items()]
    lines = [["library", *columns], ["---", *["---:"] * len(columns)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
