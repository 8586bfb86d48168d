"""Attribute functions that merge contractions of one operand with several weights into one.

x @ a, x @ b = slices of x @ concat(a, b) along n. Exact: every element is the same sum as before.
Source: the fused QKV projection of transformers; TASO (Jia et al., SOSP 2019), merge rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from eqsat.model.affine import Affine, Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.tensor import NONE
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_body, canonical_generic
from eqsat.ops.movement.crossing import unless_sorted
from eqsat.ops.movement.moves import slice_along

Perm = tuple[int, ...]


@dataclass(frozen=True)
class Merged:
    """Weights in order with the transpose each needs, their concat, the contraction of it, and
    the part of the result that the matched contraction is; a perm of None transposes nothing."""

    first: Leaf
    second: Leaf
    third: Leaf
    first_perm: Perm | None
    second_perm: Perm | None
    third_perm: Perm | None
    concat: Move
    sig: Generic
    slice: Move
    perm: Perm | None


@dataclass(frozen=True)
class OneOfSiblings:
    """One contraction seen from x: its loops are numbered as x's map names them, then n loops."""

    leaf: Leaf
    x: Map
    x_shape: Shape
    w: tuple[int, ...]  # loop of each dim of the weight
    sizes: Shape
    rank: int  # loops of x
    parallel: tuple[int, ...]  # loops of x that the result has, ascending
    perm: Perm  # dim of the matched result -> its place among (*parallel, *n loops)
    body: Yield
    dtypes: tuple[str, str]
    precision: str

    @property
    def n(self) -> range:
        return range(self.rank, len(self.sizes))


def sibling(g: Generic, leaf: Leaf, side: int) -> OneOfSiblings | None:
    """`side` is the operand of g that is the weight; None if g is no plain contraction with k."""
    roles = contraction_roles(g)
    if roles is None or not roles.k or g.tile:
        return None
    x, w = g.maps[1 - side], [e.dim for e in g.maps[side]]
    of_x = list(dict.fromkeys(d for e in x for d in _in_order(e, g)))
    whole = [d for d, s in zip(w, g.shapes[side], strict=True) if d is not None and g.sizes[d] == s]
    if len(set(whole)) < len(w):
        return None
    # of one extent, read by nobody: a row that x has been sliced to
    of_x += [d for d in range(g.rank) if g.sizes[d] == 1 and d not in (*of_x, *whole)]
    loops = [*of_x, *(d for d in whole if d not in of_x)]
    if any(d not in loops for d in range(len(g.sizes))):
        return None
    if any(d >= g.rank for d in loops[len(of_x) :]):
        return None  # a sum over the weight alone
    new = {d: i for i, d in enumerate(loops)}
    order = [i for i, d in enumerate(loops) if d < g.rank]
    y = g.yields[0]
    body = y.body if side else y.body.substitute({0: arg(1), 1: arg(0)})
    return OneOfSiblings(
        leaf,
        tuple(e.rename(new) for e in x),
        g.shapes[1 - side],
        tuple(new[d] for d in whole),
        tuple(g.sizes[d] for d in loops),
        len(of_x),
        tuple(i for i in order if i < len(of_x)),
        tuple(order.index(new[d]) for d in range(g.rank)),
        Yield(canonical_body(body), y.dtype, y.combine),
        (g.dtypes[1 - side], g.dtypes[side]),
        g.precision,
    )


def _in_order(e: Affine, g: Generic) -> list[int]:
    """The loops of a sum, so that equal sums of two generics pair equal loops."""
    return [d for d, _ in sorted(e.terms, key=lambda t: (abs(t[1]), t[1], t[0] >= g.rank, t[0]))]


@dataclass(frozen=True)
class StackedSiblings:
    """Contractions of one value as one, with their weights in the order of their names.

    Per contraction, in that order: its number as given, what its weight is transposed by, the part
    of the one that it is, and what that is transposed by; a perm of None transposes nothing.
    """

    order: tuple[int, ...]
    weight_perms: tuple[Perm | None, ...]
    concat: Move
    sig: Generic
    slices: tuple[Move, ...]
    perms: tuple[Perm | None, ...]


