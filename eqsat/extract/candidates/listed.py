"""Candidates column by column: those that were enumerated, and their copies in other blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.ragged import Ints, Ragged, joined
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.copies import Copies


@dataclass(frozen=True)
class CandidateTable:
    """The direct candidates, then the copies; an object is made of a copy only where asked for."""

    direct: Sequence[Candidate]
    copies: Copies | None = None

    def __len__(self) -> int:
        return len(self.direct) + len(self.blocks)

    def __getitem__(self, number: int) -> Candidate:
        copy = number - len(self.direct)
        if copy < 0 or self.copies is None or self.copies.shifted is None:
            return self.direct[number]
        images = self.copies.shifted.images(int(self.blocks[copy]))
        return images.candidate(self.direct[self.copies.origin[copy]])

    # ---- where they are ------------------------------------------------------------------------
    @property
    def blocks(self) -> Ints:
        """Per copy: how many blocks later it is."""
        return np.zeros(0, dtype=np.int64) if self.copies is None else self.copies.blocks

    @cached_property
    def origin(self) -> Ints:
        """Per candidate: the direct one that it is, or is a copy of."""
        own = np.arange(len(self.direct))
        return own if self.copies is None else np.concatenate([own, self.copies.origin])

    @cached_property
    def _distances(self) -> Ints:
        return np.unique(self.blocks)

    def image(self, of: str, numbers: Ints, candidates: Ints, *, back: bool = False) -> Ints:
        """Numbers of a direct candidate's parts in the block of its copy, pair by pair.

        `of`: node, eclass, buffer or value. back: the other way round. -1 where there is none.
        """
        found, copy = numbers.copy(), candidates - len(self.direct)
        rows = np.flatnonzero(copy >= 0)
        if self.copies is None or self.copies.shifted is None or not len(rows):
            return found
        arrays, sign = self.copies.shifted.arrays, -1 if back else 1
        tables = np.stack([arrays(int(k) * sign)[of] for k in self._distances])
        which = np.searchsorted(self._distances, self.blocks[copy[rows]])
        found[rows] = tables[which, numbers[rows]]
        return found

    # ---- columns -------------------------------------------------------------------------------
    def _column(self, of: str, rows: Sequence[tuple[int, ...]]) -> Ragged:
        tick()
        direct = Ragged.of(rows)
        if not len(self.blocks):
            return direct
        found = joined([direct, direct.take(self.origin[len(self.direct) :])])
        index = self.image(of, found.index, found.rows)
        assert index.min(initial=0) >= 0, "what is copied has an image"
        return Ragged(found.start, index)

    @cached_property
    def members(self) -> Ragged:
        return self._column("node", [c.members for c in self.direct])

    @cached_property
    def reads(self) -> Ragged:
        return self._column("eclass", [c.reads for c in self.direct])

    @cached_property
    def writes(self) -> Ragged:
        return self._column("eclass", [c.writes for c in self.direct])

    @cached_property
    def exposable(self) -> Ragged:
        return self._column("eclass", [c.exposable for c in self.direct])

    @cached_property
    def time_ps(self) -> Ints:
        return np.array([c.time_ps for c in self.direct], dtype=np.int64)[self.origin]

    @cached_property
    def slack_ps(self) -> Ints:
        return np.array([c.slack_ps for c in self.direct], dtype=np.int64)[self.origin]

    def slices(self, size: int) -> list[Slice]:
        """All of them, at most so many at once."""
        ends = [*range(size, len(self), size), len(self)]
        return [Slice(self, begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True)
class Slice:
    """Candidates [begin, end) of a table, numbered from 0."""

    whole: CandidateTable
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, number: int) -> Candidate:
        return self.whole[self.begin + number]

    def image(self, of: str, numbers: Ints, candidates: Ints, *, back: bool = False) -> Ints:
        return self.whole.image(of, numbers, candidates + self.begin, back=back)

    @property
    def origin(self) -> Ints:
        return self.whole.origin[self.begin : self.end]

    @property
    def members(self) -> Ragged:
        return self.whole.members.part(self.begin, self.end)

    @property
    def reads(self) -> Ragged:
        return self.whole.reads.part(self.begin, self.end)

    @property
    def writes(self) -> Ragged:
        return self.whole.writes.part(self.begin, self.end)

    @property
    def exposable(self) -> Ragged:
        return self.whole.exposable.part(self.begin, self.end)

    @property
    def time_ps(self) -> Ints:
        return self.whole.time_ps[self.begin : self.end]

    @property
    def slack_ps(self) -> Ints:
        return self.whole.slack_ps[self.begin : self.end]
