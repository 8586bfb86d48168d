"""Small groups around something that all blocks share, in families that look alike.

Groups of two blocks read the same table, or compute the same constant. They may not merge, since
one block waits for the other. So what is around the table falls apart into families, block by
block, and a family of a later block is a copy of an earlier one. Groups that are their own images,
such as conversions of the table itself, may merge with those of every family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eqsat.extract.candidates.copies import Book
from eqsat.extract.candidates.merge import Merger
from eqsat.extract.candidates.shifted import Shifted
from eqsat.extract.ragged import Ints, Mask, Ragged

USERS = 8  # times the members of a group: of a value that is used so often, others always need it


class Small(NamedTuple):
    """A small group: a direct candidate, so many blocks later."""

    direct: int
    blocks: int


class Shared(NamedTuple):
    """What small groups share: a node or a buffer, and its block.

    `sign` is equal where these groups are the same ones, so many blocks later. None: no shift.
    The first groups, `common` ones, are the same in all blocks: their merges are found elsewhere.
    """

    key: int
    block: int
    small: tuple[Small, ...]
    sign: bytes | None
    common: int = 0


class Around(NamedTuple):
    """Small groups around a node or buffer: direct candidates, so many blocks later."""

    key: int
    direct: Ints
    blocks: Ints

    def take(self, rows: Ints | Mask) -> Around:
        return Around(self.key, self.direct[rows], self.blocks[rows])

    def small(self) -> tuple[Small, ...]:
        return tuple(map(Small, self.direct.tolist(), self.blocks.tolist()))


@dataclass(frozen=True)
class Families:
    """Asked about small groups of one device and their copies."""

    merger: Merger
    book: Book
    shifted: Shifted

    # ---- what groups write -----------------------------------------------------------------------
    @cached_property
    def _written(self) -> Ints:
        """Per direct candidate: the value it writes."""
        value = self.merger.space.value
        return np.array([value[c.writes[0]] for c in self.book.direct], dtype=np.int64)

    def _moved(self, values: Ints, blocks: Ints) -> Ints:
        """Values so many blocks later."""
        found = np.empty(len(values), dtype=np.int64)
        for k in np.unique(blocks).tolist():
            at = blocks == k
            found[at] = np.array(self.shifted.images(k).value)[values[at]]
        return found

    def used(self, direct: Ints, blocks: Ints) -> Ints:
        """Per small group a number: what it writes is used alike where these are equal."""
        return self.shifted.uses[self._moved(self._written[direct], blocks)]

    def waits(self, around: Around) -> bytes:
        """Which values that these groups write wait for which, the values in the groups' order."""
        written = self._moved(self._written[around.direct], around.blocks)
        return repr(self.merger.waits.among(list(dict.fromkeys(written.tolist())))).encode()

    # ---- families --------------------------------------------------------------------------------
    def of(self, around: Around) -> Iterator[Shared]:
        """Groups around what is its own image: those that are so themselves, then each family."""
        stays = self._stays[around.direct]
        common, moving = around.take(stays), around.take(~stays)
        if len(common.direct) > 1:
            yield Shared(around.key, 0, common.small(), None)
        if not len(moving.direct):
            return
        family, may_copy = self._family(moving), self._are_used_often(common)
        for n in range(int(family.max()) + 1):
            part = moving.take(family == n)
            if len(part.direct) + len(common.direct) < 2:
                continue
            block = int(part.blocks.min())
            sides = [part.direct, part.blocks - block, self.used(part.direct, part.blocks)]
            head = np.array([-1 - around.key, len(part.direct)], dtype=np.int64)
            sign = head.tobytes() + np.concatenate(sides).tobytes() + self.waits(part)
            small = (*common.small(), *part.small())
            count = len(common.direct)
            yield Shared(around.key, block, small, sign if may_copy else None, count)

    @cached_property
    def _stays(self) -> Mask:
        """Per direct candidate: whether it is its own image."""
        node, eclass = self.shifted.once.node, self.shifted.once.eclass
        return np.array(
            [
                all(node[m] == m for m in c.members)
                and all(eclass[x] == x for x in (*c.reads, *c.writes, *c.exposable))
                for c in self.book.direct
            ],
            dtype=bool,
        )

    def _are_used_often(self, common: Around) -> bool:
        """Whether others need what these groups write, whatever a merge computes inside."""
        space, most = self.merger.space, USERS * self.merger.legality.fusion.members
        values = set(self._written[common.direct].tolist())
        return all(len(space.consumers.get(v, frozenset())) > most for v in values)

    def _family(self, around: Around) -> Ints:
        """Per group the number of its family; families are those of values that may merge.

        Two values may not if one waits for the other; but a group may compute what it would wait
        for inside.
        """
        written = self._moved(self._written[around.direct], around.blocks)
        values, value = np.unique(written, return_inverse=True)
        joined = np.ones((len(values), len(values)), dtype=bool)
        for i, j in self.merger.waits.among(values.tolist()):
            joined[i, j] = joined[j, i] = False
        inside = self._computes.take(around.direct)
        computed = self._moved(inside.index, around.blocks[inside.rows])
        at = np.minimum(np.searchsorted(values, computed), len(values) - 1)
        there = values[at] == computed
        one, two = value[inside.rows[there]], at[there]
        joined[one, two] = joined[two, one] = True
        return _components(joined)[value]

    @cached_property
    def _computes(self) -> Ragged:
        """Per direct candidate: the values it computes."""
        return Ragged.of([sorted(self.merger.space.computes(c.members)) for c in self.book.direct])


def _components(joined: Mask) -> Ints:
    """Per node of a reflexive, symmetric relation the number of its connected component.

    Most are joined directly, so a few rounds do; SciPy's graphs take longer to load than this
    takes in small programs.
    """
    first = np.arange(len(joined))
    while True:
        least = np.where(joined, first, len(joined)).min(axis=1)
        if (least == first).all():
            return np.unique(first, return_inverse=True)[1].astype(np.int64)
        first = least[least]
