"""The structured op, and the op that picks one of several results."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.attr import Shape
from eqsat.model.generic import Generic, Result
from eqsat.ops.meaning.structured import evaluate_generic
from eqsat.ops.movement.regions import read_alike, read_by_generic
from eqsat.ops.op import Array, Op, Values


def _results(g: Generic, *operands: Array) -> list[Array]:
    return evaluate_generic(g, operands)


def _result(sources: Sequence[Shape], given: Values) -> Result:
    return Result(given["index"])


OPS = (
    Op(
        "generic", "A loop nest: an indexing map per operand, a scalar body per result.", None,
        numpy=_results, attr=Generic, whole="sig",
        reads=read_by_generic,
    ),
    Op(
        "result", "One of several results.", 1, {"index": "int"},
        numpy=lambda r, *results: results[r.index], attr=Result, make=_result,
        reads=read_alike,
    ),
)  # fmt: skip
