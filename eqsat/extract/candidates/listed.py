"""Candidates column by column: those that were enumerated, and their copies in other blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.copies import Copies
    from eqsat.extract.chains import Chains


# of candidates, and of what they are
PARTS = {"members": "node", "reads": "eclass", "writes": "eclass", "exposable": "eclass"}


@dataclass(frozen=True)
class CandidateTable:
    """The direct candidates, then the copies; an object is made of a copy only where asked for."""

    direct: Sequence[Candidate]
    copies: Copies | None = None
    prices: type = np.int64  # of arrays: `object` where sums of prices may need more bits

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
    def later(self) -> Ints:
        """Per candidate: how many blocks later than its origin it is."""
        return np.concatenate([np.zeros(len(self.direct), dtype=np.int64), self.blocks])

    @cached_property
    def chains(self) -> dict[str, Chains]:
        """By what they are of: node, eclass, buffer or value; none if there are no copies."""
        shifted = None if self.copies is None else self.copies.shifted
        return {} if shifted is None else shifted.chains

    def image(self, of: str, numbers: Ints, candidates: Ints, *, back: bool = False) -> Ints:
        """Numbers of a direct candidate's parts in the block of its copy, pair by pair.

        `of`: node, eclass, buffer or value. back: the other way round. -1 where there is none.
        """
        if not self.chains:
            return numbers
        later = self.later[candidates]
        return self.chains[of].at(numbers, -later if back else later)

    # ---- columns -------------------------------------------------------------------------------
    @cached_property
    def columns(self) -> dict[str, Ragged]:
        """Of the direct ones, by name (`PARTS`)."""
        tick()
        return {name: Ragged.of([getattr(c, name) for c in self.direct]) for name in PARTS}

    @cached_property
    def time_ps(self) -> Ints:
        """Per candidate; a copy takes as long."""
        return np.array([c.time_ps for c in self.direct], dtype=self.prices)[self.origin]

    @cached_property
    def slack_ps(self) -> Ints:
        return np.array([c.slack_ps for c in self.direct], dtype=self.prices)[self.origin]

    def part(self, numbers: Ints) -> Listed:
        """These of them."""
        return Listed(self, numbers)


@dataclass(frozen=True)
class Listed:
    """Some candidates of a table, numbered from 0."""

    whole: CandidateTable
    numbers: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Candidate:
        return self.whole[int(self.numbers[number])]

    def image(self, of: str, numbers: Ints, candidates: Ints, *, back: bool = False) -> Ints:
        """See `CandidateTable.image`."""
        return self.whole.image(of, numbers, self.numbers[candidates], back=back)

    @property
    def prices(self) -> type:
        return self.whole.prices

    @property
    def origin(self) -> Ints:
        """Per candidate: the direct one that it is, or is a copy of."""
        return self.whole.origin[self.numbers]

    def column(self, name: str) -> Ragged:
        """Of each of them, by name (`PARTS`)."""
        tick()
        found = self.whole.columns[name].take(self.origin)
        index = self.image(PARTS[name], found.index, found.rows)
        assert index.min(initial=0) >= 0, "what is copied has an image"
        return Ragged(found.start, index)

    @property
    def time_ps(self) -> Ints:
        return self.whole.time_ps[self.numbers]

    @property
    def slack_ps(self) -> Ints:
        return self.whole.slack_ps[self.numbers]
