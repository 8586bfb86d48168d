"""Small functions of linalg, tensor and arith, one per kind of op, as one module each."""

from __future__ import annotations

import re
from pathlib import Path

# encodings and a function that is called, then the functions
_BEFORE, *_FUNCTIONS = re.split(
    r"^(?=func\.func @)", (Path(__file__).parent / "programs.mlir").read_text("utf-8"), flags=re.M
)
FUNCTIONS = {text.split("(")[0].removeprefix("func.func @"): text for text in _FUNCTIONS}


def module(names: list[str] | None = None) -> str:
    """One module with these functions, or all of them."""
    return _BEFORE + "\n".join(FUNCTIONS[n].rstrip("\n") + "\n" for n in names or FUNCTIONS)
