"""Attribute functions that move scales and shifts through contractions and into weights.

Notation: a contraction r[m, n] = Σ_k x[m, k] · w[k, n], in any transposition, batched, or with the
windows of a convolution. All of it reorders floating point (`tags: [inexact]`), holds on finite
values, and is left to f64, f32, f16 and bf16: integer scales would overflow the weight's type.
Sources: Jacob et al., arXiv 1712.05877 (batch norm folding); NumPy semantics of `ops.meaning`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.model.affine import Affine, Map, dim, map_loops
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.einsum import is_times_less
from eqsat.ops.algebra.linear import (
    ONE,
    REALS,
    as_dtype,
    factors,
    fold_scale,
    terms,
    times,
    uncast,
    wider,
)
from eqsat.ops.algebra.simplify import simplified
from eqsat.ops.contractions.roles import contraction_roles, mixed_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic, identity
from eqsat.ops.meaning.scalar import result_dtype

Loops = dict[int, int]  # loop of one generic -> loop of another
_FEWER = 8  # a scale moves if it then scales so many times fewer elements: it costs little there


@dataclass(frozen=True)
class FoldedScale:
    """The weight times a scale, and the reader of the contraction without it."""

    weight: Generic
    rest: Generic


@dataclass(frozen=True)
class FoldedNorm:
    """The operand without scales, the weight times one scale, the result times the other."""

    rest: Generic
    weight: Generic
    scaled: Generic


@dataclass(frozen=True)
class ScaledSum:
    """A sum times a constant."""

    scaled: Generic


@dataclass(frozen=True)
class FoldedAffine:
    """The operand without scale and shift, the weight times the scale, the shift's contraction,
    and the sum of both."""

    rest: Generic
    weight: Generic
    bias: Generic
    total: Generic


# ---- what these functions accept -----------------------------------------------------------------
def _is_plain(g: Generic) -> bool:
    """One elementwise result, not packed, of real numbers."""
    is_elementwise = len(g.yields) == 1 and g.rank == len(g.sizes) and not g.tile
    # an operand that is not read is indexed at 0, which has to exist
    return is_elementwise and g.yields[0].dtype in REALS and all(map(math.prod, g.shapes))


def _is_real_contraction(g: Generic) -> bool:
    types = {*g.dtypes, *(y.dtype for y in g.yields)}
    return contraction_roles(g) is not None and not g.tile and types <= REALS


def whole_dims(g: Generic, operand: int) -> Loops:
    """Loop → dim of the operand, for loops that walk a whole dim and occur nowhere else in it."""
    m, shape = g.maps[operand], g.shapes[operand]
    bare = [e.dim for e in m]
    return {
        d: q
        for q, d in enumerate(bare)
        if d is not None
        and g.sizes[d] == shape[q]
        and bare.count(d) == 1
        and d not in mixed_dims(m)
    }


def renamed(m: Map, loops: Loops) -> Map:
    return tuple(e.rename(loops) for e in m)


def _allowed(g: Generic, loops: Loops, never: int = -1) -> frozenset[int]:
    """Operands of real numbers, but for `never`, that are indexed by these loops only."""
    return frozenset(
        j
        for j, m in enumerate(g.maps)
        if j != never and map_loops(m) <= loops.keys() and g.dtypes[j] in REALS
    )


def _with_operand(
    g: Generic,
    i: int,
    operand: tuple[Map, Shape, str],
    loops: Loops,
    sizes: Sequence[int],
    rank: int,
    y: Yield,
    precision: str = NONE,
) -> Generic:
    """Another loop nest over the operands of g, with another operand i.

    loops: those of g → the new ones. What the body does not read stands at element 0; the rule
    drop-unread-operand takes it away, as a rule's right side lists all operands of its left side.
    """
    used = set(y.body.operands())
    maps = [
        renamed(m, loops) if j in used and j != i else tuple(Affine(()) for _ in m)
        for j, m in enumerate(g.maps)
    ]
    shapes, dtypes = list(g.shapes), list(g.dtypes)
    maps[i], shapes[i], dtypes[i] = operand
    return canonical_generic(sizes, range(rank), maps, shapes, [y], (), dtypes, precision=precision)


def _scaled(
    x: tuple[Map, Shape, str], sizes: Shape, scale: Expr, g: Generic, i: int, loops: Loops
) -> Generic:
    """x · scale in the place of operand i of g, computed in the wider type and rounded to x's."""
    dtype, scale = x[2], uncast(scale, g.dtypes)
    scale_dtype = result_dtype(scale, g.dtypes)
    wide = wider(dtype, scale_dtype or dtype)
    product = times(as_dtype(scale, scale_dtype, wide), as_dtype(arg(i), dtype, wide))
    body = as_dtype(product, wide, dtype)
    return _with_operand(g, i, x, loops, sizes, len(sizes), Yield(body, dtype))