def stacked_siblings(products: Sequence[OneOfSiblings]) -> StackedSiblings | None:
    """None if they are not alike, or if two of them read the same weight."""
    if len({p.leaf for p in products}) < len(products):
        return None
    order = sorted(range(len(products)), key=lambda i: _order(products[i].leaf))
    first, *more = ordered = [products[i] for i in order]
    axis = _axis(ordered)
    if axis is None or not all(is_like(first, p) for p in more):
        return None
    shapes = tuple(tuple(p.sizes[d] for d in first.w) for p in ordered)
    ends = list(accumulate((p.sizes[axis] for p in ordered), initial=0))
    sizes = tuple(ends[-1] if d == axis else s for d, s in enumerate(first.sizes))
    merged = tuple(sizes[d] for d in first.w)
    results = [*first.parallel, *first.n]
    sig = canonical_generic(
        sizes,
        results,
        [first.x, tuple(dim(d) for d in first.w)],
        [first.x_shape, merged],
        [first.body],
        (),
        first.dtypes,
        precision=first.precision,
    )
    at = results.index(axis)
    return StackedSiblings(
        tuple(order),
        tuple(unless_sorted(tuple(p.w.index(d) for d in first.w)) for p in ordered),
        Move("concat", shapes, (first.w.index(axis),), merged),
        sig,
        tuple(slice_along(sig.result_shape, at, a, b) for a, b in pairwise(ends)),
        tuple(unless_sorted(p.perm) for p in ordered),
    )


def _merge(parts: Sequence[OneOfSiblings | None]) -> Merged | None:
    """The merge of all parts, for the contraction that is the first of them."""
    siblings = [p for p in parts if p is not None]
    whole = stacked_siblings(siblings) if len(siblings) == len(parts) else None
    if whole is None:
        return None
    leaves, turns = [siblings[i].leaf for i in whole.order], whole.weight_perms
    one, two, three = (*leaves, leaves[-1])[:3]
    turn_one, turn_two, turn_three = (*turns, turns[-1])[:3]
    at = whole.order.index(0)
    return Merged(
        one, two, three, turn_one, turn_two, turn_three,
        whole.concat, whole.sig, whole.slices[at], whole.perms[at],
    )  # fmt: skip


def _order(leaf: Leaf) -> tuple[object, ...]:
    """By name, numbers in it as numbers: the same order in every layer of a model."""
    words = re.split(r"(\d+)", leaf.name)
    return [(w.isdigit(), int(w) if w.isdigit() else 0, w) for w in words], leaf.key, leaf.index


def is_like(a: OneOfSiblings, b: OneOfSiblings) -> bool:
    """Whether they are equal but for extents of n loops and the order of the weight's dims."""
    seen = (a.x, a.x_shape, a.rank, a.parallel, a.body, a.dtypes, len(a.sizes), sorted(a.w))
    other = (b.x, b.x_shape, b.rank, b.parallel, b.body, b.dtypes, len(b.sizes), sorted(b.w))
    alike = seen == other and a.precision == b.precision
    return alike and a.sizes[: a.rank] == b.sizes[: b.rank]


def _axis(parts: list[OneOfSiblings]) -> int | None:
    """The n loop to merge along: the one whose extents differ, else the outermost."""
    first = parts[0]
    if not first.n or any(len(p.sizes) != len(first.sizes) for p in parts):
        return None
    different = [d for d in first.n if len({p.sizes[d] for p in parts}) > 1]
    return None if len(different) > 1 else next(iter(different), first.rank)


def merge_contractions(
    g: Generic,
    a: Leaf,
    i: int,
    h: Generic,
    b: Leaf,
    j: int,
    f: Generic | None = None,
    c: Leaf | None = None,
    k: int = 0,
) -> Merged | None:
    """Two or three contractions of one operand, each with its weight and which operand that is."""
    parts = [sibling(g, a, i), sibling(h, b, j)]
    if f is not None and c is not None:
        if _order(b) >= _order(c):
            return None  # the same merge is found the other way round
        parts.append(sibling(f, c, k))
    return _merge(parts)


