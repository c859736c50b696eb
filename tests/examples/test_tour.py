"""The notebook runs from top to bottom, shows what it promises, and is kept without outputs."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

TOUR = Path(__file__).resolve().parent.parent.parent / "examples" / "tour.ipynb"
# Of libraries that Jupyter uses, on import.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def quick(source: str) -> str:
    """With fewer steps."""
    return re.sub(r"total_timesteps=[\d_]+", "total_timesteps=2_048", source)


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    from nbclient import NotebookClient

    notebook = nbformat.read(TOUR, as_version=4)
    for cell in notebook.cells:
        cell.source = quick(cell.source)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    return "".join(output.get("data", {}).get(kind, "") for output in cell.outputs)


def test_results_are_tables_and_curves(cells: list[Any]) -> None:
    trained = next(cell for cell in cells if "result = ib.train" in cell.source)
    assert "<table>" in shown(trained, "text/html")
    assert "<svg" in shown(trained, "text/html")
    assert "final return" in shown(trained, "text/plain")
    for words, expected in {
        "ib.evaluate": "most likely actions, 20 episodes",
        "ib.rescale(": "learning_rate",
        "ib.advise(": "<table>",
        "to_pandas": "charts/episodic_return",
    }.items():
        assert expected in shown(next(cell for cell in cells if words in cell.source), "text/html"), words


def test_a_wrong_name_gets_a_sentence(cells: list[Any]) -> None:
    assert "unknown option 'num_seed'; did you mean num_seeds" in cells[-1].outputs[0].text


def test_the_file_holds_no_outputs() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
