"""Bodies with an element type on every expression, as languages without implicit types need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.model.expr import Expr
from eqsat.model.generic import Generic, Yield
from eqsat.ops import scalar


@dataclass(frozen=True, eq=False)
class Typed:
    """`fn` as in `Expr`; dtype is that of its value. Equal subtrees of a body are one object."""

    fn: str
    args: tuple[Typed, ...]
    dtype: str
    value: Any = None  # operand number of "arg", Python scalar of "const"


def typed_yields(g: Generic) -> list[Typed]:
    """The body of every result, cast to the result's element type."""
    found = Annotator(g.dtypes)
    return [found.result(y) for y in g.yields]


class Annotator:
    """Annotates the bodies of one generic; constants take the type of what stands beside them."""

    def __init__(self, dtypes: Sequence[str]):  # of the operands
        self.dtypes = dtypes
        self._known: dict[tuple[Expr, str], Typed] = {}

    def result(self, y: Yield) -> Typed:
        """The body of a result in its element type."""
        return convert(self.annotate(y.body, y.dtype), y.dtype)

    def annotate(self, e: Expr, wanted: str) -> Typed:
        """`wanted`: the element type if only constants decide it."""
        key = (e, wanted)
        if key not in self._known:
            self._known[key] = self._annotate(e, wanted)
        return self._known[key]

    def _annotate(self, e: Expr, wanted: str) -> Typed:
        if e.fn == "arg":
            return Typed("arg", (), str(self.dtypes[e.value]), e.value)
        if not e.operands():
            return constant(scalar.evaluate(e, []), self._type(e) or wanted)
        if e.fn == "cast":
            return convert(self.annotate(e.args[0], e.value), e.value)
        return self._call(e, wanted)

    def _type(self, e: Expr) -> str | None:
        return scalar.result_dtype(e, self.dtypes)

    def _call(self, e: Expr, wanted: str) -> Typed:
        function = scalar.FUNCTIONS[e.fn]
        first = 1 if e.fn == "select" else 0
        strong = [t for t in map(self._type, e.args[first:]) if t is not None]
        peer = strong[0] if strong else wanted
        args = [convert(self.annotate(a, "bool"), "bool") for a in e.args[:first]]
        args += [self.annotate(a, peer) for a in e.args[first:]]
        dtype = "bool" if function.result == "bool" else peer
        return Typed(e.fn, tuple(args), dtype)


def constant(value: Any, dtype: str) -> Typed:
    """A constant in the held form of its element type."""
    return Typed("const", (), dtype, scalar.hold(np.asarray(value), dtype).item())


def convert(x: Typed, dtype: str) -> Typed:
    """x in this element type, as XLA's ConvertElementType has it."""
    return x if x.dtype == dtype else Typed("cast", (x,), dtype)
