"""Columns that stand for each other: equal in every row, so that only the cheapest is of interest.

Two columns that read, write, keep, hold, compute and serve the same have the same coefficients in
every row of `rows`, and touch the same bytes. An answer stays one if either is put in the place of
the other, so the dearer one is in no best answer unless it is asked for by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import Columns, Forced
from eqsat.extract.ragged import Ints, Ragged, numbered_sets


@dataclass(frozen=True)
class Alike:
    """Which columns of a choice are equal but for what they cost; `goals`: the sums that count."""

    choice: Columns
    goals: tuple[str, ...]

    @cached_property
    def kind(self) -> Ints:
        """Per column a number: that of its sides."""
        c = self.choice
        return _numbered(c.reads, c.writes, c.resident, c.exclusive, c.computes, c.serves)

    @cached_property
    def costs(self) -> Ints:
        """[columns, goals]"""
        sums = [self.choice.coefficients(g) for g in self.goals]
        return np.stack(sums, axis=1) if sums else np.zeros((len(self.choice), 0), np.int64)

    @cached_property
    def cheapest(self) -> Ints:
        """Of all columns."""
        return self.cheapest_of(np.arange(len(self.choice)))

    def cheapest_of(self, rows: Ints) -> Ints:
        """Of these the cheapest ones of each kind, ascending."""
        return rows[_cheapest(self.kind[rows], self.costs[rows])]

    def cheapest_forced(self, forced: Forced) -> Ints:
        """The same of forced columns, of which those stand for each other that serve the same."""
        rows = np.array([i for i, _ in forced], dtype=np.int64)
        serving = Ragged.of([buffers for _, buffers in forced])
        kind = _numbered(Ragged.of([(k,) for k in self.kind[rows].tolist()]), serving)
        return rows[_cheapest(kind, self.costs[rows])]


def _numbered(*sides: Ragged) -> Ints:
    """Per row a number, the same for rows that are equal in all sides."""
    numbers = np.stack([numbered_sets(side) for side in sides], axis=1)
    return np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1)


def _cheapest(kind: Ints, costs: Ints) -> Ints:
    """Rows, ascending, than which no other one of their kind costs less; of equals the first.

    What costs less by one goal and more by another stays.
    """
    order = np.lexsort((*costs.T[::-1], kind))
    found, of = list[int](), dict[int, list[list[int]]]()
    rows = zip(order.tolist(), kind[order].tolist(), costs[order].tolist(), strict=True)
    for row, number, cost in rows:
        better = of.setdefault(number, [])
        if not any(all(a <= b for a, b in zip(one, cost, strict=True)) for one in better):
            better.append(cost)
            found.append(row)
    return np.array(sorted(found), dtype=np.int64)
