"""Whether an op reads and writes in the order in which tensors lie, or walks across them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Transpose


def moves_innermost(op: str, attr: Attr | None) -> bool:
    """Whether a conversion gives another dim the place of the innermost one above extent 1."""
    match attr:
        case Transpose():
            return _moved(attr.source, attr.perm)
        case Layout() if not attr.is_in_place(op):
            last = _last(attr.source)
            return last is not None and bool(attr.pos) and attr.pos[-1] != last
    return False


def _moved(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether the innermost dim above extent 1 is another one behind a transpose."""
    placed = [d for d in perm if shape[d] > 1]
    return bool(placed) and placed[-1] != _last(shape)


def _last(shape: Shape) -> int | None:
    return next((d for d in reversed(range(len(shape))) if shape[d] > 1), None)


def miswrites(g: Generic) -> bool:
    """Whether the innermost parallel loop is not that of the result's innermost dim."""
    return _inner(g) != _last(g.result_shape)


def _inner(g: Generic) -> int | None:
    """The innermost parallel loop of more than one iteration."""
    return next((d for d in reversed(g.executed) if d < g.rank and g.sizes[d] > 1), None)


def misread(g: Generic) -> Iterator[int]:
    """Operands of a generic whose innermost dim is not the one the loops walk along.

    A reduction may walk along a reduced dim instead, and what an operand repeats costs nothing.
    """
    inner = _inner(g)
    if inner is None:
        return
    for i, (m, shape) in enumerate(zip(g.maps, g.shapes, strict=True)):
        last = _last(shape)
        loops = set() if last is None else {d for d, _ in m[last].terms if g.sizes[d] > 1}
        walked = {d for e in m for d, _ in e.terms}
        if loops and inner in walked and inner not in loops and max(loops) < g.rank:
            yield i
