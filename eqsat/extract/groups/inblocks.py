"""What is made for one of the two equal blocks of a short program is there for the other one, too.

The second one stands for all blocks up to the last but one, but what follows it is the last block,
and what precedes the first one is block 0. So what nobody needs there somebody may need elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.extract.blocks import ONE, TWO, own_key
from eqsat.extract.candidates.space import Space
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.ragged import Ints, Ragged


def with_images(space: Space, found: Sequence[Candidate]) -> list[Candidate]:
    """With those of either block as well as of the other; distant blocks aside."""
    rolled = space.rolled
    if rolled is None:
        return list(found)
    near = [c for c in found if rolled.is_near(c.members)]
    there = {_key(c) for c in near}
    sides = (rolled.node_images, rolled.images)
    ways = {ONE: sides, TWO: (_inverse(sides[0]), _inverse(sides[1]))}
    for c in list(near):
        if (last := rolled.last(c.members)) in ways:
            image = _image(c, *ways[last])
            if image is not None and _key(image) not in there:
                there.add(_key(image))
                near.append(image)
    return near


def _key(c: Candidate) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    return frozenset(c.members), frozenset(c.reads), frozenset(c.writes)


def _inverse(image: Sequence[int]) -> list[int]:
    found = [-1] * len(image)
    for i, j in enumerate(image):
        if j >= 0 and found[j] < 0:
            found[j] = i
    return found


def _image(c: Candidate, node: Sequence[int], eclass: Sequence[int]) -> Candidate | None:
    members = tuple(node[m] for m in c.members)
    reads, writes, shown = (tuple(eclass[x] for x in s) for s in (c.reads, c.writes, c.exposable))
    if min((*members, *reads, *writes, *shown), default=0) < 0:
        return None
    return c._replace(members=members, reads=reads, writes=writes, exposable=shown)


def column_images(space: Space, members: Ragged, buffers: Sequence[Ragged], last: Ints) -> Ints:
    """Per column the row of the same column one block later; -1 if there is none.

    buffers: those that a column reads, keeps and writes. last: the last block that it touches.
    """
    found = np.full(len(last), -1, dtype=np.int64)
    inner = np.flatnonzero((last == ONE) | (last == TWO))
    sides = (of.take(inner).tuples for of in (members, *buffers))
    parts = list(zip(*sides, strict=True))
    place = {own_key(*p): i for p, i in zip(parts, inner.tolist(), strict=True)}
    for p, i in zip(parts, inner.tolist(), strict=True):
        if last[i] == ONE:
            found[i] = place.get(space.later.key(*p), -1)
    return found


def mirrored(kept: Ints, image: Ints) -> Ints:
    """Rows that are kept, ascending, where of each pair of the same options the first one says."""
    mask = np.zeros(len(image), dtype=bool)
    mask[kept] = True
    first = np.flatnonzero(image >= 0)
    mask[image[first]] = mask[first]
    return np.flatnonzero(mask)
