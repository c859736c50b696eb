"""The notebook runs from top to bottom, shows what it promises, and is kept without outputs."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from needs import one_more_case

TOUR = Path(__file__).resolve().parent.parent.parent / "examples" / "tour.ipynb"
# Of libraries that Jupyter uses, on import.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def quick(source: str) -> str:
    """With fewer steps."""
    return re.sub(r"total_timesteps=[\d_]+", "total_timesteps=2_048", source)


@pytest.fixture(scope="module", params=["here", pytest.param("in Jupyter", marks=one_more_case)])
def cells(request: pytest.FixtureRequest) -> list[Any]:
    notebook = nbformat.read(TOUR, as_version=4)
    for cell in notebook.cells:
        cell.source = quick(cell.source)
    if request.param == "here":
        run_here(notebook.cells)
    else:
        from nbclient import NotebookClient

        NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run_here(cells: list[Any]) -> None:
    """By IPython, without a kernel in a process of its own."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell()
    for cell in cells:
        if cell.cell_type == "code":
            with capture_output() as captured:
                result = shell.run_cell(cell.source)
            result.raise_error()
            printed = [nbformat.v4.new_output("stream", text=captured.stdout)] if captured.stdout else []
            data = shell.display_formatter.format(result.result)[0] if result.result is not None else {}
            cell.outputs = [*printed, nbformat.v4.new_output("execute_result", data=data)]


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
