"""Runs the cells of docs/lab.ipynb as a notebook would and keeps what they show.

`make docs` writes the outputs into the notebook; tests/test_notebook.py compares them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "lab.ipynb"


def run_cells(notebook: dict[str, Any]) -> list[str]:
    """What each code cell prints, then its last expression as text; one namespace for all."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    return [_run("".join(c["source"]), f"cell {i}", names) for i, c in enumerate(cells)]


def _run(source: str, where: str, names: dict[str, Any]) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
            if value is not None:
                print(repr(value))
    return out.getvalue()


def outputs(cell: dict[str, Any]) -> str:
    """The text that a cell of the file shows."""
    return "".join(line for o in cell["outputs"] for line in o["text"])


def fill() -> None:
    """Write into the notebook what its cells show now."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    found = iter(run_cells(notebook))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            text = next(found)
            stream = {"name": "stdout", "output_type": "stream"}
            cell["outputs"] = [stream | {"text": text.splitlines(keepends=True)}] if text else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    fill()
