"""Options once per block class: one of each, and all the blocks in which it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.certified import Certified, images_of_numbers
from eqsat.extract.candidates.dominance import undominated
from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.plantimes import with_plan_times
from eqsat.extract.candidates.samekernel import SETS, one_of_each_kernel
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.tabulate import read_by_any, tabulated_of
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.chains import FAR, Chains
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.cycles import give_back

KINDS = {"reads": "buffer", "resident": "buffer", "writes": "buffer", "extras": "buffer"}
KINDS |= {"exclusive": "number", "computes": "value", "serves": "value"}
NEEDS = ("reads", "resident", "writes", "exclusive")


@dataclass(frozen=True)
class Orbits:
    """Row by row an option of `table`, and the candidates it is there for: its own and copies.

    `of` are numbers of candidates. What belongs to a copy is that of the row, as many blocks later
    as the copy is.
    """

    variants: Variants
    table: OptionTable
    of: Ragged
    chains: Mapping[str, Chains]  # of buffers, values and exclusive numbers; none without copies

    @staticmethod
    def found(variants: Variants, *, floored: bool = False) -> Orbits:
        """Without those that are dominated; OutOfTime.

        floored: no plan is made. Times that take one are floors of it; such options dominate no
        others and are not dominated yet. OverflowError if sums of times are too large for arrays.
        """
        every = CandidateTable(variants.candidates, variants.copies)
        is_read = read_by_any(variants, every)
        copied = Certified(variants, every, is_read).copies
        alone = np.flatnonzero(~copied)
        parts = list(tabulated_of(variants, every, alone, is_read))
        copies = np.flatnonzero(copied)
        owner = np.concatenate([alone, every.origin[copies]])
        of = Ragged.grouped(owner, np.concatenate([alone, copies]), len(every))
        table = OptionTable.stacked(parts)
        parts.clear()
        target = variants.pool.legality.target
        of = of.take(table.candidate)
        whole = Orbits(variants, table, of, _chains(variants, every)).in_runs()
        if target.is_planned and not variants.pool.keeps_all:
            whole = whole.one_of_each_kernel()
        if not floored or not all(t.is_planned for _, t in target.devices):
            whole = whole.with_times(np.arange(len(whole)))
        give_back()
        found = whole.undominated()
        del whole, table
        give_back()
        return found

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: Ints) -> Orbits:
        """These rows."""
        return replace(self, table=self.table.take(rows), of=self.of.take(rows))

    @cached_property
    def later(self) -> Ints:
        """Per entry of `of`: how many blocks later than the row's own candidate it is."""
        later = self.table.candidates.later
        return later[self.of.index] - later[self.table.candidate][self.of.rows]

    def with_times(self, rows: Ints) -> Orbits:
        """With the plans of these rows; OverflowError as `found`."""
        return replace(self, table=with_plan_times(self.variants, self.table, rows))

    def one_of_each_kernel(self) -> Orbits:
        """Without what is another one's kernel in the same blocks (`samekernel`)."""
        placed = self._relative(SETS) if self.chains else self.table
        return self.take(one_of_each_kernel(self.variants.space, self.table, placed))

    # ---- dominance -------------------------------------------------------------------------------
    def undominated(self) -> Orbits:
        """Without what another one dominates in all blocks in which it is there."""
        table = self.table if not self.chains else self._relative()
        known, others = np.flatnonzero(table.is_asked), np.flatnonzero(~table.is_asked)
        kept = undominated(table.take(known) if len(others) else table).kept
        return self.take(np.sort(np.concatenate([known[kept], others])))

    def in_runs(self) -> Orbits:
        """Each row in blocks one after the other, without gaps."""
        order = np.lexsort((self.later, self.of.rows))
        row, later = self.of.rows[order], self.later[order]
        begins = np.ones(len(row), dtype=bool)
        begins[1:] = (row[1:] != row[:-1]) | (later[1:] != later[:-1] + 1)
        first = np.flatnonzero(begins)
        of = Ragged(np.concatenate([first, [len(row)]]), self.of.index[order])
        table = self.table if len(first) == len(self) else self.table.take(row[first])
        return replace(self, table=table, of=of)

    def _relative(self, names: Sequence[str] = NEEDS) -> OptionTable:
        """These sets relative to what is written, and the first and last block as costs.

        So options are compared that are alike, whichever block each was found in; and none is
        dominated by one that is there in fewer blocks.
        """
        place = self._anchor
        first, last = self.of.start[:-1], self.of.start[1:] - 1
        blocks = [place + self.later[first], -(place + self.later[last])]
        adds = np.concatenate([self.table.adds, np.stack(blocks, axis=1)], axis=1)
        return replace(self.table, adds=adds, **{n: self._coded(n, place) for n in names})

    @cached_property
    def _anchor(self) -> Ints:
        """Per row: the block of what it writes that moves, in the first chain of these."""
        writes, chains = self.table.writes, self.chains["buffer"]
        moving = writes.where(chains.moves[writes.index])
        found = np.zeros(len(self), dtype=np.int64)
        some = np.flatnonzero(moving.counts)
        if len(some):
            order = chains.chain[moving.index] * FAR + chains.place[moving.index]
            found[some] = np.minimum.reduceat(order, moving.start[:-1][some]) % FAR
        return found

    def _coded(self, name: str, anchor: Ints) -> Ragged:
        """(chain, blocks from the anchor) as one number each, ascending in a row."""
        rows: Ragged = getattr(self.table, name)
        chains = self.chains[KINDS[name]]
        blocks = chains.place[rows.index] - anchor[rows.rows]
        most = max(int(c.length.max(initial=1)) for c in self.chains.values())
        blocks = np.where(chains.moves[rows.index], blocks + most, 0)
        return Ragged(rows.start, chains.chain[rows.index] * 2 * most + blocks).distinct()

    # ---- all of them -----------------------------------------------------------------------------
    def listed(self, places: Ints | None = None) -> OptionTable:
        """The options themselves, in every block, or those at some places in `of`."""
        row, number, later = self.of.rows, self.of.index, self.later
        if places is not None:
            row, number, later = row[places], number[places], later[places]
        found = self.table.take(row)
        if not self.chains:
            return found
        parts = {n: self._moved(getattr(found, n), kind, later) for n, kind in KINDS.items()}
        return replace(found, candidate=number, **parts)

    def _moved(self, rows: Ragged, kind: str, later: Ints) -> Ragged:
        index = self.chains[kind].at(rows.index, later[rows.rows])
        assert index.min(initial=0) >= 0, "what is copied has an image"
        return Ragged(rows.start, index).distinct()


def _chains(variants: Variants, every: CandidateTable) -> Mapping[str, Chains]:
    if not every.chains:
        return {}
    assert every.copies is not None and every.copies.shifted is not None
    numbers = images_of_numbers(variants, every.copies.shifted)
    of_numbers = Chains.of([numbers[n] for n in range(len(numbers))])
    return {"number": of_numbers} | {n: every.chains[n] for n in ("buffer", "value")}
