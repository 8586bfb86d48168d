"""Slices and pads through generics, in both directions, and tensors of one value through all of it.

Contractions are left alone: a slice of a product is another product, which would be packed by
every tile once more (growth, not soundness).
Source: MLIR DataLayoutPropagation.cpp (`populateExtractSliceSinkingPatterns`), without padding the
other operands by garbage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, const, literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape
from eqsat.model.tensor import is_float
from eqsat.ops.contractions.roles import contraction_roles, mixed_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, without_operand
from eqsat.ops.generics.propagate import folded_padding
from eqsat.ops.movement.moves import pad_of, pad_value, slice_of, unless_identity

WINDOW = 4  # a slice that leaves out less than one in so many is a window of nearly everything


@dataclass(frozen=True)
class MovedOperands:
    """A generic on moved operands (None: as it is)."""

    operands: tuple[Move | None, ...]
    sig: Generic


@dataclass(frozen=True)
class MovedResult:
    """A generic on unmoved operands, and the move of its result."""

    sig: Generic
    move: Move


def write_moved(g: Generic, move: Move) -> MovedOperands | None:
    """The generic on sliced or zero-padded operands that writes its result so."""
    return slice_generic(g, move) if move.op == "slice" else pad_generic(g, move)


def _is_movable(g: Generic) -> bool:
    return bool(g.maps) and not g.tile and len(g.yields) == 1 and contraction_roles(g) is None


def _resized(g: Generic, sizes: dict[int, int], shapes: Sequence[Shape]) -> Generic:
    """The generic over loops of other extents; sizes: loop → extent."""
    extents = [sizes.get(d, s) for d, s in enumerate(g.sizes)]
    return canonical_generic(
        extents, range(g.rank), g.maps, shapes, g.yields, g.tile, g.dtypes, precision=g.precision
    )


# ---- slices ------------------------------------------------------------------------------------
def slice_generic(g: Generic, cut: Move) -> MovedOperands | None:
    """slice(generic(xs)) = generic(slice(xs)); stride 1, cut loops bare in every map."""
    start, limit, stride = cut.args
    loops = {d: (start[d], limit[d]) for d in range(g.rank) if cut.shape[d] != cut.sources[0][d]}
    if not _is_movable(g) or not loops or 0 in cut.shape or any(stride[d] != 1 for d in loops):
        return None
    if any(mixed_dims(m) & loops.keys() for m in g.maps) or _is_window(g, loops):
        return None
    moves = [_operand_slice(g, i, loops) for i in range(len(g.maps))]
    sizes = {d: b - a for d, (a, b) in loops.items()}
    sig = _resized(g, sizes, [m.shape for m in moves])
    return MovedOperands(tuple(unless_identity(m) for m in moves), sig)


def _is_window(g: Generic, loops: dict[int, tuple[int, int]]) -> bool:
    """Whether a slice without the beginning keeps most of what several operands vary along.

    Such slices come with others that overlap them (x[1:] beside x[:-1], as in a recurrence of
    splines): nothing is saved by making each by itself, and of n in a row there are n² / 2.
    """
    for d, (low, high) in loops.items():
        vary = sum(any(e.dim == d for e in m) for m in g.maps)
        if low and vary > 1 and WINDOW * (high - low) >= (WINDOW - 1) * g.sizes[d]:
            return True
    return False


def _operand_slice(g: Generic, operand: int, loops: dict[int, tuple[int, int]]) -> Move:
    shape = g.shapes[operand]
    start, limit = [0] * len(shape), list(shape)
    for q, e in enumerate(g.maps[operand]):
        if e.dim in loops:
            start[q], limit[q] = loops[e.dim]
    return slice_of(shape, start, limit, [1] * len(shape))


def generic_slice(g: Generic, operand: int, cut: Move) -> MovedResult | None:
    """The generic that reads all of operand i, sliced behind; no other one has the cut loops."""
    start, limit, stride = cut.args
    if not _is_movable(g) or cut.shape == cut.sources[0] or 0 in cut.shape:
        return None
    loops: dict[int, int] = {}
    for q, (size, whole) in enumerate(zip(cut.shape, cut.sources[0], strict=True)):
        if size == whole:
            continue
        d = g.maps[operand][q].dim
        if d is None or d >= g.rank or stride[q] != 1 or g.sizes[d] != size:
            return None
        if sum(loop == d for m in g.maps for e in m for loop, _ in e.terms) != 1:
            return None
        loops[d] = q
    shapes = [cut.sources[0] if i == operand else s for i, s in enumerate(g.shapes)]
    sig = _resized(g, {d: cut.sources[0][q] for d, q in loops.items()}, shapes)
    rank = range(g.rank)
    return MovedResult(
        sig,
        slice_of(
            sig.result_shape,
            [start[loops[d]] if d in loops else 0 for d in rank],
            [limit[loops[d]] if d in loops else g.sizes[d] for d in rank],
            [1] * g.rank,
        ),
    )


# ---- pads --------------------------------------------------------------------------------------
def zero_text(dtype: str) -> str:
    """The text of a zero, as front ends write it."""
    return literal(False) if dtype == "bool" else literal(0.0 if is_float(dtype) else 0)


def _keeps_zero(g: Generic, loop: int) -> bool:
    """Whether the body is 0 where every operand that this loop indexes is 0.

    The loop has to be a bare, whole dim wherever it is used.
    """
    for shape, m in zip(g.shapes, g.maps, strict=True):
        at = [q for q, e in enumerate(m) if e.dim == loop]
        if loop in mixed_dims(m) or len(at) > 1 or any(shape[q] != g.sizes[loop] for q in at):
            return False
    value = folded_padding(g, 0, loop, "0")
    return value is not None and bool(value == 0)


def _is_zero(pad: Move) -> bool:
    return pad_value(pad.args[2]) == "0"


def pad_generic(g: Generic, pad: Move) -> MovedOperands | None:
    """pad(generic(xs), 0) = generic(pad(xs, 0)) where the body keeps zeros.

    Elementwise generics only; each padded loop is judged by the operands that it indexes.
    """
    if not _is_movable(g) or g.reductions or not _is_zero(pad):
        return None
    low, high, _ = pad.args
    padded = {d: (low[d], high[d]) for d in range(g.rank) if low[d] or high[d]}
    if not all(_keeps_zero(g, d) for d in padded):
        return None
    if not padded:
        return None
    moves = [_operand_pad(g, i, padded) for i in range(len(g.maps))]
    sizes = {d: g.sizes[d] + a + b for d, (a, b) in padded.items()}
    sig = _resized(g, sizes, [m.shape for m in moves])
    return MovedOperands(tuple(unless_identity(m) for m in moves), sig)


def _operand_pad(g: Generic, operand: int, padded: dict[int, tuple[int, int]]) -> Move:
    amounts = [padded.get(-1 if e.dim is None else e.dim, (0, 0)) for e in g.maps[operand]]
    low, high = [a for a, _ in amounts], [b for _, b in amounts]
    return pad_of(g.shapes[operand], low, high, zero_text(g.dtypes[operand]))


def generic_pads(g: Generic, pads: tuple[Move, ...]) -> MovedResult | None:
    """The generic in front of zero pads, where all operands are padded alike.

    generic(pad(xs, 0)) = pad(generic(xs), 0) for elementwise generics whose body keeps zeros.
    """
    if not _is_movable(g) or g.reductions or not all(_is_zero(p) for p in pads):
        return None
    padded: dict[int, tuple[int, int]] = {}
    for m, pad in zip(g.maps, pads, strict=True):
        for e, a, b in zip(m, pad.args[0], pad.args[1], strict=True):
            if not a and not b:
                continue
            if e.dim is None or padded.setdefault(e.dim, (a, b)) != (a, b):
                return None
    if not all(_keeps_zero(g, d) for d in padded):
        return None
    if not padded or [_operand_unpad(g, i, padded) for i in range(len(pads))] != [
        p.sources[0] for p in pads
    ]:
        return None
    sizes = {d: g.sizes[d] - a - b for d, (a, b) in padded.items()}
    sig = _resized(g, sizes, [p.sources[0] for p in pads])
    if 0 in sig.sizes:
        return None
    low, high = ([padded.get(d, (0, 0))[k] for d in range(g.rank)] for k in (0, 1))
    return MovedResult(sig, pad_of(sig.result_shape, low, high, zero_text(g.yields[0].dtype)))


def _operand_unpad(g: Generic, operand: int, padded: dict[int, tuple[int, int]]) -> Shape:
    """The shape of an operand without the padding of all padded loops."""
    sizes = zip(g.maps[operand], g.shapes[operand], strict=True)
    return tuple(s - sum(padded.get(-1 if e.dim is None else e.dim, (0, 0))) for e, s in sizes)


# ---- tensors of one value ------------------------------------------------------------------------
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
    bodies = [y.body.substitute({operand: const(fill.value)}) for y in g.yields]
    if not all(_is_typed(b) for b in bodies):
        return None
    return without_operand(g, operand, bodies, g.precision)


def _is_typed(body: Expr) -> bool:
    """Whether every function of the body reads something that is not a constant."""
    calls = (e for e in body.walk() if e.args)
    values = (e.args[1:] if e.fn == "select" else e.args for e in calls)
    return body.fn != "const" and all(any(a.fn != "const" for a in args) for args in values)


FUNCTIONS = attr_functions(
    ("write_behind", write_moved),
    ("read_before", generic_slice),
    generic_pads,
    moved_fill,
    concat_fills,
    pad_for_fill,
    fold_fill,
)
