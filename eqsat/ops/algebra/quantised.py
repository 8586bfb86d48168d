"""Attribute functions that multiply quantised numbers as the integers they are stored as.

Notation: a dequantisation is (x - z) s for x of a short integer type, a constant z, its zero point,
and a scale s of real numbers. The sum of products of two of them is one of integers, exact in i32
where it cannot overflow, times both scales: what is rounded is another (`tags: [inexact]`).
Source: Jacob et al., arXiv 1712.05877 §2.2 to 2.4; ONNX QLinearConv and QLinearMatMul.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map, dim, map_loops
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call, cast, const, literal
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move
from eqsat.model.target import Target
from eqsat.model.tensor import DTYPES, NONE, SHORT, SIGNIFICAND, is_float
from eqsat.ops.algebra.linear import REALS, factors, times
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps, identity
from eqsat.ops.meaning.scalar import constant_value, hold, integer_range, result_dtype, typing
from eqsat.ops.movement.moves import pad_of, pad_value

Operand = tuple[Map, Shape, str]  # how it is read, its shape and element type


@dataclass(frozen=True)
class IntegerProduct:
    """The sum of products of integers, and both scales behind it."""

    product: Generic
    scaled: Generic


@dataclass(frozen=True)
class ShiftedProduct:
    """The sum of products without the zero point, what it would be multiplied with, and both
    scales behind their difference."""

    product: Generic
    sums: Generic
    scaled: Generic


@dataclass(frozen=True)
class PaddedOperand:
    """The pad of the integers, and their dequantisation."""

    move: Move
    sig: Generic


@dataclass(frozen=True)
class _Dequantised:
    """(x - zero) · scale: x is operand `operand` of g; the scale is of the others, of any type."""

    g: Generic
    operand: int
    zero: int
    scale: Expr

    @property
    def dtype(self) -> str:
        return self.g.dtypes[self.operand]

    @property
    def shape(self) -> Shape:
        return self.g.shapes[self.operand]

    @property
    def largest(self) -> int:
        """Of the absolute values of x - zero."""
        low, high = integer_range(self.dtype)
        return max(abs(low - self.zero), abs(high - self.zero))


# ---- what is a dequantisation --------------------------------------------------------------------
def is_dequantisation(g: Generic) -> bool:
    """Whether a generic turns short integers into f32: (x - z) s for a constant z and a scale s."""
    return any(_dequantised(g, i) is not None for i in range(len(g.maps)))


def _dequantised(g: Generic, i: int) -> _Dequantised | None:
    """g as the dequantisation of its operand i to f32."""
    if g.tile or len(g.yields) != 1 or not g.is_elementwise or g.dtypes[i] not in SHORT:
        return None
    if g.yields[0].dtype != "f32":
        return None
    scale, rest = factors(g.body, lambda j: j != i and g.dtypes[j] in REALS)
    zero = _zero_point(rest, i, g.dtypes)
    if zero is None or result_dtype(scale, g.dtypes) not in ("f32", None):
        return None
    return _Dequantised(g, i, zero, scale)


def _zero_point(e: Expr, i: int, dtypes: tuple[str, ...]) -> int | None:
    """z if `e` is x_i - z, exactly: no cast and no difference on the way wraps or rounds."""
    types, low_high = typing(dtypes), integer_range(dtypes[i])
    if e.fn == "arg":
        return 0 if e.value == i else None
    if e.fn == "cast":
        zero = _zero_point(e.args[0], i, dtypes)
    elif e.fn in ("sub", "add") and _whole(e.args[1]) is not None:
        inner, by = _zero_point(e.args[0], i, dtypes), _whole(e.args[1])
        zero = None if inner is None or by is None else inner + (by if e.fn == "sub" else -by)
    else:
        return None
    dtype = types(e)
    if zero is None or dtype is None:
        return None
    return zero if _holds(dtype, low_high[0] - zero, low_high[1] - zero) else None


def _whole(e: Expr) -> int | None:
    """The value of a constant without a fraction."""
    is_whole = e.fn == "const" and math.isfinite(e.value) and e.value == int(e.value)
    return int(e.value) if is_whole else None


def _holds(dtype: str, low: int, high: int) -> bool:
    """Whether a type has every integer between these two."""
    if is_float(dtype):
        return max(abs(low), abs(high)) <= 2 ** SIGNIFICAND.get(dtype, 0)
    if DTYPES[dtype][1] not in "iu":
        return False
    first, last = integer_range(dtype)
    return first <= low and high <= last


# ---- products ------------------------------------------------------------------------------------
def integer_product(h: Generic, side: int, e: Generic, d: Generic, i: int) -> IntegerProduct | None:
    """Σ s x · t w = s t Σ x w for short integers x and w, where the sum fits i32.

    Operand `side` of the contraction h is e, which dequantises its only operand; the other one is
    d, which dequantises its operand i. Neither has a zero point.
    """
    x, w = _both(h, side, e, d, i)
    if x is None or w is None or x.zero:
        return None
    scaled = _scaled(h, side, x, w, arg(0), ())
    return None if scaled is None else IntegerProduct(_product(h, side, x, w), scaled)


def shifted_integer_product(
    h: Generic, side: int, e: Generic, d: Generic, i: int
) -> ShiftedProduct | None:
    """Σ s (x - z) · t w = s t (Σ x w - z Σ w), as `integer_product` for a zero point z of x.

    The sum that z is multiplied with needs no x: of weights it is known ahead of time.
    """
    x, w = _both(h, side, e, d, i)
    if x is None or w is None or not x.zero:
        return None
    read = h.maps[1 - side]
    if not set(h.reductions) <= map_loops(read):
        return None  # a sum over what w does not see would have to be counted
    parallel = sorted(loop for loop in map_loops(read) if loop < h.rank)
    sums = _sums(h, parallel, compose_maps(w.g.maps[i], read), w)
    beside = tuple(dim(loop) for loop in parallel), sums.result_shape, "i32"
    shifted = call("sub", arg(0), call("mul", arg(1), const(x.zero)))
    scaled = _scaled(h, side, x, w, shifted, (beside,))
    return None if scaled is None else ShiftedProduct(_product(h, side, x, w), sums, scaled)


def difference_product(
    h: Generic, side: int, e: Generic, d: Generic, i: int
) -> IntegerProduct | None:
    """Σ s (x - z) · t (w - y) = s t Σ (x - z) (w - y), as `integer_product` for zero points of w or
    of both. Of bytes without a sign one alone suffices: less 128 they are bytes with one.
    """
    x, w = _both(h, side, e, d, i, differences=True)
    if x is None or w is None or not (w.zero or (x.zero and x.dtype == w.dtype == "u8")):
        return None
    scaled = _scaled(h, side, x, w, arg(0), ())
    return None if scaled is None else IntegerProduct(_product(h, side, x, w, True), scaled)


def _both(
    h: Generic, side: int, e: Generic, d: Generic, i: int, *, differences: bool = False
) -> tuple[_Dequantised | None, _Dequantised | None]:
    """Both operands of h as dequantisations, if h sums products of them whose integers fit i32."""
    y = h.yields[0]
    if contraction_roles(h) is None or h.tile or y.dtype != "f32" or set(h.dtypes) != {"f32"}:
        return None, None
    x, w = (_dequantised(e, 0), _dequantised(d, i)) if len(e.maps) == 1 else (None, None)
    if x is None or w is None or (w.zero and not differences):
        return None, None
    terms = math.prod(h.sizes[loop] for loop in h.reductions)
    fits = terms * x.largest * w.largest < 2**31
    return (x, w) if fits else (None, None)


def _product(
    h: Generic, side: int, x: _Dequantised, w: _Dequantised, differences: bool = False
) -> Generic:
    """The contraction of the integers, or of what they are less their zero points."""
    pair = (x, w) if side == 0 else (w, x)
    maps = [compose_maps(o.g.maps[o.operand], m) for o, m in zip(pair, h.maps, strict=True)]
    a, b = (cast(arg(n), "i32") for n in (0, 1))
    if differences:
        a, b = (
            call("sub", e, const(o.zero)) if o.zero else e
            for e, o in zip((a, b), pair, strict=True)
        )
    y = Yield(call("mul", a, b), "i32", h.combine)
    shapes, dtypes = [o.shape for o in pair], [o.dtype for o in pair]
    return canonical_generic(h.sizes, range(h.rank), maps, shapes, [y], (), dtypes, precision=NONE)


def _sums(h: Generic, parallel: Sequence[int], read: Map, w: _Dequantised) -> Generic:
    """Σ w over the reductions of h."""
    loops = [*parallel, *h.reductions]
    new = {loop: n for n, loop in enumerate(loops)}
    maps = [tuple(e.rename(new) for e in read)]
    y = Yield(cast(arg(0), "i32"), "i32", h.combine)
    sizes = [h.sizes[loop] for loop in loops]
    rank = range(len(parallel))
    return canonical_generic(sizes, rank, maps, [w.shape], [y], (), [w.dtype], precision=NONE)


def _scaled(
    h: Generic, side: int, x: _Dequantised, w: _Dequantised, total: Expr, beside: Sequence[Operand]
) -> Generic | None:
    """The integer `total`, of the product and of what is `beside` it, times both scales.

    None if a scale varies along the sum.
    """
    others = [j for j in range(len(w.g.maps)) if j != w.operand]
    maps = [compose_maps(w.g.maps[j], h.maps[1 - side]) for j in others]
    if any(loop >= h.rank for m in maps for loop in map_loops(m)):
        return None
    operands: list[Operand] = [(identity(h.rank), h.result_shape, "i32"), *beside]
    place = {j: arg(len(operands) + n) for n, j in enumerate(others)}
    operands += [(m, w.g.shapes[j], w.g.dtypes[j]) for m, j in zip(maps, others, strict=True)]
    scale = times(w.scale.substitute(place), x.scale)
    y = Yield(times(cast(total, "f32"), scale), "f32")
    read, shapes, dtypes = zip(*operands, strict=True)
    sizes = h.result_shape
    return canonical_generic(sizes, range(h.rank), read, shapes, [y], (), dtypes, precision=NONE)


# ---- movement ----------------------------------------------------------------------------------
def pad_integers(g: Generic, pad: Move) -> PaddedOperand | None:
    """A padded dequantisation dequantises integers that are padded with what gives the same value.

    g reads nothing but them, as they lie.
    """
    if len(g.maps) != 1 or g.maps[0] != identity(g.rank) or g.shapes[0] != g.result_shape:
        return None
    dequantised = _dequantised(g, 0)
    if dequantised is None:
        return None
    low, high, value = pad.args
    held = constant_value(g.body, {0: hold(dequantised.zero, dequantised.dtype)[()]})
    if (
        pad_value(value) != "0"
        or held != 0
        or not _holds(dequantised.dtype, dequantised.zero, dequantised.zero)
    ):
        return None
    move = pad_of(g.shapes[0], low, high, literal(dequantised.zero))
    sig = canonical_generic(
        move.shape, range(g.rank), g.maps, [move.shape], g.yields, (), g.dtypes, precision=NONE
    )
    return PaddedOperand(move, sig)


# ---- machines ----------------------------------------------------------------------------------
def sums_integers(target: Target) -> bool:
    """Whether products of integers are no slower than those of floats on every device: in kernels,
    on GPUs and on TPUs. XLA computes them one by one on CPUs."""
    machines = [t for _, t in target.devices] or [target]
    return all(t.executor != "xla" or t.units or t.native_tiles for t in machines)


def _any_target() -> bool:
    """Whether products of integers are no slower on the target than those of floats."""
    return True


FUNCTIONS = attr_functions(
    is_dequantisation, integer_product, shifted_integer_product, pad_integers,
    ("target.sums_integers", _any_target),
)  # fmt: skip