@dataclass(frozen=True)
class _Lane:
    """An elementwise op over one slice of a value and a weight that varies along the cut axis."""

    leaf: Leaf
    weight: Map
    shape: Shape
    sizes: Shape
    start: int
    axis: int
    body: Yield
    dtypes: tuple[str, str]


def _lane(g: Generic, leaf: Leaf, cut: Move, side: int) -> _Lane | None:
    """`side` is the operand of g that is the weight; the other is read in order, whole."""
    if g.rank != len(g.sizes) or len(g.yields) != 1 or len(g.maps) != 2:
        return None
    in_order = [e.dim for e in g.maps[1 - side]] == list(range(g.rank))
    start, limit, stride = cut.args
    spans = zip(start, limit, cut.sources[0], strict=True)
    axes = [d for d, (a, b, s) in enumerate(spans) if (a, b) != (0, s)]
    if not in_order or len(axes) != 1 or set(stride) != {1}:
        return None
    along = [e.dim for e in g.maps[side]]
    bare = all(e.dim is not None or not e.terms for e in g.maps[side])
    if not bare or along.count(axes[0]) != 1:
        return None
    y = g.yields[0]
    body = y.body if side else y.body.substitute({0: arg(1), 1: arg(0)})
    return _Lane(
        leaf, g.maps[side], g.shapes[side], g.sizes, start[axes[0]], axes[0],
        Yield(body, y.dtype), (g.dtypes[1 - side], g.dtypes[side]),
    )  # fmt: skip


def merge_lanes(
    g: Generic, a: Leaf, p: Move, h: Generic, b: Leaf, q: Move, f: Generic, c: Leaf, r: Move, i: int
) -> Merged | None:
    """Three elementwise ops of slices of one value, each with its weight and slice, as one.

    It reads the whole value, where they read slices p, q, r of it and a weight as operand i.

    The slices lie side by side and leave nothing out; the second and third match in order.
    """
    parts = (_lane(g, a, p, i), _lane(h, b, q, i), _lane(f, c, r, i))
    lanes = [lane for lane in parts if lane is not None]
    if len(lanes) < len(parts) or lanes[1].start >= lanes[2].start:
        return None
    root, axis = lanes[0], lanes[0].axis
    lanes = sorted(lanes, key=lambda lane: lane.start)
    widths = [lane.sizes[axis] for lane in lanes]
    starts = [sum(widths[:at]) for at in range(len(lanes))]
    whole = p.sources[0]
    if [lane.start for lane in lanes] != starts or sum(widths) != whole[axis]:
        return None
    if not all(_beside(root, lane) for lane in lanes):
        return None
    at = [e.dim for e in root.weight].index(axis)
    shapes = tuple(lane.shape for lane in lanes)
    wide = tuple(sum(widths) if d == at else s for d, s in enumerate(root.shape))
    maps = [tuple(dim(d) for d in range(len(whole))), root.weight]
    loops = range(len(whole))
    sig = canonical_generic(
        whole, loops, maps, [whole, wide], [root.body], (), root.dtypes, precision=NONE
    )
    one, two, three = (lane.leaf for lane in lanes)
    concat = Move("concat", shapes, (at,), wide)
    return Merged(one, two, three, None, None, None, concat, sig, p, None)


def _beside(a: _Lane, b: _Lane) -> bool:
    """Equal but for the weight and the extent along the axis."""
    at = [e.dim for e in a.weight].index(a.axis)
    rest = [s for d, s in enumerate(a.shape) if d != at]
    return (a.axis, a.weight, a.body, a.dtypes, rest) == (
        b.axis, b.weight, b.body, b.dtypes, [s for d, s in enumerate(b.shape) if d != at],
    )  # fmt: skip


FUNCTIONS = attr_functions(merge_contractions, merge_lanes)
