"""How packs and transposes move through generics, and what that asks of the other operands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.model.affine import Affine, dim
from eqsat.model.expr import literal, read_literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.tensor import NO_INFINITY, NO_ZERO, is_float
from eqsat.ops.contractions.roles import bare_dims, contraction_roles, tile_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.meaning import scalar
from eqsat.ops.movement.layout import Layouts, induced, tile_domain
from eqsat.ops.movement.lists import inverse, is_block_diagonal, is_open

Value = Any  # a scalar in held form


@dataclass(frozen=True)
class PackedResult:
    """A generic whose result has the layout asked for."""

    operands: Layouts
    sig: Generic
    relaxed: Layout | None  # the layout, if the generic defines lanes that it leaves open


@dataclass(frozen=True)
class PackedOperand:
    """A generic that reads one operand packed; `before` and `after` are the operands around it."""

    before: Layouts
    after: Layouts
    sig: Generic
    result: Layout | None  # None: no tiled loop is left, the result is as it was
    mask: Layout | None  # the padding the operand must have; None: it has it
    read: Layout | None  # the layout, if it leaves lanes open: all that holds the same is one value


def pack_result(g: Generic, layout: Layout, index: int = 0) -> PackedResult | None:
    """The generic that writes its result (the one of several) packed, on packed operands.

    A padded result is possible only where the body makes the padding from that of its operands.
    Contractions are packed by tiles only: any other layout of theirs has no reader.
    """
    if g.tile or not g.maps or contraction_roles(g) is not None or index >= len(g.yields):
        return None
    pads = {
        d: _pad_of_operands(g, index, d, p) for d, p in zip(layout.pos, layout.pads, strict=True)
    }
    if None in pads.values():
        return None
    rank = {d: i for i, d in enumerate(layout.outer)}
    tiled = tile_domain(
        g,
        tuple(zip(layout.pos, layout.tiles, strict=True)),
        lambda j: induced(rank, g.maps[j]),
        lambda j, d: (pads[d] or "-") if j is not None else layout.pads[layout.pos.index(d)],
        layout.outer,
    )
    if tiled is None or tiled.result != layout or not any(tiled.operands):
        return None
    open_dims = [d for d, p in zip(layout.pos, layout.pads, strict=True) if p == "?"]
    carried = {d for j in g.yields[index].body.operands() for d in bare_dims(g.maps[j])}
    return PackedResult(
        tiled.operands, tiled.sig, None if carried.issuperset(open_dims) else layout
    )


def _pad_of_operands(g: Generic, index: int, d: int, pad: str) -> str | None:
    """Padding of operands beyond loop d for a result that holds `pad` there; None without one."""
    if pad in ("-", "?"):
        return pad
    wanted = padding_value(pad, g.yields[index].dtype)
    carriers = [t for t, m in zip(g.dtypes, g.maps, strict=True) if d in bare_dims(m)]
    for candidate in dict.fromkeys(("0", pad)):
        if not all(padding_value(candidate, t) == read_literal(candidate) for t in carriers):
            continue  # an integer operand holds no inf
        value = folded_padding(g, index, d, candidate)
        if value is not None and _same(value, wanted) and _survives_itself(g, index, value):
            return candidate
    return None


def _survives_itself(g: Generic, index: int, value: Value) -> bool:
    """Whether reductions of nothing but `value` give it again: 0 + 0 = 0, but 2 + 2 is not 2."""
    twice = {"add": np.add, "mul": np.multiply}.get(g.yields[index].combine)
    if twice is None:
        return True
    with np.errstate(all="ignore"):
        return _same(twice(value, value), value)


def padding_value(pad: str, dtype: str) -> Value:
    """The padding as a scalar of an element type, in held form; NaN where it has no zero."""
    value = scalar.hold(read_literal(pad), dtype)[()]
    return np.float64(np.nan) if dtype in NO_ZERO and value == 0 else value


def folded_padding(g: Generic, index: int, d: int, pad: str) -> Value | None:
    """The body where loop d is beyond its end and every operand that runs over it holds `pad`."""
    padding = {
        j: padding_value(pad, g.dtypes[j]) for j, m in enumerate(g.maps) if d in bare_dims(m)
    }
    y = g.yields[index]
    value = scalar.constant_value(y.body, padding)
    return None if value is None else scalar.hold(value, y.dtype)[()]


def _same(a: Value, b: Value) -> bool:
    return bool(a == b)


def pack_operand(
    g: Generic, i: int, layout: Layout, index: int | None = None
) -> PackedOperand | None:
    """The generic that reads operand i packed; its result (the one of several) is unpacked instead.

    The other operands get the packs the tiled loops ask for; beyond a parallel loop they may hold
    anything. Beyond a reduction loop all must hold what makes the body neutral (0 for a sum, -inf
    for a maximum): `mask` asks for it where the operand itself holds something else.
    """
    if g.tile or contraction_roles(g) is not None or (index is None and len(g.yields) > 1):
        return None
    m = g.maps[i]
    tiling: list[tuple[int, int]] = []
    needed: dict[int, str] = {}
    for q, t, pad in zip(layout.pos, layout.tiles, layout.pads, strict=True):
        d = m[q].dim
        neutral = None if d is None or d < g.rank or pad == "-" else neutral_padding(g, d, pad)
        if d is None or (neutral is None and d >= g.rank and pad != "-"):
            return None
        if neutral is not None:
            needed[d] = neutral
        tiling.append((d, t))
    rank = {d: slot for slot, q in enumerate(layout.outer) if (d := m[q].dim) is not None}
    parallel = {d: r for d, r in rank.items() if d < g.rank}
    cut = any(d < g.rank for d, _ in tiling)  # else no layout of the result can undo an order
    order = induced(parallel if cut else {}, tuple(dim(d) for d in range(g.rank)))
    tiled = tile_domain(
        g, tiling, lambda j: induced(rank, g.maps[j]), lambda _, d: needed.get(d, "?"), order
    )
    if tiled is None:
        return None
    mine = tiled.operands[i]
    if mine is None or replace(mine, pads=layout.pads) != layout:
        return None
    pads = [needed.get(m[q].dim or 0, p) for q, p in zip(layout.pos, layout.pads, strict=True)]
    mask = replace(layout, pads=tuple(pads))
    others = tiled.operands
    return PackedOperand(
        others[:i],
        others[i + 1 :],
        tiled.sig,
        tiled.result,
        None if mask == layout else mask,
        layout if is_open(layout) else None,
    )


def neutral_padding(g: Generic, d: int, held: str) -> str | None:
    """A padding beyond reduction loop d that changes no result; what is `held` already is best."""
    for pad in dict.fromkeys((held, "0", *_neutrals(g))):
        if pad == "?":
            continue
        values = [folded_padding(g, n, d, pad) for n in range(len(g.yields))]
        if all(
            v is not None and _same(v, scalar.hold(scalar.neutral(y.combine, y.dtype), y.dtype)[()])
            for v, y in zip(values, g.yields, strict=True)
        ):
            return pad
    return None


def _neutrals(g: Generic) -> Iterable[str]:
    """The neutral elements of its reductions, as far as every operand's type can hold them."""
    for y in g.yields:
        value = scalar.neutral(y.combine, y.dtype)
        finite = not (isinstance(value, float) and math.isinf(value))
        if finite or all(is_float(t) and t not in NO_INFINITY for t in g.dtypes):
            yield literal(value)


