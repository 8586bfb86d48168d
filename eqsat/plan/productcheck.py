"""The products that a stage sums, read from the nest alone: on what each factor depends, and at
how many points there is something to multiply."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Bound, Nest
from eqsat.ops.nests.reached import MOST_POINTS, Undecided, count, digits_of, named

Argument = Access | int


class _Multiplied(NamedTuple):
    body: Expr
    arguments: list[Argument]  # those that the body names


def _sides(nest: Nest, number: int) -> list[_Multiplied]:
    """The two sides of the product that a stage sums; none if it sums something else, or products
    at some points only."""
    stage = nest.stages[number]
    while stage.body.fn == "arg" and isinstance(inner := stage.arguments[stage.body.value], int):
        stage = nest.stages[inner]
        if stage.bounds or stage.combine:
            return []
    if stage.body.fn != "mul":
        return []
    return [_Multiplied(x, [stage.arguments[i] for i in x.operands()]) for x in stage.body.args]


def multiplied_sides(nest: Nest, number: int) -> tuple[list[Argument], list[Argument]] | None:
    """What either side of the product that a stage sums reads; None if it sums no product."""
    sides = _sides(nest, number)
    return (sides[0].arguments, sides[1].arguments) if sides else None


def depends(nest: Nest, arguments: list[Argument]) -> set[int]:
    """The loops of more than one point by which a value differs: strides, bounds and lookups of
    all that is read for it, and what chooses between its stages."""
    found: set[int] = set()
    for a in arguments:
        if isinstance(a, Access):
            found |= _loops(a)
            continue
        s = nest.stages[a]
        below = depends(nest, list(s.arguments)).union(*(named(b.strides) for b in s.bounds))
        found |= below - set(s.reduced)
    return {i for i in found if nest.sizes[i] > 1}


def _loops(a: Access) -> set[int]:
    return named(a.strides).union(*(named(b.strides) for b in a.bounds), *map(_loops, a.indices))


def zeros_beyond(nest: Nest, arguments: list[Argument], body: Expr) -> list[Bound]:
    """Bounds beyond which a factor that is but one value, or its cast, is 0."""
    while body.fn == "cast":
        (body,) = body.args
    if body.fn != "arg" or len(arguments) != 1:
        return []
    (a,) = arguments
    if isinstance(a, Access):
        return list(a.bounds) if a.fill == 0 and a.fill is not None else []
    s = nest.stages[a]
    if s.combine or s.body.fn != "arg":
        return []
    own = list(s.bounds) if s.bounds and len(s.arguments) == 1 and s.fill == 0 else []
    if s.bounds and not own:
        return []
    return own + zeros_beyond(nest, list(s.arguments), s.body)


def pads_of(nest: Nest, number: int) -> list[Bound]:
    """Bounds beyond which a product that a stage sums is 0."""
    return [b for x in _sides(nest, number) for b in zeros_beyond(nest, x.arguments, x.body)]


def multiply_adds(nest: Nest, number: int) -> int:
    """At least so many products are not 0 by a pad, and differ; 0 where that is not known."""
    sides = multiplied_sides(nest, number)
    if sides is None:
        return 0
    loops = depends(nest, [*sides[0], *sides[1]]) | set(nest.stages[number].reduced)
    try:
        points = count(digits_of(nest.sizes, loops, nest.bounds))
    except Undecided:
        return 0
    share = 1 - sum(1 - _share(b, nest.sizes) for b in pads_of(nest, number))
    return math.floor(points * max(share, 0))


def _share(b: Bound, sizes: tuple[int, ...]) -> float:
    """Share of the points of its loops at which a bound holds."""
    own = sorted(named(b.strides))
    points = math.prod(sizes[i] for i in own)
    if points > MOST_POINTS:
        return 0.0
    index = np.array(b.base)
    for i in own:
        index = np.add.outer(index, np.arange(sizes[i]) * b.strides[i])
    return int(((index >= 0) & (index < b.extent)).sum()) / points
