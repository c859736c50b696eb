"""Settings as the flags of a command to paste."""

from __future__ import annotations

import json
import shlex

from isobatch.settings.parsing import SettingsByName


def train_command(settings: SettingsByName) -> str:
    """`isobatch train` with these settings."""
    return f"isobatch train {flags_text(settings)}"


def flags_text(settings: SettingsByName) -> str:
    """Settings as flags to paste."""
    words = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words.append(f"{flag} {shlex.quote(_typed(value))}")
    return " ".join(words)


def _typed(value: object) -> str:
    """A value as a flag takes it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)
