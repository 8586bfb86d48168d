"""Layout algebra: how packs and unpacks act together with transposes and reshapes.

Pure functions on attributes; None means that the condition behind the function does not hold.
Sources: MLIR PackAndUnpackPatterns.cpp and DataLayoutPropagation.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.attrs import Layout, Reshape, Shape
from eqsat.ops.lists import inner_entries, inverse, is_block_diagonal
from eqsat.ops.tiling import make_layout
from eqsat.ops.vocabulary import AttrFunction


@dataclass(frozen=True)
class PackedReshape:
    """A reshape between packed tensors, and the layout on its other side."""

    layout: Layout
    groups: Reshape


# ---- transposes ------------------------------------------------------------------------------
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


def after_transpose(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """The layout L' with unpack(y, L') = transpose(unpack(y, L), perm)  (F3)."""
    return before_transpose(layout, inverse(perm))


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
    "packed-reshape": {"layout": "layout", "groups": "groups"},
}
FUNCTIONS: dict[str, AttrFunction] = {
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
