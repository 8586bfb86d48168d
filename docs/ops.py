"""Writes the table of docs/ops.md: what every op of eqsat has, and why it has not what it has not.

`python docs/ops.py` or `make docs`; tests/test_ops.py holds the page against the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from eqsat.execute.lowering import LOWERINGS
from eqsat.export.mlir.ops import WRITERS as MLIR
from eqsat.export.onnxmodel.model import WRITERS as ONNX
from eqsat.hunt.generate import PROPOSERS, propose
from eqsat.hunt.nests import Scale, Surroundings
from eqsat.model.control import CONTROL
from eqsat.ops.generics.access import access
from eqsat.ops.op import Op
from eqsat.ops.registry import builtin_ops

PAGE = Path(__file__).parent / "ops.md"
FRONTENDS = Path(__file__).parent.parent / "eqsat" / "frontends"
MISSING = "**missing**"
BOUND = "bound by the program"
BROUGHT = "brought by the program"
# capability -> op -> why it has none
ABSENT: dict[str, dict[str, str]] = {
    "rules": {"input": "leaf"} | dict.fromkeys(("opaque", *CONTROL), "barrier"),
    "NumPy": dict.fromkeys(("input", "weight"), BOUND)
    | dict.fromkeys(("opaque", *CONTROL), BROUGHT),
    "access": dict.fromkeys(("input", "weight", "fill"), "leaf")
    | dict.fromkeys(("opaque", *CONTROL), "unknown"),
    "hunt": {"input": "variable", "result": "with its op"}
    | dict.fromkeys(("opaque", *CONTROL), "barrier"),
    "MLIR": dict.fromkeys(("input", "weight"), "argument or constant")
    | {"result": "by name", "opaque": "refused"}
    | dict.fromkeys(CONTROL, "scf"),
    "ONNX": dict.fromkeys(("input", "weight"), "argument or constant")
    | {"result": "by name", "opaque": "refused"}
    | {"scan": "Scan or Loop", "while_loop": "Loop", "cond": "If"},
    "made by": dict.fromkeys(("retype", "relax"), "rules") | {"transfer": "placement"},
}  # fmt: skip
_CONSTANTS = {"scan": "SCAN", "while_loop": "WHILE", "cond": "COND"}
ABSENT["JAX"] = ABSENT["NumPy"]


def _terms(r: Op) -> str:
    keys = [f"{k}?" if k in r.optional else k for k in r.keys]
    return f"`{', '.join(keys)}`" if r.in_rules else ""


def _access(r: Op) -> str:
    """Of an instance that the hunt proposes."""
    if r.name not in PROPOSERS or r.operands == 0:
        return "its own" if r.name == "result" else ""
    known = Surroundings(Random(0), Scale(), (None,) * (r.operands or 2), None, "f32")
    attr = propose(r.name, known)
    shapes = attr.operand_shapes(r.name) or ()
    if r.name == "generic" and not shapes:
        return ""
    return "map" if access(r.name, attr, 0, shapes[0]) is not None else ""


def _made_by(r: Op) -> str:
    """Front ends whose code names the op; every op can be read from text."""
    named = re.compile(rf'"{r.name}"|\b{_CONSTANTS.get(r.name, "(?!)")}\b')

    def name_it(paths: Iterable[Path]) -> bool:
        return any(named.search(p.read_text(encoding="utf-8")) for p in paths)

    if name_it(FRONTENDS.glob("*.py")):
        return "front ends"
    return "MLIR" if name_it(FRONTENDS.glob("mlir/*.py")) else ""


CAPABILITIES: dict[str, Callable[[Op], str]] = {
    "fuses as": lambda r: r.kind,
    "rules": _terms,
    "NumPy": lambda r: "yes" if r.numpy else "",
    "JAX": lambda r: "yes" if r.jax or r.name in LOWERINGS else "",
    "access": _access,
    "hunt": lambda r: "yes" if r.sample or r.name in PROPOSERS else "",
    "MLIR": lambda r: "yes" if r.name in MLIR else "",
    "ONNX": lambda r: "yes" if r.name in ONNX else "",
    "made by": _made_by,
}


def rows() -> list[list[str]]:
    """Per op: its name, and a word per capability."""
    return [
        [
            name,
            *(told(r) or ABSENT.get(c, {}).get(name, MISSING) for c, told in CAPABILITIES.items()),
        ]
        for name, r in sorted(builtin_ops().items())
    ]


def table() -> str:
    """The table in Markdown."""
    head = ["op", *CAPABILITIES]
    lines = [head, ["---"] * len(head), *([f"`{name}`", *words] for name, *words in rows())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(page: str) -> str:
    """The page with its table as it is now."""
    start = page.index("| op |")
    end = page.index("\n\n", start) + 1
    return page[:start] + table() + page[end:]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
