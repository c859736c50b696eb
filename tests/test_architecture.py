"""The plan of docs/architecture.md is the house: every module is in it and imports run downwards."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "isobatch"
NO_JAX = [
    *("config", "geometry", "presets", "parsing", "options", "accounting", "errors", "metrics", "config_files"),
    *("rescaling", "rescaling.ladder", "advice", "advice.diagram", "foreign", "cli.main", "cli.rescale", "cli.advise"),
    *("studies.gaps", "studies.normalisation", "studies.catalogue", "studies.report", "cli.study"),
]


def plan() -> list[str]:
    """Modules from the bottom of the house to its top; within a line of the plan from left to right."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    lines = re.search(r"```rooms\n(.*?)```", text, re.DOTALL).group(1).splitlines()
    return [module for line in reversed(lines) for module in reversed(line.split())]


def modules() -> dict[str, Path]:
    """Module name -> file; packages without code of their own do not count."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if path.read_text().strip() and name != "__init__":
            found[name] = path
    return found


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, at the top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "isobatch":
            base = node.module.removeprefix("isobatch").removeprefix(".")
            names |= {f"{base}.{alias.name}".removeprefix(".") for alias in node.names} | {base}
    return names & modules().keys()


def test_every_module_is_in_the_plan() -> None:
    assert sorted(plan()) == sorted(modules())


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_run_downwards(name: str) -> None:
    height = {module: i for i, module in enumerate(plan())}
    upwards = {other for other in imports(modules()[name]) - {name} if height[other] > height[name]}
    assert not upwards, f"{name} imports {upwards} from above"


def test_plain_numbers_import_no_jax() -> None:
    code = f"import sys, {', '.join('isobatch.' + m for m in NO_JAX)}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