def _scaled_weight(h: Generic, side: int, scale: Expr, g: Generic, i: int, loops: Loops) -> Generic:
    """w · scale over the dims of w; `loops`: those of g → dims of w."""
    shape = h.shapes[side]
    return _scaled((identity(len(shape)), shape, h.dtypes[side]), shape, scale, g, i, loops)


def _with_body(g: Generic, body: Expr) -> Generic:
    return replace(g, yields=(replace(g.yields[0], body=canonical_body(body)),))


# ---- a scale behind a contraction ----------------------------------------------------------------
def fold_scale_behind(g: Generic, i: int, h: Generic, side: int) -> FoldedScale | None:
    """g reads r = h(x, w) as operand i: a scale of r that only w's surviving dims see goes into w.

    f(A · r + B) = f(r' + B) with r' = h(x, w · A); `side` says which operand of h is w. Constants,
    scales per channel and batch norm at inference are of this form.
    """
    if not _is_plain(g) or not _is_real_contraction(h):
        return None
    reader = whole_dims(g, i)
    if len(reader) != len(g.maps[i]):
        return None
    dims = {d: q for d, q in whole_dims(h, side).items() if d < h.rank}
    # dim q of r is loop q of h
    loops = {d: dims[q] for d, q in reader.items() if q in dims}
    allowed = _allowed(g, loops, never=i)
    folded = fold_scale(g.body, i, g.dtypes, allowed.__contains__)
    if folded is None:
        return None
    weight = _scaled_weight(h, side, folded.scale, g, i, loops)
    return FoldedScale(weight, _with_body(g, folded.body))


# ---- a scale or a shift in front of a contraction ------------------------------------------------
def _shared(h: Generic, side: int, other: int | None, parallel: bool) -> Loops:
    """Dims of operand `side` of h → the loops of h that are these dims, whole.

    other: only loops that are whole dims of that operand too. parallel: only ones that survive.
    """
    mine = whole_dims(h, side)
    theirs = mine if other is None else whole_dims(h, other)
    return {q: d for d, q in mine.items() if d in theirs and (d < h.rank or not parallel)}


def scales_apart(h: Generic, reader: int, e: Generic, i: int) -> FoldedNorm | None:
    """(x · r · s) @ y = (x @ (s · y)) · r, where that scales an eighth of the elements or less.

    Operand `reader` of h is e, x operand i of e; r of dims the sum does not run over, s of y's.
    """
    if not _is_plain(e) or not _is_real_contraction(h):
        return None
    smaller = math.prod(h.shapes[1 - reader]) <= math.prod(h.result_shape)
    folded = _norm(h, reader, e, i, behind_first=not smaller)
    if folded is None:
        return None
    scaled = sum(
        math.prod(g.result_shape) for g in (folded.weight, folded.scaled) if g.body.fn != "arg"
    )
    return folded if is_times_less(scaled, math.prod(e.sizes), _FEWER) else None


def scale_sum(g: Generic, h: Generic, side: int, m: Generic) -> ScaledSum | None:
    """c · (Σ x @ w) = (c · Σ x) @ w for a constant c, where the sum has no more elements.

    g is nothing but the scale, h the contraction, m the sum, its operand `side`: a mean is seen.
    """
    t = m.yields[0].dtype
    if not _is_plain(g) or not _is_real_contraction(h) or g.maps != (identity(g.rank),):
        return None
    if len(m.yields) != 1 or m.combine != "add" or not m.reductions or m.tile or t not in REALS:
        return None
    scale, rest = factors(g.body, lambda _: False)
    if rest != arg(0) or {t, g.dtypes[0], g.yields[0].dtype} != {t}:
        return None
    shape = h.shapes[side]
    if contraction_roles(m) is not None or math.prod(shape) > math.prod(h.result_shape):
        return None
    y = Yield(canonical_body(times(arg(0), scale)), t)
    maps = [identity(len(shape))]
    return ScaledSum(
        canonical_generic(shape, range(len(shape)), maps, [shape], [y], (), (t,), precision=NONE)
    )


def fold_norm_before(h: Generic, side: int, e: Generic, i: int) -> FoldedNorm | None:
    """(x · r · s) @ w = (x @ (s · w)) · r, r of dims the sum does not run over, s of w's dims.

    Operand 1 - `side` of h is e, x is operand i of e, such as an RMS norm with its scale; `side`
    says which operand is w. None if there is no s: then `scales_apart` says the same.
    """
    if not _is_plain(e) or not _is_real_contraction(h):
        return None
    folded = _norm(h, 1 - side, e, i, behind_first=False)
    return None if folded is None or folded.weight.body.fn == "arg" else folded


