"""Which elements of a buffer are looked at where not all can be: its corners, the borders of tails
and parts, and some at random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from eqsat.execute.elements import flat_indices
from eqsat.model.attr import Shape
from eqsat.model.movement import Move
from eqsat.model.program import Program

Array = np.ndarray[Any, Any]
LEAST = 64  # elements of a buffer, all if it has fewer
AT_RANDOM = 96
EVERY = 256  # a buffer of so few is looked at whole
CORNERS = 16
NEAR = 2  # elements beside each border
EDGES = (4, 8, 16, 32, 64, 128, 256)  # where vectors, tiles, panels and blocks may end


def sampled(
    shape: Shape, is_open: Array | None, borders: Sequence[int], rng: np.random.Generator
) -> Array:
    """Flat indices, ascending, of elements that are not open.

    borders: where parts of the values begin that are computed with it (`part_borders`).
    """
    size = int(np.prod(shape, dtype=np.int64))
    if size <= EVERY:
        found = np.arange(size)
    else:
        places = [*_corners(shape), *_at_borders(shape, borders, rng), *_anywhere(shape, rng)]
        columns = [np.array(c, np.int64) for c in zip(*places, strict=True)]
        found = np.unique(flat_indices(columns, shape, len(places)))
    if is_open is None:
        return found
    found = found[~is_open.reshape(-1)[found]]
    rest = np.flatnonzero(~is_open.reshape(-1)) if len(found) < LEAST else found
    more = rng.choice(rest, min(LEAST, len(rest)), replace=False) if len(rest) else rest
    return np.unique(np.concatenate([found, more])) if len(found) < LEAST else found


def part_borders(program: Program) -> tuple[int, ...]:
    """Indices at which, in some dim of some value, a part of it begins or ends."""
    found: set[int] = set()
    for n in program.nodes:
        if n.op == "concat" and isinstance(n.attr, Move):
            sizes = [s[n.attr.args[0]] for s in n.attr.sources]
            found.update(np.cumsum(sizes).tolist())
        elif n.op in ("pad", "slice") and isinstance(n.attr, Move):
            found.update(x for side in n.attr.args[:2] for x in side)
            found.update(a + s for a, s in zip(n.attr.args[0], n.attr.sources[0], strict=True))
    return tuple(sorted(found - {0}))


def _corners(shape: Shape) -> list[tuple[int, ...]]:
    ends = [tuple(dict.fromkeys((0, s - 1))) for s in shape]
    return [*islice(product(*ends), CORNERS), tuple(e[-1] for e in ends)]


def _at_borders(
    shape: Shape, borders: Sequence[int], rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Per dim and border some elements there: of the other dims one at borders, one anywhere."""
    own = [_borders(s, borders) for s in shape]
    found = []
    for d, indices in enumerate(own):
        for index in indices:
            for other in (own, [range(s) for s in shape])[:NEAR]:
                at = [int(rng.integers(len(o))) for o in other]
                place = [o[i] for o, i in zip(other, at, strict=True)]
                found.append((*place[:d], index, *place[d + 1 :]))
    return found


def _borders(size: int, borders: Sequence[int]) -> list[int]:
    """The first and the last elements of a dim, and those at both sides of where a tail begins, the
    first of several begins again, or a part does."""
    marks = {*EDGES} | {size - size % e for e in EDGES} | set(borders)
    near = {x for m in marks for x in (m - 1, m)} | {0, 1, size - 2, size - 1}
    return sorted(x for x in near if 0 <= x < size)


def _anywhere(shape: Shape, rng: np.random.Generator) -> list[tuple[int, ...]]:
    drawn = rng.integers(0, shape, (AT_RANDOM, len(shape)))
    return [tuple(row) for row in drawn.tolist()]
