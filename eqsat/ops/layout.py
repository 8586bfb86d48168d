"""Layout algebra: how packs, transposes and reshapes act on layouts and generics.

Pure functions on attributes; None means that the condition behind the function does not hold.
Sources: MLIR DataLayoutPropagation.cpp, PackAndUnpackPatterns.cpp and `linalg::pack`; the section
numbers in comments are those of docs/rules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eqsat.model.attrs import Affine, Generic, Layout, Map, Reshape, Shape, dim
from eqsat.model.target import Tile
from eqsat.model.tensor import cdiv
from eqsat.ops.canonical import canonical_generic
from eqsat.ops.contraction import bare_dims, contraction_roles, mixed_dims
from eqsat.ops.lists import inner_entries, inverse, is_block_diagonal
from eqsat.ops.scalar import keeps_zero
from eqsat.ops.vocabulary import AttrFunction

Layouts = tuple[Layout | None, ...]  # per operand; None: the operand is read as it is


@dataclass(frozen=True)
class PackedLoops:
    """A contraction packed by a tile."""

    operands: Layouts
    sig: Generic
    result: Layout


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


@dataclass(frozen=True)
class PackedReshape:
    """A reshape between packed tensors, and the layout on its other side."""

    layout: Layout
    groups: Reshape


# ---- small ones ------------------------------------------------------------------------------
def make_layout(
    source: Shape,
    pos: Sequence[int],
    tiles: Sequence[int],
    outer: Sequence[int],
    pads: Sequence[str],
) -> Layout:
    """A layout whose divisible tiles are marked as such, whatever padding was asked for."""
    marks = tuple(
        "-" if source[d] % t == 0 else p for d, t, p in zip(pos, tiles, pads, strict=True)
    )
    return Layout(tuple(source), tuple(pos), tuple(tiles), tuple(outer), marks)


def before_transpose(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """The layout L' with pack(x, L') = pack(transpose(x, perm), L)  (F1)."""
    source = [0] * len(perm)
    for i, p in enumerate(perm):
        source[p] = layout.source[i]
    return Layout(
        tuple(source),
        tuple(perm[d] for d in layout.pos),
        layout.tiles,
        tuple(perm[d] for d in layout.outer),
        layout.pads,
    )


# ---- tiling the iteration domain (§3.1, §4.2) ------------------------------------------------
@dataclass(frozen=True)
class _Tiled:
    sig: Generic
    operands: Layouts
    result: Layout | None


def _tile_domain(
    g: Generic,
    tiling: Sequence[tuple[int, int]],
    outer_of: Callable[[int], tuple[int, ...]],
    pad_of: Callable[[int | None, int], str],
    result_order: Sequence[int],
    tile: tuple[int, ...] = (),
) -> _Tiled | None:
    """Append an inner loop to every tiled loop and pack every operand accordingly.

    tiling: (loop, tile) in the order in which tile dims are appended. pad_of(operand, loop) names
    the padding, operand None being the result.
    """
    tiles, sizes, inner = dict(tiling), list(g.sizes), {}
    for d, t in tiling:
        sizes[d] = cdiv(g.sizes[d], t)
        inner[d] = len(sizes)
        sizes.append(t)
    maps: list[Map] = []
    layouts: list[Layout | None] = []
    for j, m in enumerate(g.maps):
        at = _positions(g, j, tiles)
        if at is None:
            return None
        found = [d for d, _ in tiling if d in at]
        layout = None
        if found:
            pads = [pad_of(j, d) for d in found]
            where = [at[d] for d in found]
            layout = make_layout(g.shapes[j], where, [tiles[d] for d in found], outer_of(j), pads)
            inside = tuple(dim(inner[d]) for d in found)
            maps.append(tuple(m[q] for q in layout.outer) + inside)
        else:
            maps.append(m)
        layouts.append(layout)
    parallel = [d for d, _ in tiling if d < g.rank]
    result = None
    if parallel:
        pads = [pad_of(None, d) for d in parallel]
        result = make_layout(
            g.result_shape, parallel, [tiles[d] for d in parallel], result_order, pads
        )
    shapes = [s if a is None else a.packed_shape for s, a in zip(g.shapes, layouts, strict=True)]
    loops = [*result_order, *(inner[d] for d in parallel)]
    sig = canonical_generic(tuple(sizes), loops, maps, shapes, g.yields, tile or g.tile, g.dtypes)
    return _Tiled(sig, tuple(layouts), result)


def _positions(g: Generic, operand: int, tiles: dict[int, int]) -> dict[int, int] | None:
    """Dim of the operand that each tiled loop indexes; None if one is not a bare, full dim."""
    m = g.maps[operand]
    if mixed_dims(m) & tiles.keys():
        return None
    at: dict[int, int] = {}
    for q, e in enumerate(m):
        d = e.dim
        if d is None or d not in tiles:
            continue
        if d in at or g.shapes[operand][q] != g.sizes[d]:
            return None
        at[d] = q
    return at


def _induced(rank: dict[int, int], m: Map) -> tuple[int, ...]:
    """Outer order of an operand: its ranked dims by rank, in increasing slots; others stay."""
    slots = [q for q, e in enumerate(m) if e.dim in rank]
    order = list(range(len(m)))
    for slot, q in zip(slots, sorted(slots, key=lambda q: rank[m[q].dim or 0]), strict=True):
        order[slot] = q
    return tuple(order)


# ---- contractions (§4.2, §4.4) ---------------------------------------------------------------
def pack_loops(g: Generic, tile: Tile) -> PackedLoops | None:
    """Pack the last m, n and k loop of a contraction by a tile, outer dims in the order b, m, n, k.

    K tiles demand zeros, M and N tiles may hold anything. None if `g` is no contraction, is packed
    already, or the tile leaves its result alone. After `linalg::packMatmulGreedily` and mmt4d.
    """
    roles = contraction_roles(g)
    if roles is None or g.tile or not roles.k:
        return None
    extents = _role_extents(tile)
    tiling = [
        (loop, extents[role])
        for role, loops in (("m", roles.m), ("n", roles.n), ("k", roles.k))
        for loop in [d for d in loops if g.sizes[d] > 1][-1:]
        if extents[role] > 1
    ]
    order = [*roles.batch, *roles.m, *roles.n, *roles.k]
    rank = {d: i for i, d in enumerate(order)}

    def outer(j: int) -> tuple[int, ...]:
        m = g.maps[j]
        if any(e.dim is None for e in m):  # windows stay where they are
            return tuple(range(len(m)))
        return tuple(sorted(range(len(m)), key=lambda q: rank.get(m[q].dim or 0, -1)))

    def pad(_: int | None, d: int) -> str:
        return "0" if d >= g.rank else "?"

    used = tuple(extents[r] for r in ("m", "n", "k"))
    tiled = _tile_domain(g, tiling, outer, pad, range(g.rank), used) if tiling else None
    if tiled is None or tiled.result is None:
        return None
    return PackedLoops(tiled.operands, tiled.sig, tiled.result)


def _role_extents(tile: Tile) -> dict[str, int]:
    sizes = dict(tile.sizes)
    if "c" in sizes:  # a convolution's vocabulary: input channels c, filters k
        return {"m": 1, "n": sizes["k"], "k": sizes["c"]}
    return {r: sizes.get(r, 1) for r in ("m", "n", "k")}


# ---- propagation (§3.2, §3.3) ----------------------------------------------------------------
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
    tiled = _tile_domain(
        g,
        tuple(zip(layout.pos, layout.tiles, strict=True)),
        lambda j: _induced(rank, g.maps[j]),
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
    order = _induced(parallel, tuple(dim(d) for d in range(g.rank)))
    tiled = _tile_domain(g, tiling, lambda j: _induced(rank, g.maps[j]), lambda _, __: "?", order)
    if tiled is None:
        return None
    mine = tiled.operands[i]
    if mine is None or replace(mine, pads=layout.pads) != layout:
        return None
    others = tiled.operands
    return PackedOperand(others[:i], others[i + 1 :], tiled.sig, tiled.result)


# ---- transposes into maps (§5) ---------------------------------------------------------------
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


# ---- reshapes (§3.4) -------------------------------------------------------------------------
def reassociation(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Groups of dims of a and b with equal products, in order; unit dims go to the left group."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left, right, x, y = [], [], 1, 1
        if i < len(a):
            left, x, i = [i], a[i], i + 1
        if j < len(b):
            right, y, j = [j], b[j], j + 1
        while x != y:
            if x < y:
                if i >= len(a):
                    return None
                left.append(i)
                x, i = x * a[i], i + 1
            else:
                if j >= len(b):
                    return None
                right.append(j)
                y, j = y * b[j], j + 1
        while i < len(a) and a[i] == 1 and (j >= len(b) or b[j] != 1):
            left.append(i)
            i += 1
        while j < len(b) and b[j] == 1 and (i >= len(a) or a[i] != 1):
            right.append(j)
            j += 1
        groups.append((left, right))
    return groups


def _through(layout: Layout, a: Shape, b: Shape) -> Layout | None:
    """`layout` packs b, one side of a reshape a ↔ b: the layout of a that holds the same blocks."""
    groups = reassociation(a, b)
    if groups is None:
        return None
    pos: list[int] = []
    for d, t in zip(layout.pos, layout.tiles, strict=True):
        left, right = next(g for g in groups if d in g[1])
        if not left or any(b[q] != 1 for q in right[right.index(d) + 1 :]):
            return None  # a tiled dim is the innermost of its group
        q = next((q for q in reversed(left) if a[q] != 1), left[-1])
        trivial = a[q] == b[d] and _units(a, left) and _units(b, right)
        if (b[d] % t or a[q] % t) and not trivial:
            return None
        pos.append(q)
    outer: list[int] = []
    rest = list(layout.outer)
    while rest:
        left, right = next(g for g in groups if rest[0] in g[1])
        if rest[: len(right)] != right:
            return None  # a group stays contiguous in the outer order
        rest = rest[len(right) :]
        outer += left
    if len(outer) != len(a) or len(set(pos)) != len(pos):
        return None
    return make_layout(a, pos, layout.tiles, outer, layout.pads)


def _units(shape: Shape, dims: list[int]) -> bool:
    """At most one of these dims is larger than 1."""
    return sum(shape[d] != 1 for d in dims) <= 1


def packed_transpose(layout: Layout, perm: tuple[int, ...]) -> Layout | None:
    """The layout L' with pack(x, L') = transpose(pack(x, L), perm), perm block-diagonal  (F2)."""
    n = len(layout.source)
    if not is_block_diagonal(perm, n):
        return None
    order = inner_entries(perm, n)
    return Layout(
        layout.source,
        tuple(layout.pos[j] for j in order),
        tuple(layout.tiles[j] for j in order),
        tuple(layout.outer[p] for p in perm[:n]),
        tuple(layout.pads[j] for j in order),
    )


def after_transpose(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """The layout L' with unpack(y, L') = transpose(unpack(y, L), perm)  (F3)."""
    return before_transpose(layout, inverse(perm))


def pack_reshape(layout: Layout, groups: Reshape) -> PackedReshape | None:
    """pack(reshape(x), layout) = reshape(pack(x, L'), …)."""
    inner = _through(layout, groups.source, groups.shape)
    if inner is None:
        return None
    return PackedReshape(inner, Reshape(inner.packed_shape, layout.packed_shape))


def unpack_reshape(groups: Reshape, layout: Layout) -> PackedReshape | None:
    """reshape(unpack(y, layout)) = unpack(reshape(y, …), L')."""
    outer = _through(layout, groups.shape, groups.source)
    if outer is None:
        return None
    return PackedReshape(outer, Reshape(layout.packed_shape, outer.packed_shape))


ROWS: dict[str, dict[str, str]] = {
    "packed-loops": {"operands": "layouts", "sig": "sig", "result": "layout"},
    "packed-result": {"operands": "layouts", "sig": "sig"},
    "packed-operand": {"before": "layouts", "after": "layouts", "sig": "sig", "result": "layout"},
    "packed-reshape": {"layout": "layout", "groups": "groups"},
}
FUNCTIONS: dict[str, AttrFunction] = {
    "pack_loops": AttrFunction(
        ("sig", "tile"), "row:packed-loops", "pack m, n and k loops", pack_loops
    ),
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
    "pack_reshape": AttrFunction(
        ("layout", "groups"),
        "row:packed-reshape",
        "the layout of a reshape's operand that gives this layout of its result",
        pack_reshape,
    ),
    "unpack_reshape": AttrFunction(
        ("groups", "layout"),
        "row:packed-reshape",
        "the layout a reshape's result has if its operand has this one",
        unpack_reshape,
    ),
    "before_transpose": AttrFunction(
        ("layout", "ints"),
        "layout",
        "L' with pack(x, L') = pack(transpose(x, p), L)",
        before_transpose,
    ),
    "after_transpose": AttrFunction(
        ("layout", "ints"),
        "layout",
        "L' with unpack(y, L') = transpose(unpack(y, L), p)",
        after_transpose,
    ),
    "packed_transpose": AttrFunction(
        ("layout", "ints"),
        "layout",
        "L' with pack(x, L') = transpose(pack(x, L), p)",
        packed_transpose,
    ),
}
