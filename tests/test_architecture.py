"""The table of docs/architecture.md is the order of the packages: imports run downwards, and some import no JAX."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "isobatch"
ROOT_MODULES = {"__init__", "__main__", "errors", "files", "formatting", "drawing"}
LONGEST, LONGEST_MEDIAN = 400, 180  # lines of a module
# Arguments of somebody else's classes, settings of which each has the type of its field, columns of a study's table.
WITH_ANY = {
    *("settings.fields", "torch.ppo_ewma", "torch.sb3_settings", "laboratory.sections.points"),
    *("studies.grid", "studies.scores", "rescaling.alternatives"),
}


def layers() -> list[str]:
    """Packages and modules of the root as the table lists them, from the bottom up."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w/.]+`(?:, )?)+) \|", text, re.MULTILINE)
    return [name.rstrip("/").removesuffix(".py") for row in rows for name in re.findall(r"`([\w/.]+)`", row)]


def without_jax() -> list[str]:
    """Those of which the table says that they never import JAX."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w/.]+`(?:, )?)+) \|.*imports? JAX.*\|$", text, re.MULTILINE)
    return [name.rstrip("/").removesuffix(".py") for row in rows for name in re.findall(r"`([\w/.]+)`", row)]


def modules() -> dict[str, Path]:
    """Module name -> file."""
    return {".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")}


def layer_of(module: str) -> str:
    return module.split(".")[0]


def imports(path: Path) -> set[str]:
    """Layers that a file imports from, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "isobatch":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("isobatch."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("isobatch.")}
    return found


def test_every_package_is_in_the_table() -> None:
    there = {layer_of(name) for name in modules()} - {"__init__", "__main__"}
    assert sorted(layers()) == sorted(there)


def test_few_modules_lie_in_the_root() -> None:
    assert {name for name in modules() if "." not in name} == ROOT_MODULES


@pytest.mark.parametrize("name", sorted(modules().keys() - {"__init__", "__main__"}))
def test_imports_run_downwards(name: str) -> None:
    height = {layer: i for i, layer in enumerate(layers())}
    upwards = {other for other in imports(modules()[name]) if height[other] > height[layer_of(name)]}
    assert not upwards, f"{name} imports {upwards} from above"


def test_modules_of_a_package_do_not_import_each_other_in_circles() -> None:
    graph = {name: module_imports(name) for name in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' -> '.join((*path, name))}"
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def module_imports(name: str) -> set[str]:
    """Modules that a module imports at its top."""
    known, found = modules(), set()
    for node in ast.parse(known[name].read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("isobatch"):
            base = node.module.removeprefix("isobatch").removeprefix(".")
            for alias in node.names:
                full = f"{base}.{alias.name}".removeprefix(".")
                found |= {m for m in (full, f"{full}.__init__", base, f"{base}.__init__") if m in known}
    return found - {name}


def test_modules_are_short() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in modules().values() if path.stat().st_size > 0)
    assert lengths[-1] <= LONGEST
    assert lengths[len(lengths) // 2] <= LONGEST_MEDIAN


@pytest.mark.parametrize("layer", without_jax())
def test_plain_numbers_import_no_jax(layer: str) -> None:
    """Every module of the layer at once, in a process of its own."""
    if layer == "torch":
        pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")
    names = [name.removesuffix(".__init__") for name in modules() if layer_of(name) == layer]
    code = f"import sys, {', '.join('isobatch.' + name for name in names)}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_any_stands_where_no_type_can() -> None:
    used = {
        name for name, path in modules().items() if re.search(r"^from typing import .*\bAny\b", path.read_text(), re.M)
    }
    assert used <= WITH_ANY


def test_nothing_private_of_jax_is_imported() -> None:
    assert not [name for name, path in modules().items() if "jax._src" in path.read_text()]
