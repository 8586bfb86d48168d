"""Attribute functions for ops that read windows: pools behind products, filters that are added.

A pool that adds up windows is linear, as a product is, so the two change places where they read
different dims. Filters of unlike windows over one image are one filter, the smaller one padded.
Sources: DenseNet's transition layers (Huang et al., CVPR 2017); RepVGG (Ding et al., CVPR 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.model.affine import Affine, dim
from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.einsum import (
    UNIT,
    Einsum,
    Factor,
    einsum_of,
    generic_of,
    is_ring,
    is_tenth_less,
    work_of,
)
from eqsat.ops.algebra.linear import REALS
from eqsat.ops.algebra.sums import scaled_value, summed_terms
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import (
    canonical_body,
    canonical_generic,
    identity,
    without_operand,
)
from eqsat.ops.movement.moved_generics import zero_text
from eqsat.ops.movement.moves import pad_of, pad_value, unless_identity


@dataclass(frozen=True)
class PooledFirst:
    """The pool of one operand, and the product that reads it."""

    inner: Generic
    outer: Generic


@dataclass(frozen=True)
class JoinedFilters:
    """The padding of the smaller filter, the sum of both, and what reads the one convolution."""

    pad: Move | None
    sum: Generic
    rest: Generic


# ---- operands of which a window reads less than there is -----------------------------------------
def read_whole(g: Generic, i: int, cut: Move) -> Generic | None:
    """A generic that reads its operand i itself, where it reads the front of it by windows.

    Windows with steps need not reach the end of what they walk, so nothing has to be cut off.
    """
    if g.tile or 0 in g.sizes:
        return None
    start, limit, step = cut.args
    is_front = not any(start) and all(s == 1 for s in step)
    less = [q for q, (n, size) in enumerate(zip(limit, cut.sources[0], strict=True)) if n < size]
    if not is_front or not less or any(len(g.maps[i][q].terms) < 2 for q in less):
        return None
    shapes = [cut.sources[0] if j == i else s for j, s in enumerate(g.shapes)]
    return canonical_generic(
        g.sizes, range(g.rank), g.maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )


# ---- sums over windows of a product --------------------------------------------------------------
def pool_into(g: Generic, h: Generic, i: int) -> PooledFirst | None:
    """g adds up windows of the product h along dims that operand i of h alone has.

    Σ_r (x @ w)[2 p + r] = (Σ_r x[2 p + r]) @ w, where a tenth less is left to multiply.
    """
    f = einsum_of(h)
    if f is None or len(f.factors) != 2 or not _is_pool(g, f) or 0 in g.sizes:
        return None
    at = _pooled_dims(g, f)
    x, y = f.factors[i], f.factors[1 - i]
    if at is None or x.dtype != f.dtype or UNIT in x.loops or len(set(x.loops)) < len(x.loops):
        return None
    windows = {q for q in f.result if g.maps[0][q].dim is None}
    if not windows or not windows <= x.used or windows & y.used:
        return None
    sizes = dict(enumerate(f.sizes)) | {q: g.sizes[at[q]] for q in windows}
    if not is_tenth_less(work_of(sizes, x, y), f.work):
        return None
    order = [q for _, q in sorted((d, q) for q, d in at.items())]
    outer = generic_of(sizes, order, f.factors, f.dtype, f.precision)
    return PooledFirst(_pool(g, x, sizes, at), outer)


def _is_pool(g: Generic, f: Einsum) -> bool:
    if len(g.maps) != 1 or len(g.yields) != 1 or g.tile or g.combine != "add":
        return False
    return g.body == arg(0) and g.dtypes[0] == g.yields[0].dtype == f.dtype and is_ring(f.dtype)


def _pooled_dims(g: Generic, f: Einsum) -> dict[int, int] | None:
    """Dim of what is pooled → the result loop of g that walks it; None if g is no pool."""
    walked = [d for e in g.maps[0] for d, _ in e.terms]
    if sorted(walked) != list(range(len(g.sizes))):
        return None
    loop_of: dict[int, int] = {}
    for q, e in enumerate(g.maps[0]):
        result = [d for d, _ in e.terms if d < g.rank]
        if len(result) != 1 or (e.dim is not None and g.sizes[e.dim] != f.sizes[q]):
            return None
        loop_of[q] = result[0]
    return loop_of


def _pool(g: Generic, x: Factor, sizes: Mapping[int, int], at: Mapping[int, int]) -> Generic:
    """The windows of x, summed."""
    rank = len(x.loops)
    maps: list[Affine] = []
    shape: list[int] = []
    for p, q in enumerate(x.loops):
        e = g.maps[0][q] if q in at else dim(p)
        is_window = q in at and e.dim is None
        new = {d: p if d == at[q] else rank + d - g.rank for d, _ in e.terms} if is_window else {}
        maps.append(e.rename(new) if is_window else dim(p))
        shape.append(g.shapes[0][q] if is_window else sizes[q])
    return canonical_generic(
        [*(sizes[q] for q in x.loops), *g.sizes[g.rank :]], range(rank), [tuple(maps)],
        [tuple(shape)], [Yield(arg(0), x.dtype, "add")], (), (x.dtype,), precision=NONE,
    )  # fmt: skip


# ---- filters of one image that are added ---------------------------------------------------------
def filters_joined(
    e: Generic, ahead: int, between: int, g: Generic, around: Move, h: Generic,
    inside: Move | None = None,
) -> JoinedFilters | None:  # fmt: skip
    """conv(x, w) + conv(x, v) = conv(x, w + pad(v)) for a window of v that lies in that of w.

    e adds, behind `ahead` operands, the convolution g of a padded image and, behind `between` more,
    h of the image or of its pad `inside`; both read it as operand 0. Zeros are added to weights and
    to nothing else, so no zero meets anything that w does not meet.
    """
    form = _filters(e, ahead, ahead + 1 + between, g, h)
    if form is None:
        return None
    a, b, body = form
    return _joined_filters(e, ahead + 1 + between, (a, b), body, g, around, h, inside)


def filters_joined_last(
    e: Generic, ahead: int, between: int, g: Generic, around: Move, h: Generic,
    inside: Move | None = None,
) -> JoinedFilters | None:  # fmt: skip
    """Joined filters where the convolution h with the smaller window stands in front of g."""
    form = _filters(e, ahead, ahead + 1 + between, g, h)
    if form is None:
        return None
    b, a, body = form
    return _joined_filters(e, ahead + 1 + between, (a, b), body, g, around, h, inside)


def _filters(
    e: Generic, i: int, j: int, g: Generic, h: Generic
) -> tuple[Expr, Expr, Expr] | None:  # fmt: skip
    """The constants that e scales its operands i and j by, and its body over their sum."""
    t = e.dtypes[i]
    if t not in REALS or {*g.dtypes, *h.dtypes, e.dtypes[j]} != {t} or g.precision != h.precision:
        return None
    if not (_is_convolution(g) and _is_convolution(h)) or g.result_shape != h.result_shape:
        return None
    if len(e.yields) != 1 or e.tile or e.rank != len(e.sizes) or e.maps[i] != e.maps[j]:
        return None
    return summed_terms(e, i, j, t)


def _joined_filters(
    e: Generic, gone: int, scales: tuple[Expr, Expr], body: Expr, g: Generic, around: Move,
    h: Generic, inside: Move | None,
) -> JoinedFilters | None:  # fmt: skip
    offsets = _offsets(g, around, h, inside)
    dims = None if offsets is None else _same_dims(g, h, offsets)
    shape, t = g.shapes[1], g.dtypes[1]
    if offsets is None or dims is None or not is_tenth_less(math.prod(shape), math.prod(h.sizes)):
        return None
    pad = _filter_pad(g, h, offsets, dims)
    maps = [identity(len(dims)), tuple(dim(dims.index(q)) for q in range(len(dims)))]
    parts = [scaled_value(scale, n, t, t) for n, scale in enumerate(scales)]
    y = Yield(canonical_body(call("add", *parts)), t)
    total = canonical_generic(
        shape, range(len(shape)), maps, [shape, pad.shape], [y], (), (t, t), precision=NONE
    )
    return JoinedFilters(unless_identity(pad), total, without_operand(e, gone, [body], NONE))


def _is_convolution(g: Generic) -> bool:
    is_product = g.body == call("mul", arg(0), arg(1)) and contraction_roles(g) is not None
    return is_product and len(g.yields) == 1 and not g.tile and 0 not in g.sizes


# summed loop of g → (that of h, None for one step, and where its window begins in that of g)
_Windows = dict[int, tuple[int | None, int]]


def _offsets(g: Generic, around: Move, h: Generic, inside: Move | None) -> _Windows | None:
    """Where the window of h lies in that of g; None if it does not, or they read other elements."""
    pads = [around] if inside is None else [around, inside]
    source = around.sources[0]
    if any(pad_value(p.args[2]) != "0" or p.sources[0] != source for p in pads):
        return None
    if inside is None and h.shapes[0] != source:
        return None
    offsets: _Windows = {}
    for q, (x, y) in enumerate(zip(g.maps[0], h.maps[0], strict=True)):
        ours, theirs = ([(d, s) for d, s in m.terms if d >= g.rank] for m in (x, y))
        if [t for t in x.terms if t[0] < g.rank] != [t for t in y.terms if t[0] < g.rank]:
            return None
        gap = (0 if inside is None else -inside.args[0][q]) + y.constant
        gap += around.args[0][q] - x.constant
        if len(ours) > 1 or len(theirs) > len(ours) or (not ours and gap):
            return None
        if not ours:
            continue
        (d, step), (other, other_step) = ours[0], theirs[0] if theirs else (None, ours[0][1])
        first, rest = divmod(gap, step)
        count = 1 if other is None else h.sizes[other]
        is_inside = not rest and first >= 0 and first + count <= g.sizes[d]
        if d in offsets or step != other_step or not is_inside:
            return None
        offsets[d] = (other, first)
    used = [o for o, _ in offsets.values() if o is not None]
    is_all = sorted(used) == list(h.reductions) and sorted(offsets) == list(g.reductions)
    return offsets if is_all else None


def _same_dims(g: Generic, h: Generic, offsets: _Windows) -> list[int] | None:
    """For every dim of w, that of v; None if they are not dim by dim the same but for windows."""
    theirs = [e.dim for e in h.maps[1]]
    lone = [q for q, e in enumerate(h.maps[1]) if e == Affine(()) and h.shapes[1][q] == 1]
    dims: list[int] = []
    for e, size in zip(g.maps[1], g.shapes[1], strict=True):
        if e.dim is None or g.sizes[e.dim] != size:
            return None
        wanted = e.dim if e.dim < g.rank else offsets[e.dim][0]
        if wanted is None and lone:
            dims.append(lone.pop(0))
        elif wanted is not None and theirs.count(wanted) == 1:
            dims.append(theirs.index(wanted))
        else:
            return None
    is_whole = all(d is None or h.sizes[d] == s for d, s in zip(theirs, h.shapes[1], strict=True))
    return dims if is_whole and sorted(dims) == list(range(len(h.maps[1]))) else None


def _filter_pad(g: Generic, h: Generic, offsets: _Windows, dims: list[int]) -> Move:
    low, high = [0] * len(dims), [0] * len(dims)
    for e, q in zip(g.maps[1], dims, strict=True):
        (d, _), *_ = e.terms
        if d >= g.rank:
            low[q] = offsets[d][1]
            high[q] = g.sizes[d] - low[q] - h.shapes[1][q]
    return pad_of(h.shapes[1], low, high, zero_text(h.dtypes[1]))


FUNCTIONS = attr_functions(read_whole, pool_into, filters_joined, filters_joined_last)
