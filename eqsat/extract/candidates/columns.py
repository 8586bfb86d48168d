"""Options as columns of the relaxation once per block class (`solve.folded`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.freeoptions import FreeOptions, free_table
from eqsat.extract.candidates.orbits import KINDS, Orbits
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.chains import FAR, Chains
from eqsat.extract.ragged import Ints, Mask, Ragged, contains, distinct
from eqsat.extract.solve.classes import Classes, FoldedTable
from eqsat.extract.solve.folded import folded_relaxation, presolved_rows
from eqsat.extract.solve.foldedneeds import folded_needs
from eqsat.extract.solve.relax import Relaxation
from eqsat.model.cycles import give_back

ASKED = ("reads", "writes", "exclusive", "computes", "serves")


@dataclass(frozen=True)
class Columns:
    """Column c stands for the options `of[c]`, as places in `orbits.of`, of one row each."""

    orbits: Orbits
    of: Ragged

    @staticmethod
    def found(orbits: Orbits) -> Columns:
        """An option apart wherever something of it is the first or the last of its chain."""
        row, later = orbits.of.rows, orbits.later
        least, most = int(later.min(initial=0)), int(later.max(initial=0))
        span = most - least + 1
        value = np.array(orbits.variants.space.value, dtype=np.int64)
        parts = [(getattr(orbits.table, name), KINDS[name]) for name in ASKED]
        parts += [(rows.mapped(value), "value") for rows, kind in parts if kind == "buffer"]
        ends = [_ends(rows, orbits.chains[kind], least, most) for rows, kind in parts]
        apart = contains(distinct(np.concatenate(ends)), row * span + later - least)
        group = np.where(apart, len(orbits) + np.arange(len(row)), row)
        order = np.argsort(group, kind="stable")
        group = group[order]
        first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        return Columns(orbits, Ragged(np.concatenate([first, [len(order)]]), order))

    def __len__(self) -> int:
        return len(self.of)

    def take(self, columns: Ints) -> Columns:
        """These columns."""
        return Columns(self.orbits, self.of.take(columns))

    def within(self, relaxed: Relaxation, cap: int | None) -> Columns:
        """Those of answers worth at most so much, by their relaxation."""
        return self if cap is None else self.take(np.array(relaxed.within(cap), dtype=np.int64))

    # ---- plans -----------------------------------------------------------------------------------
    @cached_property
    def _row(self) -> Ints:
        """Per column: the row of the orbits that it is of."""
        return self.orbits.of.rows[self.of.index[self.of.start[:-1]]]

    @property
    def is_asked(self) -> Mask:
        """Per column: whether its time is known, or else a floor of it."""
        return self.orbits.table.is_asked[self._row]

    def asked(self, rows: Ints | None = None) -> Columns:
        """With the times of these, or of all; OverflowError if sums are too large for arrays."""
        asked = self._row if rows is None else self._row[rows]
        return replace(self, orbits=self.orbits.with_times(distinct(asked)))

    # ---- as a problem ----------------------------------------------------------------------------

    def folded(self) -> FoldedTable:
        """What they ask for, as one option of each, and how many there are."""
        orbits = self.orbits
        first = self.of.index[self.of.start[:-1]]
        table = orbits.listed(first)
        blocks = orbits.later[self.of.index] - orbits.later[first][self.of.rows]
        kinds = {n: self._classes(n, c) for n, c in orbits.chains.items()}
        sides = kinds["buffer"], kinds["value"], kinds["number"]
        return FoldedTable(
            free_table(orbits.variants, table), Ragged(self.of.start, blocks + FAR), *sides
        )

    def _classes(self, kind: str, chains: Chains) -> Classes:
        """Of the elements of one kind; those in use are found block by block."""
        row, later = self.orbits.of.rows[self.of.index], self.orbits.later[self.of.index]
        is_used = np.zeros(len(chains.place), dtype=bool)
        parts = [getattr(self.orbits.table, name) for name in ASKED if KINDS[name] == kind]
        for blocks in distinct(later).tolist():
            there = np.zeros(len(self.orbits), dtype=bool)
            there[row[later == blocks]] = True
            for part in parts:
                had = np.zeros(len(is_used), dtype=bool)
                had[part.index[there[part.rows]]] = True
                is_used[chains.at(np.flatnonzero(had), blocks)] = True
        if kind == "value":
            is_used[list(self.orbits.variants.needed)] = True
        return Classes(chains, is_used)

    def options(self, columns: Ints) -> FreeOptions:
        """All options of these columns, in all their blocks, that some answer may need."""
        table = self.orbits.listed(np.sort(self.of.take(columns).index))
        return FreeOptions.made(self.orbits.variants, table)

    @property
    def single_ops(self) -> Ints:
        """Columns of options that are one op alone."""
        is_single = self.orbits.table.single_ops(self.orbits.variants.space)
        return np.flatnonzero(is_single[self._row])

    def objects(self, rows: Ints) -> tuple[Variant, ...]:
        """All options of these columns, as `Variant`s."""
        return self.options(rows).objects()

    def presolved(self) -> Columns:
        """What of these some answer may need."""
        return self.take(presolved_rows(self.folded())[0])

    def relaxation(self, goal: str, weight: int = 1) -> Relaxation | None:
        """The least weight · goal of these; None: there is no answer."""
        table = self.folded()
        adds = table.table.adds[:, list(self.orbits.variants.goals).index(goal)]
        known = folded_needs(table)
        give_back()
        found = folded_relaxation(table, weight * adds, known)
        del table, known
        give_back()
        return found


def _ends(rows: Ragged, chains: Chains, least: int, most: int) -> Ints:
    """(row, blocks later) where something of it is at an end of its chain, as one number each."""
    moving = chains.moves[rows.index]
    index, row = rows.index[moving], rows.rows[moving]
    found = []
    for blocks in (-chains.place[index], chains.length[index] - 1 - chains.place[index]):
        there = (blocks >= least) & (blocks <= most)
        found.append(row[there] * (most - least + 1) + blocks[there] - least)
    return np.concatenate(found)