def _norm(
    h: Generic, reader: int, e: Generic, i: int, *, behind_first: bool
) -> FoldedNorm | None:  # fmt: skip
    other = 1 - reader
    dims, shared = whole_dims(h, other), _shared(h, reader, other, parallel=False)
    rows = _shared(h, reader, None, parallel=True)
    beside, behind = _allowed(e, shared).__contains__, _allowed(e, rows).__contains__
    first, rest = factors(e.body, behind if behind_first else beside)
    second, rest = factors(rest, beside if behind_first else behind)
    s, r = (second, first) if behind_first else (first, second)
    if first == second == ONE or not _is_operand(rest, e, i):
        return None
    weight = _scaled_weight(h, other, s, e, i, {q: dims[d] for q, d in shared.items()})
    result = (identity(h.rank), h.result_shape, h.yields[0].dtype)
    scaled = _scaled(result, h.result_shape, r, e, i, rows)
    return FoldedNorm(_operand(e, i), weight, scaled)


def _is_operand(rest: Expr, e: Generic, i: int) -> bool:
    """Whether what is left of an op is its operand i, so that the op is gone.

    Not needed for the algebra: anything else is one more value, with layouts of its own.
    """
    return simplified(rest, e.dtypes) == arg(i) and e.dtypes[i] == e.yields[0].dtype


def _operand(e: Generic, i: int) -> Generic:
    """Operand i alone, over the loops of e."""
    y = Yield(arg(0), e.dtypes[i])
    return canonical_generic(
        e.sizes, range(e.rank), [e.maps[i]], [e.shapes[i]], [y], (), [e.dtypes[i]], precision=NONE
    )


def fold_affine_before(h: Generic, side: int, e: Generic, i: int) -> FoldedAffine | None:
    """(x · s + b) @ w = x @ (s · w) + b @ w for s and b that vary along w's dims only; s may be 1.

    Operand 1 - `side` of h is e, x operand i of e; b @ w then needs nothing but weights.
    """
    if not _is_plain(e) or not _is_real_contraction(h):
        return None
    if not set(h.reductions) <= map_loops(h.maps[side]):
        return None  # b @ w would have to count the loops it does not see
    shared = _shared(h, 1 - side, side, parallel=False)
    allowed = _allowed(e, shared).__contains__
    rest, shift = terms(e.body, allowed)
    if rest is None or shift is None:
        return None
    scale, rest = factors(rest, allowed)
    if not _is_operand(rest, e, i):
        return None
    dims = whole_dims(h, side)
    weight = _scaled_weight(h, side, scale, e, i, {q: dims[d] for q, d in shared.items()})
    parallel = sorted(d for d in map_loops(h.maps[side]) if d < h.rank)
    bias = _bias(h, side, e, i, shift, shared, parallel)
    return FoldedAffine(_operand(e, i), weight, bias, _sum(h, bias, parallel))


def _sum(h: Generic, bias: Generic, parallel: Sequence[int]) -> Generic:
    """The result of h plus what `bias` gives along some of its dims."""
    dtype = h.yields[0].dtype
    return canonical_generic(
        h.result_shape,
        range(h.rank),
        [identity(h.rank), tuple(dim(d) for d in parallel)],
        [h.result_shape, bias.result_shape],
        [Yield(call("add", arg(0), arg(1)), dtype)],
        (),
        (dtype, dtype),
        precision=NONE,
    )


def _bias(
    h: Generic,
    side: int,
    e: Generic,
    i: int,
    shift: Expr,
    loops: Loops,
    parallel: Sequence[int],
) -> Generic:
    """b @ w: the contraction over w's loops, w in the place of operand i of e."""
    walked = [*parallel, *h.reductions]
    new = {d: n for n, d in enumerate(walked)}
    b = as_dtype(shift, result_dtype(shift, e.dtypes), e.yields[0].dtype)
    body = h.body.substitute({side: arg(i), 1 - side: b})
    w = (renamed(h.maps[side], new), h.shapes[side], h.dtypes[side])
    sizes = tuple(h.sizes[d] for d in walked)
    inner = {q: new[d] for q, d in loops.items()}
    y = replace(h.yields[0], body=body)
    return _with_operand(e, i, w, inner, sizes, len(parallel), y, h.precision)


FUNCTIONS = attr_functions(
    fold_scale_behind, fold_norm_before, scales_apart, scale_sum, fold_affine_before
)
