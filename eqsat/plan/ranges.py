"""Between which integers the values of a body lie, by the element types of what it reads.

A quantised number less its zero point is of 9 bits at most, whatever type the program computes it
in: a kernel may copy it as a short one, whose products are summed in groups.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.expr import BottomUp, Expr, arg
from eqsat.model.nest import Access, Nest
from eqsat.model.tensor import DTYPES
from eqsat.ops.meaning.scalar import integer_range, typing

Range = tuple[int, int]

SHORT = ("i8", "u8", "i16")  # the first that holds a range is taken


def narrowest(nest: Nest, body: Expr, arguments: Sequence[Access | int]) -> str:
    """The first of `SHORT` that holds every value of an integer body; "" if none does."""
    found = range_of(nest, body, arguments)
    if found is None:
        return ""
    return next((t for t in SHORT if _holds(_type_range(t), found)), "")


def range_of(nest: Nest, body: Expr, arguments: Sequence[Access | int]) -> Range | None:
    """The least and the greatest value that a body may have; None of bodies that are no integers.

    What is read where there is nothing to read, such as pads, counts too.
    """
    given = [_argument(nest, a) for a in arguments]
    dtypes = [nest.stages[a].dtype if isinstance(a, int) else a.dtype for a in arguments]
    dtype = typing(dtypes)

    def step(e: Expr, parts: Sequence[Range | None]) -> Range | None:
        if e.fn == "arg":
            return given[e.value]
        if e.fn == "const":
            return (int(e.value), int(e.value)) if isinstance(e.value, int) else None
        own = _type_range(str(e.value) if e.fn == "cast" else dtype(e) or "")
        known = [x for x in parts if x is not None]
        found = _called(e.fn, known) if len(known) == len(parts) else None
        return found if found is not None and _holds(own, found) else own  # it may wrap

    return BottomUp(step)(body)


def _argument(nest: Nest, a: Access | int) -> Range | None:
    if isinstance(a, Access):
        found = _type_range(a.dtype)
        return _with(found, a.fill) if a.bounds else found
    stage = nest.stages[a]
    if stage.combine:
        return _type_range(stage.dtype)
    found = range_of(nest, stage.body, stage.arguments)
    if not stage.bounds:
        return found
    if len(stage.arguments) == 1:
        return _with(found, stage.fill)
    other = range_of(nest, arg(1), stage.arguments)
    return None if found is None or other is None else _both(found, other)


def _with(found: Range | None, fill: float | None) -> Range | None:
    return None if found is None else _both(found, (int(fill or 0), int(fill or 0)))


def _both(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _called(fn: str, of: Sequence[Range]) -> Range | None:
    """Of exact integers; None where any number of the type may come out."""
    match fn, of:
        case "cast", [x]:
            return x
        case "neg", [(low, high)]:
            return -high, -low
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "mul", [(a, b), (c, d)]:
            ends = a * c, a * d, b * c, b * d
            return min(ends), max(ends)
        case "max", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "min", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "and", [(a, b), (c, d)] if a >= 0 or c >= 0:
            return 0, min(x for low, x in ((a, b), (c, d)) if low >= 0)
        case _:
            return None


def _type_range(dtype: str) -> Range | None:
    """The ends of an integer type, or of bool; None of other types."""
    if dtype == "bool":
        return 0, 1
    return integer_range(dtype) if dtype in DTYPES and DTYPES[dtype][1] in "iu" else None


def _holds(outer: Range | None, inner: Range) -> bool:
    return outer is not None and outer[0] <= inner[0] and inner[1] <= outer[1]
