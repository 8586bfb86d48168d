"""How packs and transposes move through generics, and what that asks of the other operands."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eqsat.model.attrs import Affine, Generic, Layout, dim
from eqsat.ops.canonical import canonical_generic
from eqsat.ops.contraction import bare_dims, contraction_roles
from eqsat.ops.scalar import keeps_zero
from eqsat.ops.tiling import Layouts, induced, tile_domain
from eqsat.ops.vocabulary import AttrFunction


@dataclass(frozen=True)
class PackedResult:
    """A generic whose result has the layout asked for."""

    operands: Layouts
    sig: Generic


@dataclass(frozen=True)
class PackedOperand:
    """A generic that reads one operand packed; `before` and `after` are the operands around it."""

    before: Layouts
    after: Layouts
    sig: Generic
    result: Layout | None  # None: no tiled loop is left, the result is as it was


def pack_result(g: Generic, layout: Layout) -> PackedResult | None:
    """Bubble a pack up: the generic that writes `layout` directly, and its operands' layouts.

    A zero-padded result is possible only where the body keeps zeros.
    """
    if g.tile or not g.maps or len(g.yields) != 1:
        return None
    pads = dict(zip(layout.pos, layout.pads, strict=True))
    if not all(_may_pad(g, d, p) for d, p in pads.items()):
        return None
    rank = {d: i for i, d in enumerate(layout.outer)}
    tiled = tile_domain(
        g,
        tuple(zip(layout.pos, layout.tiles, strict=True)),
        lambda j: induced(rank, g.maps[j]),
        lambda _, d: pads[d],
        layout.outer,
    )
    if tiled is None or tiled.result != layout or not any(tiled.operands):
        return None
    return PackedResult(tiled.operands, tiled.sig)


def _may_pad(g: Generic, d: int, pad: str) -> bool:
    """Whether result lanes beyond loop d hold `pad` if the operands' lanes there do."""
    if pad in ("-", "?"):
        return True
    if pad != "0":
        return False
    zeroed = {j for j, m in enumerate(g.maps) if d in bare_dims(m)}
    return keeps_zero(g.body, zeroed)


def pack_operand(g: Generic, i: int, layout: Layout) -> PackedOperand | None:
    """Push an unpack down: read operand i packed and unpack the result instead.

    The other operands get the packs the tiled loops ask for; their padding may hold anything.
    A tiled reduction loop must divide, as nothing says what its padding holds.
    """
    if g.tile or len(g.yields) != 1 or contraction_roles(g) is not None:
        return None
    m = g.maps[i]
    tiling: list[tuple[int, int]] = []
    for q, t, pad in zip(layout.pos, layout.tiles, layout.pads, strict=True):
        d = m[q].dim
        if d is None or (d >= g.rank and pad != "-"):
            return None
        tiling.append((d, t))
    rank = {e.dim: slot for slot, q in enumerate(layout.outer) if (e := m[q]).dim is not None}
    parallel = {d: r for d, r in rank.items() if d < g.rank}
    order = induced(parallel, tuple(dim(d) for d in range(g.rank)))
    tiled = tile_domain(g, tiling, lambda j: induced(rank, g.maps[j]), lambda _, __: "?", order)
    if tiled is None:
        return None
    mine = tiled.operands[i]
    if mine is None or replace(mine, pads=layout.pads) != layout:
        return None
    others = tiled.operands
    return PackedOperand(others[:i], others[i + 1 :], tiled.sig, tiled.result)


def permute_operand(g: Generic, i: int, perm: tuple[int, ...]) -> Generic | None:
    """Read y instead of operand i = transpose(y, perm)."""
    if g.tile:
        return None
    m: list[Affine] = list(g.maps[i])
    shape = list(g.shapes[i])
    for q, p in enumerate(perm):
        m[p], shape[p] = g.maps[i][q], g.shapes[i][q]
    maps = (*g.maps[:i], tuple(m), *g.maps[i + 1 :])
    shapes = (*g.shapes[:i], tuple(shape), *g.shapes[i + 1 :])
    return canonical_generic(g.sizes, range(g.rank), maps, shapes, g.yields, g.tile, g.dtypes)


def permute_result(g: Generic, perm: tuple[int, ...]) -> Generic | None:
    """Write transpose(result, perm) directly."""
    if g.tile:
        return None
    return canonical_generic(g.sizes, perm, g.maps, g.shapes, g.yields, g.tile, g.dtypes)


ROWS: dict[str, dict[str, str]] = {
    "packed-result": {"operands": "layouts", "sig": "sig"},
    "packed-operand": {"before": "layouts", "after": "layouts", "sig": "sig", "result": "layout"},
}
FUNCTIONS: dict[str, AttrFunction] = {
    "pack_result": AttrFunction(
        ("sig", "layout"), "row:packed-result", "give the result a layout", pack_result
    ),
    "pack_operand": AttrFunction(
        ("sig", "int", "layout"), "row:packed-operand", "read operand i in a layout", pack_operand
    ),
    "permute_operand": AttrFunction(
        ("sig", "int", "ints"), "sig", "read operand i untransposed", permute_operand
    ),
    "permute_result": AttrFunction(
        ("sig", "ints"), "sig", "write the result transposed", permute_result
    ),
}
