"""Finished parts of a section that takes long: one that was interrupted goes on inside."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from isobatch.laboratory.results import load, store
from isobatch.settings.parsing import SettingsByName

R = TypeVar("R")
ENDING = ".parts"


@dataclass(frozen=True)
class Begun:
    """What lies beside it belongs to the section of this key."""

    section: str


class PartialResults:
    """Results in a folder beside that of the section, as long as it is not complete; nothing is kept without one."""

    def __init__(self, section: Path | None, key: SettingsByName) -> None:
        self.folder = None if section is None else section.with_suffix(ENDING)
        self._key = key
        if self.folder is not None and load(self.folder / "begun.json", key, Begun) is None:
            remove_partial_results(section)
            store(self.folder / "begun.json", key, Begun(str(key["section"])))

    def load(self, name: str, kind: type[R]) -> R | None:
        return None if self.folder is None else load(self.folder / f"{name}.json", self._key, kind)

    def store(self, name: str, result: R) -> R:
        """The result as it will be read."""
        return result if self.folder is None else store(self.folder / f"{name}.json", self._key, result)


def remove_partial_results(section: Path | None) -> None:
    """Of a section that is complete, or of another one at its place."""
    if section is not None:
        shutil.rmtree(section.with_suffix(ENDING), ignore_errors=True)
