"""The versions that results depend on."""

from __future__ import annotations

import importlib.metadata
import platform

PACKAGES = (
    "isobatch",
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "gymnax",
    "gymnasium",
    "envpool",
    "numpy",
)


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed[package] = "not installed"
    return installed


def difference(expected: dict[str, str], installed: dict[str, str]) -> str:
    """Packages that are installed where the grid was begun, and are not the same here."""
    return " and ".join(
        f"{name} {installed[name]} where {version} is used"
        for name, version in expected.items()
        if version != "not installed" and installed[name] != version
    )
