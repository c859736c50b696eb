"""Environments of gymnax without importing all of gymnax.

`import gymnax` runs every environment, and with them seaborn, pandas, matplotlib and scipy.stats, which draw pictures
that are not used here: about two seconds, of the three that a short run takes. So the table of its ids is read from the
text of its module, and the module of one environment is imported by itself. Where gymnax is imported already, or is not
laid out as expected, `gymnax.make` does what it does.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


def make_gymnax(env_id: str) -> tuple[Any, Any]:
    """As `gymnax.make`: an environment and its default parameters."""
    if "gymnax" not in sys.modules and env_id in (constructors := builtin_constructors()):
        module, name = constructors[env_id]
        try:
            with bare_packages(module):
                env = getattr(importlib.import_module(module), name)()
            return env, env.default_params
        except (ImportError, AttributeError):  # of a gymnax whose modules need their packages
            pass
    return importlib.import_module("gymnax").make(env_id)


@cache
def builtin_constructors() -> dict[str, tuple[str, str]]:
    """Id -> module and class, from the text of `gymnax.registration`; empty if they are not found there."""
    package = PathFinder.find_spec("gymnax")
    if package is None or not package.submodule_search_locations:
        return {}
    try:
        statements = ast.parse((Path(package.submodule_search_locations[0]) / "registration.py").read_text()).body
        imports = [s for s in statements if isinstance(s, ast.ImportFrom)]
        modules = {alias.name: f"{s.module}.{alias.name}" for s in imports for alias in s.names}
        values = {ast.unparse(t): s.value for s in statements for t in targets_of(s)}  # type: ignore[attr-defined]
        ids, table = ast.literal_eval(values["_BUILTIN_ENV_IDS"]), values["_builtins"]
        found = {
            ast.literal_eval(key): (modules[value.value.id], value.attr)
            for key, value in zip(table.keys, table.values, strict=True)
        }
        return {env_id: found[env_id] for env_id in ids}
    except (OSError, SyntaxError, ValueError, KeyError, AttributeError):
        return {}


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


@contextmanager
def bare_packages(module: str) -> Iterator[None]:
    """The packages above `module` are there to import from, but what is in their `__init__` is not run.

    Everything of theirs is forgotten at the end, so that a later `import gymnax` gets all of it; what was taken out of
    the module in between goes on working.
    """
    root, *names = module.split(".")[:-1]
    packages = [root]
    for name in names:
        packages.append(f"{packages[-1]}.{name}")
    try:
        path = None
        for package in packages:
            spec = PathFinder.find_spec(package, path)
            if spec is None or spec.submodule_search_locations is None:
                raise ImportError(f"no package {package}")
            bare = sys.modules[package] = ModuleType(package)
            bare.__path__ = path = list(spec.submodule_search_locations)
        yield
    finally:
        for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
            del sys.modules[name]
