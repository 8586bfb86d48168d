"""Fills: what movement makes of a tensor that holds one value, and a fill read by a generic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, const, literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape
from eqsat.ops.canonical import canonical_generic
from eqsat.ops.declare import attr_functions
from eqsat.ops.moves import pad_of, pad_value
from eqsat.ops.permuted_moves import Perm


@dataclass(frozen=True)
class PackedFill:
    """A packed fill; `relaxed` if the pack leaves padding open, which the fill does not."""

    fill: Fill
    relaxed: Layout | None


def _like(fill: Fill, shape: Shape) -> Fill:
    return Fill(fill.value, fill.type.with_shape(shape))


def _same(a: Fill, b: Fill) -> bool:
    """One value of one type, NaN included; 0.0 is not -0.0."""
    return a.type.dtype == b.type.dtype and literal(a.value) == literal(b.value)


def pack_fill(layout: Layout, fill: Fill) -> PackedFill | None:
    """pack(fill) = fill if the padding is that value, or nothing is padded."""
    if any(p not in ("-", "?", pad_value(literal(fill.value))) for p in layout.pads):
        return None
    return PackedFill(_like(fill, layout.packed_shape), layout if "?" in layout.pads else None)


def unpack_fill(fill: Fill, layout: Layout) -> Fill:
    """unpack(fill) = fill."""
    return _like(fill, layout.source)


def permute_fill(fill: Fill, perm: Perm) -> Fill:
    """transpose(fill, perm) = fill."""
    return _like(fill, tuple(fill.type.shape[p] for p in perm))


def reshape_fill(fill: Fill, groups: Reshape) -> Fill:
    """reshape(fill) = fill."""
    return _like(fill, groups.shape)


def slice_fill(fill: Fill, cut: Move) -> Fill:
    """slice(fill) = fill, and so for gathers: indices are clipped into range."""
    return _like(fill, cut.shape)


def pad_fill(fill: Fill, pad: Move) -> Fill | None:
    """pad(fill) = fill if the padding is that value."""
    if pad_value(pad.args[2]) != pad_value(literal(fill.value)):
        return None
    return _like(fill, pad.shape)


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


def generic_fill(g: Generic, fill: Fill) -> Fill | None:
    """A generic that copies a fill, broadcast or permuted, is a fill; so is its max, min, and, or.

    Bodies that compute are left alone: a fill stands for no rounding.
    """
    (y,) = g.yields if len(g.yields) == 1 else (None,)
    if y is None or y.body != arg(0) or y.combine not in ("", "max", "min", "and", "or"):
        return None
    if y.dtype != fill.type.dtype or 0 in g.sizes:
        return None
    return Fill(fill.value, fill.type.with_shape(g.result_shape))


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


FUNCTIONS = attr_functions(
    pack_fill, unpack_fill, permute_fill, reshape_fill, slice_fill, pad_fill, concat_fills,
    pad_for_fill, generic_fill, fold_fill,
)  # fmt: skip