# ---- transposes into maps ------------------------------------------------------------------------
def permute_operand(g: Generic, i: int, perm: tuple[int, ...]) -> Generic | None:
    """The generic that reads operand i before it is transposed.

    A packed contraction keeps its tiles: a kernel may walk blocks among themselves and tile dims
    among themselves in any order, which only changes its strides.
    """
    if g.tile and not is_block_diagonal(perm, len(perm) - tile_dims(g, i)):
        return None
    m: list[Affine] = list(g.maps[i])
    shape = list(g.shapes[i])
    for q, p in enumerate(perm):
        m[p], shape[p] = g.maps[i][q], g.shapes[i][q]
    maps = (*g.maps[:i], tuple(m), *g.maps[i + 1 :])
    shapes = (*g.shapes[:i], tuple(shape), *g.shapes[i + 1 :])
    return canonical_generic(
        g.sizes, range(g.rank), maps, shapes, g.yields, g.tile, g.dtypes, precision=g.precision
    )


def straight_operand(g: Generic, i: int, perm: tuple[int, ...]) -> Generic | None:
    """The generic that reads operand i transposed, if only then it is read in order.

    For elementwise ops only: a contraction reads its operands in any order.
    """
    loops = [e.dim for e in g.maps[i]]
    bare = [d for d in loops if d is not None]
    if g.tile or g.rank < len(g.sizes) or len(bare) < len(loops) or len(perm) != len(loops):
        return None
    in_order = [bare[p] for p in perm] == sorted(set(bare))
    return permute_operand(g, i, inverse(perm)) if in_order and bare != sorted(bare) else None


def permute_result(g: Generic, perm: tuple[int, ...]) -> Generic | None:
    """The generic that writes its result transposed; one that is packed keeps its tiles."""
    if g.tile and not is_block_diagonal(perm, g.rank - tile_dims(g, None)):
        return None
    return canonical_generic(
        g.sizes, perm, g.maps, g.shapes, g.yields, g.tile, g.dtypes, precision=g.precision
    )


FUNCTIONS = attr_functions(
    ("write_behind", pack_result),
    ("read_before", pack_operand),
    ("write_behind", permute_result),
    ("read_before", permute_operand),
    straight_operand,
)
