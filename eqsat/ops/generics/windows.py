"""Loops that run over windows, and generics with such loops held at one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eqsat.model.affine import Affine, Map
from eqsat.model.generic import Generic


@dataclass(frozen=True)
class Window:
    """One spatial dim: input = stride * position + dilation * offset."""

    axis: int  # of the image
    position: int  # loops
    offset: int
    stride: int
    dilation: int


def windows(g: Generic, m: Map) -> tuple[Window, ...]:
    """Every sum of one result loop and one reduction loop with positive strides.

    () if there are other sums, or if two dims share a loop.
    """
    found = []
    for axis, e in enumerate(m):
        if e.dim is not None:
            continue
        if len(e.terms) != 2 or e.constant or any(s <= 0 for _, s in e.terms):
            return ()
        (p, stride), (w, dilation) = sorted(e.terms)
        if p >= g.rank or w < g.rank:
            return ()
        found.append(Window(axis, p, w, stride, dilation))
    loops = [d for e in m for d, _ in e.terms]
    return tuple(found) if len(set(loops)) == len(loops) else ()


def fixed_at(g: Generic, point: Mapping[int, int]) -> Generic:
    """The generic with some reduction loops held at one place: loop -> where."""
    kept = [d for d in range(len(g.sizes)) if d not in point]
    new = {d: i for i, d in enumerate(kept)}
    maps = tuple(tuple(_held(e, point).rename(new) for e in m) for m in g.maps)
    reduces = len(kept) > g.rank
    yields = tuple(replace(y, combine=y.combine if reduces else "") for y in g.yields)
    return replace(g, sizes=tuple(g.sizes[d] for d in kept), maps=maps, yields=yields)


def _held(e: Affine, point: Mapping[int, int]) -> Affine:
    constant = sum(s * point[d] for d, s in e.terms if d in point)
    return Affine(tuple(t for t in e.terms if t[0] not in point), e.constant + constant)
