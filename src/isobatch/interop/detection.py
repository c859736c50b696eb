"""Whose settings a text holds: the library of which it has the most names."""

from __future__ import annotations

from collections.abc import Iterable

from isobatch.errors import UsageError
from isobatch.interop.keys import find
from isobatch.interop.library import Library
from isobatch.settings.parsing import SettingsByName

SURE_NAMES = 6  # that a library has to know to be taken at its word
OTHER_NAMES = 3  # that another library has to know for a text to look like its own,
TIMES_AS_MANY = 2  # and so many times as many as the one that was named
LOOKED_AT = 5  # entries of a file that has many


def names_known(library: Library, settings: SettingsByName) -> int:
    """How many settings of a library these hold, for the algorithm of which they have the most."""
    return max(
        sum(bool(key.fields) and find(settings, key.names) is not None for key in keys)
        for keys in library.algorithms.values()
    )


def likely_library(text: str, libraries: Iterable[Library]) -> tuple[Library, int] | None:
    """The library that knows the most names of a text, and how many."""
    candidates = []
    for library in libraries:
        try:
            some: list[str | None] = [*library.form.entries(text)[:LOOKED_AT]] or [None]
            known = max(names_known(library, library.form.parse(text, entry)[0]) for entry in some)
        except UsageError:
            continue
        candidates.append((library, known))
    best = max(candidates, key=lambda pair: pair[1], default=None)
    return best if best and best[1] else None


def check_whose(library: Library, settings: SettingsByName, text: str, libraries: Iterable[Library]) -> None:
    """Raise if none of these settings is the library's, or many more are another's."""
    known = names_known(library, settings)
    if known >= SURE_NAMES:
        return
    likely = _another(library, text, libraries)
    if likely and likely[1] >= max(OTHER_NAMES, TIMES_AS_MANY * known):
        raise UsageError(
            f"{likely[1]} of its settings are {likely[0].title}'s and {known} are {library.title}'s: "
            f"read it with --from-{likely[0].name}."
        )
    if not known:
        names = [key.names[0] for keys in library.algorithms.values() for key in keys if key.fields]
        raise UsageError(
            f"none of its settings is one of {library.title}, such as {', '.join(names[:4])}: check which file it is."
        )


def refusal(library: Library, text: str, libraries: Iterable[Library], error: UsageError) -> UsageError:
    """What to say of a text that a library cannot parse: whose it looks like, or else what is wrong with it."""
    likely = _another(library, text, libraries)
    if likely and likely[1] >= OTHER_NAMES:
        return UsageError(f"it looks like settings of {likely[0].title}: read it with --from-{likely[0].name}.")
    return error


def _another(library: Library, text: str, libraries: Iterable[Library]) -> tuple[Library, int] | None:
    return likely_library(text, [other for other in libraries if other is not library])
