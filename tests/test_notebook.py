"""The notebook of the documents runs from its first cell to its last, and lies there without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorial" / "notebook.ipynb"


def text_of(outputs: list[nbformat.NotebookNode]) -> str:
    """Return what a cell has printed and shown, as plain text."""
    shown = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "".join(shown)


def test_it_lies_there_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, 4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_it_trains_shows_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, 4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    [best] = [text_of(outputs) for source, outputs in told.items() if source.startswith("run.best")]
    round, accuracy = best.strip("()").split(", ")
    assert 1 <= int(round) <= 15
    assert float(accuracy) > 0.8
    pictures = [
        output for outputs in told.values() for output in outputs if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 2
    assert (tmp_path / "predictions.csv").is_file()
