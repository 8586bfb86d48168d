"""The notebook of the documentation runs from top to bottom and shows what it says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from test_docs import steady

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("notebook", DOCS / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # 5 s
def test_every_cell_shows_what_the_notebook_says(runner):
    notebook = json.loads((DOCS / "lab.ipynb").read_text(encoding="utf-8"))
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    shown = runner.run_cells(notebook)
    assert len(shown) == len(cells) > 5
    for cell, text in zip(cells, shown, strict=True):
        wanted = [steady(line) for line in runner.outputs(cell).splitlines()]
        assert [steady(line) for line in text.splitlines()] == wanted


def test_it_is_a_notebook_of_format_4():
    notebook = json.loads((DOCS / "lab.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({c["id"] for c in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert set(cell) >= {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert set(cell) >= {"execution_count", "outputs"}
