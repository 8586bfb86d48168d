"""Zeros that are multiplied: padding along a sum adds nothing, padding beside it stays outside.

Zero times a number is zero, so all of it holds for finite values; where the other factor is garbage
it does not, so rules ask that it is `defined`.
Source: XLA's AlgebraicSimplifier (dot of pad), TensorRight (Arora et al., POPL 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.model.affine import Affine, affine
from eqsat.model.expr import BottomUp, Expr, rebuilt
from eqsat.model.generic import Generic
from eqsat.model.movement import Move, Reshape
from eqsat.model.tensor import is_float
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic
from eqsat.ops.generics.windows import LoopRange, Restricted, restricted
from eqsat.ops.meaning.scalar import typing
from eqsat.ops.movement.moved_generics import zero_text
from eqsat.ops.movement.moves import pad_of, pad_value, unless_identity
from eqsat.ops.movement.view import View, view_of


@dataclass(frozen=True)
class Unpadded:
    """A contraction without the padding of one operand; the slice of the other one, if any."""

    other: Move | None
    sig: Generic


@dataclass(frozen=True)
class PadBehind:
    """A contraction without the padding of one operand, and the pad of its result."""

    other: Move | None
    sig: Generic
    pad: Move


def without_added_zeros(g: Generic) -> Generic | None:
    """The generic whose bodies add and subtract no zeros: the same up to the sign of a zero."""
    types = typing(g.dtypes)

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        expr = rebuilt(e, args)
        if expr.fn not in ("add", "sub"):
            return expr
        a, b = expr.args
        # constants stand last in a commutative body
        is_zero = b.fn == "const" and b.value == 0 and is_float(types(a) or "bool")
        return a if is_zero else expr

    bodies = [BottomUp(step)(y.body) for y in g.yields]
    if all(b == y.body for b, y in zip(bodies, g.yields, strict=True)):
        return None
    yields = (replace(y, body=canonical_body(b)) for b, y in zip(bodies, g.yields, strict=True))
    return replace(g, yields=tuple(yields))


def unpad_sum(g: Generic, i: int, pad: Move) -> Unpadded | None:
    """Σ pad(x) · y over the loops that are padded = Σ x · slice(y)."""
    cuts = _padded_loops(g, i, pad)
    if cuts is None or not all(d in g.reductions for d in cuts):
        return None
    narrowed = restricted(g, cuts)
    return Unpadded(unless_identity(narrowed.operands[1 - i]), narrowed.sig)


def unpad_sums(g: Generic, first: Move, second: Move) -> Generic | None:
    """Σ pad(x) · pad(y), both padded alike by zeros, is Σ x · y whatever else is in them."""
    cuts, others = _padded_loops(g, 0, first), _padded_loops(g, 1, second)
    if cuts is None or cuts != others or not all(d in g.reductions for d in cuts):
        return None
    return restricted(g, cuts).sig


def pad_behind(g: Generic, i: int, pad: Move) -> PadBehind | None:
    """contraction(pad(x), y) = pad(contraction(x, y)) along loops that no sum runs over."""
    cuts = _padded_loops(g, i, pad)
    if cuts is None or not all(d < g.rank for d in cuts):
        return None
    narrowed: Restricted = restricted(g, cuts)
    low = [cuts[d].start if d in cuts else 0 for d in range(g.rank)]
    inside = narrowed.sig.result_shape
    high = [s - a - n for s, a, n in zip(g.result_shape, low, inside, strict=True)]
    around = pad_of(inside, low, high, zero_text(g.yields[0].dtype))
    return PadBehind(unless_identity(narrowed.operands[1 - i]), narrowed.sig, around)


def _padded_loops(g: Generic, i: int, pad: Move) -> dict[int, LoopRange] | None:
    """Where the value itself lies in the loops that walk it; None if another one walks there."""
    if contraction_roles(g) is None or g.tile or pad_value(pad.args[2]) != "0" or 0 in g.sizes:
        return None
    cuts: dict[int, LoopRange] = {}
    for q, (low, high) in enumerate(zip(*pad.args[:2], strict=True)):
        if not low and not high:
            continue
        e, extent = g.maps[i][q], pad.sources[0][q]
        walked = sum(d == e.dim for other in g.maps[i] for d, _ in other.terms)
        if e.dim is None or walked != 1 or not extent or g.sizes[e.dim] != g.shapes[i][q]:
            return None
        cuts[e.dim] = LoopRange(low, 1, extent)
    return cuts or None


# ---- zeros between the elements ------------------------------------------------------------------
def read_between_zeros(
    g: Generic, i: int, split: Reshape, pad: Move, join: Reshape, cut: Move
) -> Generic | None:
    """The contraction that skips the zeros which pad and reshapes put between elements.

    A filter that was spread out is one whose window takes steps: a dilated convolution.
    """
    if contraction_roles(g) is None or g.tile or pad_value(pad.args[2]) != "0" or 0 in g.sizes:
        return None
    steps = _steps(split, pad, join, cut)
    if steps is None:
        return None
    new: dict[int, int] = {}
    for q, step in enumerate(steps):
        d = g.maps[i][q].dim
        walked = sum(loop == d for other in g.maps[i] for loop, _ in other.terms)
        is_whole = d is not None and walked == 1 and g.sizes[d] == g.shapes[i][q]
        if step > 1 and (d is None or d < g.rank or not is_whole):
            return None
        if step > 1 and d is not None:
            new[d] = step
    sizes = [split.source[_at(g, i, d)] if d in new else s for d, s in enumerate(g.sizes)]
    maps = [m if j == i else tuple(_stepped(e, new) for e in m) for j, m in enumerate(g.maps)]
    shapes = [split.source if j == i else s for j, s in enumerate(g.shapes)]
    return canonical_generic(
        sizes, range(g.rank), maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )


def _at(g: Generic, i: int, loop: int) -> int:
    return next(q for q, e in enumerate(g.maps[i]) if e.dim == loop)


def _stepped(e: Affine, steps: dict[int, int]) -> Affine:
    return affine([(d, s * steps.get(d, 1)) for d, s in e.terms], e.constant)


def _steps(split: Reshape, pad: Move, join: Reshape, cut: Move) -> list[int] | None:
    """Per dim, how far apart elements come to lie, the first one first; None if it is no spread."""
    whole: View | None = view_of("reshape", split)
    for op, attr in (("pad", pad), ("reshape", join), ("slice", cut)):
        behind = view_of(op, attr)
        whole = whole.then(behind) if whole is not None and behind is not None else None
    if whole is None or len(whole.source) != len(whole.shape):
        return None
    steps = [
        1 if s == n else (n - 1) // (s - 1) if s > 1 and not (n - 1) % (s - 1) else 0
        for s, n in zip(whole.source, whole.shape, strict=True)
    ]
    is_wider = all(steps) and max(steps, default=1) > 1
    return steps if is_wider and whole == _spread(whole, steps) else None


def _spread(v: View, steps: list[int]) -> View | None:
    """The view that puts so many zeros between the elements, in the ways it may be written."""
    shape, source = v.shape, v.source
    parts = tuple(
        dim for s, t in zip(source, steps, strict=True) for dim in ((s, 1) if t == 1 else (s, t))
    )
    wide = tuple(s * t for s, t in zip(source, steps, strict=True))
    lone = Reshape(source, tuple(x for s in source for x in (s, 1)))
    low = (0,) * len(parts)
    high = tuple(0 if n % 2 == 0 else t - 1 for n, t in enumerate(parts))
    around = pad_of(lone.shape, low, high, "0")
    last = Move("slice", (wide,), ((0,) * len(shape), shape, (1,) * len(shape)), shape)
    whole = view_of("reshape", lone)
    for op, attr in (("pad", around), ("reshape", Reshape(around.shape, wide)), ("slice", last)):
        behind = view_of(op, attr)
        whole = whole.then(behind) if whole is not None and behind is not None else None
    return whole


FUNCTIONS = attr_functions(
    without_added_zeros, unpad_sum, unpad_sums, pad_behind, read_between_zeros
)
