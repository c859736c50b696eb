"""The pages quote what the commands print today, their Python runs, and what they name is there."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from tiny import tiny

from isobatch.envs.registry import make_env
from isobatch.learning.iteration import iterate
from isobatch.learning.state import initial_state
from isobatch.settings.presets import ALGORITHMS
from isobatch.training.metrics import EVALUATION_COLUMNS, columns_of
from isobatch.training.program import EPISODES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(?:#[\w-]+)?\)")  # text and target, without the anchor


def test_quoted_output_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails: `python docs/refresh.py`, and read what changed."""
    spec = importlib.util.spec_from_file_location("refresh", DOCS / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    refresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(refresh)
    assert refresh.main(["--check"]) == 0, capsys.readouterr().out


def test_quoted_commands_work() -> None:
    for page in DOCS.rglob("*.md"):
        assert "isobatch: " not in page.read_text(), f"{page.name} quotes an error"


def test_python_of_the_rescaling_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "rescaling.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_python_of_the_page_for_language_models_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "language-models.md").read_text()
    found = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    exec(found[1], {})
    assert capsys.readouterr().out == found[2]


def test_ladder_rows() -> None:
    first, *_, last = runpy.run_path(str(DOCS / "ladder.py"))["ladder"]()
    assert first[:5] == ("1", "256", "0.0005", "0.888889", "0.000000")
    assert last == ("256", "1", "3.125e-05", "0.999512", "0.992218", "8,192", "0.999589", "0.999996", "32 / 256")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there; a link to source is called `module.name`, and the module defines the name."""
    for text, target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        file = (page.parent / target).resolve()
        assert file.is_file(), f"{page.name}: {target}"
        if file.suffix == ".py" and file.is_relative_to(ROOT / "src"):
            name = text.strip("`")
            assert name.startswith(dotted(file) + "."), f"{page.name}: {text}"
            assert set(name.removeprefix(dotted(file) + ".").split(".")) <= defined(file), f"{page.name}: {text}"


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT / "src" / "isobatch").with_suffix("").parts)


def defined(file: Path) -> set[str]:
    """Functions, classes and methods of a module."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


def test_every_page_is_in_the_index() -> None:
    linked = {(DOCS / target).resolve() for _, target in LINK.findall((DOCS / "README.md").read_text())}
    assert set(DOCS.rglob("*.md")) - linked == {DOCS / "README.md"}


def test_every_algorithm_has_a_page() -> None:
    assert {page.stem for page in (DOCS / "algorithms").glob("*.md")} == {*ALGORITHMS, "README", "staleness"}


def test_metrics_page_has_every_column_and_no_other() -> None:
    """All kinds of metrics: an auxiliary phase, stale data, a value function, an early end; and whole episodes."""
    metrics: set[str] = set()
    everything = tiny(
        "ppg-ewma", staleness=3, total_timesteps=32 * 15, noise_scale=True, stop_at_target_kl=True, objective="clip",
        clip_schedule="linear", clip_value_loss=True, value_clip_schedule="linear",
    )  # fmt: skip
    for config in (everything, tiny("reinforce")):
        env = make_env(config.env)
        start = initial_state(config, env, 0)
        step = partial(iterate, config.static, env)
        metrics |= set(jax.eval_shape(step, start, config.hypers, jnp.int32(0))[1])
    page, _ = (DOCS / "metrics.md").read_text().split("## Columns of timing.csv")
    assert set(re.findall(r"^\| `([\w/]+)` \|", page, re.MULTILINE)) == {
        *columns_of((*metrics, *EPISODES)),
        *EVALUATION_COLUMNS,
    }
