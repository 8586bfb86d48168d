"""Fills: what movement makes of a tensor that holds one value, and a fill read by a generic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, const, literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.moves import pad_of, pad_value

Movement = Layout | Move | Reshape | Generic | tuple[int, ...]


@dataclass(frozen=True)
class MovedFill:
    """A fill, moved; `relaxed` if a pack leaves padding open, which the fill does not."""

    fill: Fill
    relaxed: Layout | None = None


def _like(fill: Fill, shape: Shape) -> Fill:
    return Fill(fill.value, fill.type.with_shape(shape))


def _same(a: Fill, b: Fill) -> bool:
    """One value of one type, NaN included; 0.0 is not -0.0."""
    return a.type.dtype == b.type.dtype and literal(a.value) == literal(b.value)


def moved_fill(fill: Fill, movement: Movement) -> MovedFill | None:
    """Any movement of a fill is a fill, if what it pads is that value.

    A fill of the shape that a layout has packed is unpacked. Indices of gathers are clipped into
    range.
    """
    match movement:
        case Generic():
            return _copied(movement, fill)
        case Layout(source=source) if fill.type.shape != source:
            return MovedFill(_like(fill, source))
        case Layout(pads=pads):
            text = pad_value(literal(fill.value))
            packed = MovedFill(
                _like(fill, movement.packed_shape), movement if "?" in pads else None
            )
            return packed if all(p in ("-", "?", text) for p in pads) else None
        case Move(op="pad", args=(_, _, text)):
            is_same = pad_value(text) == pad_value(literal(fill.value))
            return MovedFill(_like(fill, movement.shape)) if is_same else None
        case Move() | Reshape():
            return MovedFill(_like(fill, movement.shape))
    return MovedFill(_like(fill, tuple([fill.type.shape[p] for p in movement])))


def concat_fills(a: Fill, b: Fill, concat: Move) -> Fill | None:
    """concat(fill, fill) = fill if they hold one value."""
    return _like(a, concat.shape) if _same(a, b) else None


def pad_for_fill(concat: Move, operand: int, fill: Fill) -> Move:
    """concat(x, fill) or concat(fill, x) as a pad of x, the fill being this operand of two."""
    (axis,) = concat.args
    source = concat.sources[1 - operand]
    low, high = [0] * len(source), [0] * len(source)
    (high if operand else low)[axis] = concat.sources[operand][axis]
    return pad_of(source, low, high, literal(fill.value))


def _copied(g: Generic, fill: Fill) -> MovedFill | None:
    """A generic that copies a fill, broadcast or permuted, is a fill; so is its max, min, and, or.

    Bodies that compute are left alone: a fill stands for no rounding.
    """
    (y,) = g.yields if len(g.yields) == 1 else (None,)
    if y is None or y.body != arg(0) or y.combine not in ("", "max", "min", "and", "or"):
        return None
    if y.dtype != fill.type.dtype or 0 in g.sizes:
        return None
    return MovedFill(_like(fill, g.result_shape))


def fold_fill(g: Generic, operand: int, fill: Fill) -> Generic | None:
    """The generic with a fill read as a constant of its body.

    None where the constant would decide an element type by itself: under a cast, or in a function
    of constants only. A packed contraction keeps its operands.
    """
    if g.tile or len(g.maps) < 2:
        return None
    new = {i: arg(i - (i > operand)) for i in range(len(g.maps))} | {operand: const(fill.value)}
    bodies = [y.body.substitute(new) for y in g.yields]
    if not all(_is_typed(b) for b in bodies):
        return None
    kept = [i for i in range(len(g.maps)) if i != operand]
    return canonical_generic(
        g.sizes,
        range(g.rank),
        [g.maps[i] for i in kept],
        [g.shapes[i] for i in kept],
        [replace(y, body=b) for y, b in zip(g.yields, bodies, strict=True)],
        g.tile,
        [g.dtypes[i] for i in kept],
        precision=g.precision,
    )


def _is_typed(body: Expr) -> bool:
    """Whether every function of the body reads something that is not a constant."""
    calls = (e for e in body.walk() if e.args)
    values = (e.args[1:] if e.fn == "select" else e.args for e in calls)
    return body.fn != "const" and all(any(a.fn != "const" for a in args) for args in values)


FUNCTIONS = attr_functions(moved_fill, concat_fills, pad_for_fill, fold_fill)
