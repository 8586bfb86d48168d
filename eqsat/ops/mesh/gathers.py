"""Gathers whose table is cut along the dim that they gather along, and what a device does then.

Each device has a block of the rows. What it is asked for that is not of its block counts as 0, and
the result is in parts of a sum. Or the indices are cut as well, and those of a block read rows of
this block alone: in a gather of a batch, `x[b, i[b]]`, the rows of one item lie behind those of the
other, and an index is `b * rows + i`. That is read off the body which computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.model.affine import dim
from eqsat.model.expr import BottomUp, Expr
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Program
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.meaning.scalar import integer_range

MASKED = "rows"  # the cut whose result is in parts
LARGEST = integer_range("i32")[1]


def own_rows(dim: int) -> str:
    """The cut of the rows, and of the indices in this dim, which read no others."""
    return f"{MASKED} of {dim}"


def cuts_rows(name: str) -> bool:
    """Whether a cut of a gather divides what it gathers along."""
    return name.startswith(MASKED)


def batch_dims(program: Program, node: int) -> tuple[int, ...]:
    """The dims of a gather's indices along which these, cut into blocks, read one block of rows."""
    n = program.nodes[node]
    if n.op != "gather":
        return ()
    assert isinstance(n.attr, Move)
    index = program.nodes[n.operands[1]]
    g, (source, shape) = index.attr, n.attr.sources
    if not isinstance(g, Generic) or len(g.yields) != 1 or g.combine:
        return ()
    rows = source[n.attr.args[0]]
    dims = [d for d, size in enumerate(shape) if size and rows % size == 0]
    counts = [_counts(program, index.operands, g, d) for d in dims]
    found = [_values(g.body, c, shape[d]) for d, c in zip(dims, counts, strict=True)]
    return tuple(d for d, v in zip(dims, found, strict=True) if _is_own(v, rows // shape[d]))


@dataclass(frozen=True)
class _ItemValues:
    """What an expression may be in item b of a batch: b * step + something in low … high."""

    step: int
    low: float
    high: float


_ANY = _ItemValues(0, -float("inf"), float("inf"))


def _is_own(v: _ItemValues, rows: int) -> bool:
    return v.step == rows and v.low >= 0 and v.high < rows


def _counts(program: Program, operands: Sequence[int], g: Generic, d: int) -> list[_ItemValues]:
    """Of each operand of the index, where loop d counts the batch."""
    counts = []
    for o, m, dtype in zip(operands, g.maps, g.dtypes, strict=True):
        leaf = program.nodes[o].attr
        if not (isinstance(leaf, Leaf) and program.nodes[o].op == "weight" and is_iota(leaf)):
            counts.append(_ANY if is_float(dtype) else _ItemValues(0, *integer_range(dtype)))
        elif m == (dim(d),) and leaf.type.shape == (g.sizes[d],):
            counts.append(_ItemValues(1, 0, 0))
        else:
            counts.append(_ItemValues(0, 0, leaf.type.shape[0] - 1))
    return counts


def _values(body: Expr, operands: Sequence[_ItemValues], batch: int) -> _ItemValues:
    def step(e: Expr, args: Sequence[_ItemValues]) -> _ItemValues:
        found = _value(e, args, operands, batch)
        most = abs(found.step) * (batch - 1) + max(abs(found.low), abs(found.high))
        return found if most <= LARGEST else _ANY  # nothing wraps around

    return BottomUp(step)(body)


def _value(
    e: Expr, args: Sequence[_ItemValues], operands: Sequence[_ItemValues], batch: int
) -> _ItemValues:
    match e.fn, args:
        case "arg", _:
            return operands[e.value]  # type: ignore[index]
        case "const", _ if isinstance(e.value, int):
            return _ItemValues(0, e.value, e.value)
        case "cast", [a] if e.value in ("i32", "i64"):
            return a
        case "add", [a, b]:
            return _ItemValues(a.step + b.step, a.low + b.low, a.high + b.high)
        case "mul", [a, b] if a.low == a.high and not a.step:
            return _scaled(b, int(a.low))
        case "mul", [a, b] if b.low == b.high and not b.step:
            return _scaled(a, int(b.low))
        case "clamp", [least, a, most] if not (least.step or most.step):
            inside = least.high <= min(a.low, a.low + a.step * (batch - 1))
            inside &= max(a.high, a.high + a.step * (batch - 1)) <= most.low
            return a if inside else _ItemValues(0, least.low, most.high)
    return _ANY


def _scaled(v: _ItemValues, by: int) -> _ItemValues:
    ends = sorted((v.low * by, v.high * by))
    return _ItemValues(v.step * by, *ends)


# ---- on one device -------------------------------------------------------------------------------
def own_index(xp: Any, index: Any, block: Any, rows: int, blocks: int) -> tuple[Any, Any]:
    """The indices into a block of the rows, and whether each reads a row of this block.

    xp: NumPy or jax.numpy. block: the number of the device's, of so many of `rows` each.
    """
    inside = xp.clip(index, 0, rows * blocks - 1) - block * rows
    return inside, (inside >= 0) & (inside < rows)
