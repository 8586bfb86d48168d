"""Loops put together, taken apart and exchanged: 56 x 56 places are 3136 rows, and back.

A reshape in front of or behind a generic is the generic over regrouped loops, wherever every
operand keeps the loops of a group together. What comes in is a generic, what goes out is the
regrouped one with the reshapes of its operands and its result. After IREE's CollapseDimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.model.affine import Affine, Map, dim
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.movement import Reshape
from eqsat.ops.contractions.convolution import convolution
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.generics.propagate import permute_result
from eqsat.ops.movement.layout import common_dims, reassociation
from eqsat.ops.movement.lists import inverse

Groupings = tuple[Reshape | None, ...]
Dim = tuple[Affine, int]  # an expression of a map, and the extent of the operand's dim


@dataclass(frozen=True)
class LoopGroup:
    """Loops that become others of the same number of iterations, in row-major order."""

    loops: tuple[int, ...]
    sizes: Shape

    def large(self, g: Generic) -> list[int]:
        return [d for d in self.loops if g.sizes[d] > 1]


@dataclass(frozen=True)
class Regrouped:
    """A generic over regrouped loops; reshapes are None where nothing changes."""

    operands: Groupings
    sig: Generic
    result: Reshape | None


@dataclass(frozen=True)
class RegroupedOperand:
    """A regrouped generic that reads one operand as it was before its reshape."""

    before: Groupings
    after: Groupings
    sig: Generic
    result: Reshape | None
    read: Reshape | None = None  # of the operand itself


def collapse_loops(g: Generic) -> Regrouped | None:
    """A contraction with as few loops as its maps allow.

    Loops of extent 1 vanish; loops that stand side by side in every operand that has them, and in
    the result, become one. None if nothing changes.
    """
    if g.tile or contraction_roles(g) is None or 0 in g.sizes:
        return None
    regrouped = regroup(_without_units(g), _runs(g))
    if regrouped is None or regrouped.sig == g:
        return None
    operands = tuple(reshape_to(a, b) for a, b in zip(g.shapes, regrouped.sig.shapes, strict=True))
    return Regrouped(operands, regrouped.sig, regrouped.result)


def _without_units(g: Generic) -> Generic:
    """The generic without operand dims of extent 1 that no loop indexes."""
    walked = [
        [q for q, e in enumerate(m) if e.terms or s[q] != 1]
        for m, s in zip(g.maps, g.shapes, strict=True)
    ]
    maps = tuple(tuple(m[q] for q in dims) for m, dims in zip(g.maps, walked, strict=True))
    shapes = tuple(tuple(s[q] for q in dims) for s, dims in zip(g.shapes, walked, strict=True))
    return replace(g, maps=maps, shapes=shapes)


def reshape_operand(g: Generic, i: int, groups: Reshape) -> RegroupedOperand | None:
    """The generic that reads operand i before its reshape, its result reshaped instead.

    The other operands are reshaped alike. A contraction becomes a 1x1 convolution by that, any
    other generic loses loops.
    """
    if contraction_roles(g) is not None:
        return expand_loops(g, i, groups)
    if len(groups.source) >= len(groups.shape):
        return None
    return before_reshape(g, i, groups) if len(g.yields) == 1 else None


def reshape_result(g: Generic, groups: Reshape) -> Regrouped | None:
    """The generic that writes its result reshaped, if that takes loops away; no contraction."""
    if len(groups.shape) >= len(groups.source) or contraction_roles(g) is not None:
        return None
    parts = _partition(groups.source, groups.shape)
    regrouped = (
        None
        if parts is None or g.tile or len(g.yields) != 1
        else regroup(g, [LoopGroup(*p) for p in parts])
    )
    return None if regrouped is None or regrouped.sig.result_shape != groups.shape else regrouped


def read_apart(g: Generic, i: int, groups: Reshape) -> RegroupedOperand | None:
    """The generic that reads operand i before dims of it are put together.

    What `groups` takes apart on the way comes apart first.
    """
    apart = common_dims(groups.source, groups.shape)
    if apart is None or len(apart) <= _large(groups.shape) or len(g.yields) > 1:
        return None
    found = before_reshape(g, i, Reshape(apart, groups.shape))
    return None if found is None else replace(found, read=reshape_to(groups.source, apart))


def _large(shape: Shape) -> int:
    return sum(s != 1 for s in shape)


@dataclass(frozen=True)
class Interchanged:
    """A generic that reads its operands in order, and how its result is transposed then."""

    sig: Generic
    perm: tuple[int, ...]


def interchange(g: Generic) -> Interchanged | None:
    """An elementwise generic that reads its operands in order and has its result transposed.

    All operands of full rank must have the same permuted map; after IREE's
    ElementwiseOpInterchangePattern.
    """
    if g.tile or len(g.yields) != 1 or g.rank != len(g.sizes):
        return None
    full = {tuple(e.dim for e in m) for m in g.maps if len(m) == g.rank}
    if len(full) != 1:
        return None
    loops = [d for d in next(iter(full)) if d is not None]
    if sorted(loops) != list(range(g.rank)) or loops == sorted(loops):
        return None
    sig = permute_result(g, tuple(loops))
    return None if sig is None else Interchanged(sig, inverse(tuple(loops)))


def expand_loops(g: Generic, i: int, groups: Reshape) -> RegroupedOperand | None:
    """Read y instead of operand i = reshape(y) of a contraction, which becomes a 1x1 convolution.

    The inverse of `collapse_loops` where it opens another vocabulary of tiles: that of
    convolutions, whose neighbours keep their places apart.
    """
    if contraction_roles(g) is None or convolution(g) is not None:
        return None
    expanded = before_reshape(g, i, groups)
    apart = None if expanded is None else convolution(expanded.sig)
    # fewer places would be one more form of every 1x1 convolution, for the tiles of `conv1d`
    return expanded if apart is not None and len(apart.spatial) == 2 else None


def before_reshape(g: Generic, i: int, groups: Reshape) -> RegroupedOperand | None:
    """Read y instead of operand i = reshape(y), over the loops that y has."""
    parts = _partition(groups.shape, groups.source)
    loops = [e.dim for e in g.maps[i]]
    if parts is None or g.tile or None in loops or groups.shape != g.shapes[i]:
        return None
    named = [LoopGroup(tuple(loops[q] or 0 for q in dims), sizes) for dims, sizes in parts]
    if any(math.prod(p.sizes) != math.prod(g.sizes[d] for d in p.loops) for p in named):
        return None
    regrouped = regroup(g, named)
    if regrouped is None or regrouped.sig.shapes[i] != groups.source:
        return None
    others = regrouped.operands
    return RegroupedOperand(others[:i], others[i + 1 :], regrouped.sig, regrouped.result)


def _partition(shape: Shape, other: Shape) -> list[tuple[tuple[int, ...], Shape]] | None:
    """Dims of `shape` in groups, and the extents each group has in `other`."""
    pairs = None if 0 in shape else reassociation(shape, other)
    if pairs is None:
        return None
    parts: list[tuple[tuple[int, ...], Shape]] = []
    for left, right in pairs:
        sizes = tuple(other[d] for d in right)
        if not left and parts:  # units of the other side alone go with the group before
            parts[-1] = (parts[-1][0], parts[-1][1] + sizes)
        else:
            parts.append((tuple(left), sizes))
    return parts


# ---- regrouping the iteration domain ---------------------------------------------------------
def regroup(g: Generic, groups: Sequence[LoopGroup]) -> Regrouped | None:
    """The generic over other loops; loops that no group names stay.

    None if some operand or the result does not keep a group together, or a group mixes result
    loops with reductions.
    """
    changed = [p for p in groups if p.sizes != tuple(g.sizes[d] for d in p.loops)]
    group_of = {d: p for p in changed for d in p.loops}
    if len(group_of) != sum(len(p.loops) for p in changed):
        return None
    if any(len({d < g.rank for d in p.loops}) > 1 for p in changed):
        return None
    sizes = list(g.sizes)
    new: dict[LoopGroup, list[int]] = {}
    for p in changed:
        new[p] = list(range(len(sizes), len(sizes) + len(p.sizes)))
        sizes += p.sizes
    read = [_regrouped(g, m, s, group_of, new) for m, s in zip(g.maps, g.shapes, strict=True)]
    result = _regrouped(g, tuple(dim(d) for d in range(g.rank)), g.result_shape, group_of, new)
    if result is None or None in read:
        return None
    dims = [[(e, sizes[e.dim or 0] if s < 0 else s) for e, s in m or ()] for m in read]
    sig = canonical_generic(
        [1 if d in group_of else s for d, s in enumerate(sizes)],  # loops that are gone vanish
        [e.dim or 0 for e, _ in result],
        [tuple(e for e, _ in m) for m in dims],
        [tuple(s for _, s in m) for m in dims],
        g.yields,
        g.tile,
        g.dtypes,
        precision=g.precision,
    )
    return Regrouped(
        tuple(reshape_to(a, b) for a, b in zip(g.shapes, sig.shapes, strict=True)),
        sig,
        reshape_to(sig.result_shape, g.result_shape),
    )


def reshape_to(source: Shape, shape: Shape) -> Reshape | None:
    """None where nothing is to be done."""
    return None if source == shape else Reshape(source, shape)


def _regrouped(
    g: Generic,
    m: Map,
    shape: Shape,
    group_of: dict[int, LoopGroup],
    new: dict[LoopGroup, list[int]],
) -> list[Dim] | None:
    """A map over the new loops with the extent of each dim, -1 where it is that of its loop."""
    out: list[Dim] = []
    done: set[LoopGroup] = set()
    work = list(range(len(m)))
    while work:
        at = work.pop(0)
        e = m[at]
        group = None if e.dim is None else group_of.get(e.dim)
        if group is None:
            if any(d in group_of and g.sizes[d] > 1 for d, _ in e.terms):
                return None
            out.append((e, shape[at]))
            continue
        run = [at, *_rest_of_run(m, work, group, shape)]
        # dims of extent 1 in between keep the order of elements: they come after the run
        work = [q for q in work if q not in run]
        seen = [m[q].dim for q in run if shape[q] > 1]
        if any(shape[q] != g.sizes[m[q].dim or 0] for q in run):
            return None
        if seen != group.large(g) or group in done:
            if seen:
                return None
            continue  # units of a group whose other loops this operand does not have
        out += [(dim(d), -1) for d in new[group]]
        done.add(group)
    return out


def _rest_of_run(m: Map, dims: list[int], group: LoopGroup, shape: Shape) -> list[int]:
    """The dims of a group that follow, with nothing but dims of extent 1 in between."""
    run: list[int] = []
    for q in dims:
        if m[q].dim in group.loops:
            run.append(q)
        elif shape[q] > 1:
            break
    return run


# ---- which loops stay together ---------------------------------------------------------------
def _runs(g: Generic) -> list[LoopGroup]:
    """Maximal runs of loops that are neighbours wherever they occur; units vanish."""
    orders = [_large_dims(g, m, s) for m, s in zip(g.maps, g.shapes, strict=True)]
    orders.append([d for d in range(g.rank) if g.sizes[d] > 1])
    groups: list[list[int]] = []
    for d in [d for d in range(len(g.sizes)) if g.sizes[d] > 1]:
        before = _before(d, orders)
        home = next((p for p in groups if before is not None and p[-1] == before), None)
        if home is None or (home[-1] < g.rank) != (d < g.rank):
            groups.append([d])
        else:
            home.append(d)
    units = [LoopGroup((d,), ()) for d, s in enumerate(g.sizes) if s == 1]
    return units + [LoopGroup(tuple(p), (math.prod(g.sizes[d] for d in p),)) for p in groups]


def _large_dims(g: Generic, m: Map, shape: Shape) -> list[int | None]:
    """Loops of the dims above extent 1; None for what is not a whole bare loop."""
    loops: list[int | None] = []
    for e, s in zip(m, shape, strict=True):
        if s > 1:
            loops.append(e.dim if e.dim is not None and g.sizes[e.dim] == s else None)
        elif e.terms and any(g.sizes[d] > 1 for d, _ in e.terms):
            loops.append(None)
    mixed = {d for e in m if e.dim is None for d, _ in e.terms}
    return [None if d in mixed or loops.count(d) > 1 else d for d in loops]


def _before(d: int, orders: Sequence[list[int | None]]) -> int | None:
    """The loop that stands right before d wherever either of them occurs, or None."""
    left = {o[o.index(d) - 1] if o.index(d) else None for o in orders if d in o}
    if len(left) != 1:
        return None
    (before,) = left
    if before is None or any((before in o) != (d in o) for o in orders):
        return None
    return before


FUNCTIONS = attr_functions(
    collapse_loops, interchange, read_apart,
    ("read_before", reshape_operand), ("write_behind", reshape_result),
)  # fmt: skip
