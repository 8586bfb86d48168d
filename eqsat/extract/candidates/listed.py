"""Candidates column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.groups.grow import Candidate
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.deadline import tick

PARTS = ("members", "reads", "writes", "exposable")  # what candidates are, as numbers


@dataclass(frozen=True)
class CandidateTable:
    """What candidates are, row by row."""

    candidates: Sequence[Candidate]
    prices: type = np.int64  # of arrays: `object` where sums of prices may need more bits

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, number: int) -> Candidate:
        return self.candidates[number]

    @property
    def of_any_size(self) -> CandidateTable:
        """With Python's own numbers as prices."""
        return CandidateTable(self.candidates, object)

    @cached_property
    def columns(self) -> dict[str, Ragged]:
        """By name (`PARTS`)."""
        tick()
        return {name: Ragged.of([getattr(c, name) for c in self.candidates]) for name in PARTS}

    @cached_property
    def time_ps(self) -> Ints:
        return np.array([c.time_ps for c in self.candidates], dtype=self.prices)

    @cached_property
    def slack_ps(self) -> Ints:
        return np.array([c.slack_ps for c in self.candidates], dtype=self.prices)

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

    @property
    def prices(self) -> type:
        return self.whole.prices

    def column(self, name: str) -> Ragged:
        """Of each of them, by name (`PARTS`)."""
        return self.whole.columns[name].take(self.numbers)

    @property
    def time_ps(self) -> Ints:
        return self.whole.time_ps[self.numbers]

    @property
    def slack_ps(self) -> Ints:
        return self.whole.slack_ps[self.numbers]
