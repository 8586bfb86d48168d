"""All options some answer may need as a table, and the problem of choosing among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.extract.candidates.dominance import undominated
from eqsat.extract.candidates.free import counted_bytes, fixed_bytes
from eqsat.extract.candidates.plantimes import with_plan_times
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.tabulate import option_table
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.groups.inblocks import in_either, mirrored, option_images
from eqsat.extract.ragged import Ints, Mask, Ragged, counted
from eqsat.extract.solve.freetable import BlockTable, FreeTable, presolved
from eqsat.extract.solve.relax import Relaxation


@dataclass(frozen=True)
class FreeOptions:
    """Row by row the same options: `table` says what they are, `problem` what they ask for."""

    variants: Variants
    table: OptionTable
    problem: FreeTable

    @staticmethod
    def of(variants: Variants) -> FreeOptions:
        """Without those that are dominated, or in no answer; OutOfTime.

        OverflowError if sums of their times are too large for arrays.
        """
        return FreeOptions.made(variants, option_table(variants))

    @staticmethod
    def floored(variants: Variants) -> FreeOptions:
        """The same before any plan is made: see `option_table`."""
        return FreeOptions.made(variants, option_table(variants, floored=True))

    @staticmethod
    def made(variants: Variants, table: OptionTable) -> FreeOptions:
        """Of these options those that some answer may need."""
        return FreeOptions(variants, table, free_table(variants, table)).presolved()

    @property
    def is_asked(self) -> Mask:
        """Per option: whether its time is known, or else a floor of it."""
        return self.table.is_asked

    def asked(self, rows: Ints | None = None) -> FreeOptions:
        """With the times of all, and without those that are dominated then; or with those of some.

        OverflowError if sums of them are too large for arrays.
        """
        if self.is_asked.all():
            return self
        if rows is not None:
            return self._with_times(rows)
        return self._with_times(np.arange(len(self))).undominated()

    def undominated(self) -> FreeOptions:
        """Without those that others dominate, and what no answer needs then."""
        kept, blocks = undominated(self.table).kept, self.problem.blocks
        return self.take(kept if blocks is None else mirrored(kept, blocks.image)).presolved()

    def _with_times(self, rows: Ints) -> FreeOptions:
        table = with_plan_times(self.variants, self.table, rows)
        return FreeOptions(self.variants, table, replace(self.problem, adds=table.adds))

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: Ints) -> FreeOptions:
        """These options; their columns are there once."""
        table = self.table.take(rows)
        blocks = self.problem.blocks
        blocks = None if blocks is None else blocks.take(rows)
        problem = replace(self.problem, **columns(table), blocks=blocks)
        return FreeOptions(self.variants, table, problem)

    def within(self, relaxed: Relaxation, cap: int | None) -> FreeOptions:
        """Those of answers worth at most so much, by their relaxation."""
        return self if cap is None else self.take(np.array(relaxed.within(cap), dtype=np.int64))

    def presolved(self) -> FreeOptions:
        """Without what no answer made of these can hold."""
        rows, blocks = presolved(self.problem), self.problem.blocks
        return self.take(rows if blocks is None else in_either(rows, blocks.image))

    @property
    def single_ops(self) -> Ints:
        """Options that are one op alone."""
        return np.flatnonzero(self.table.single_ops(self.variants.space))

    def objects(self, rows: Ints | None = None) -> tuple[Variant, ...]:
        """These options, or all, as `Variant`s, with their times."""
        found = self if rows is None else self.take(rows)
        found = found.asked(np.arange(len(found)))
        return found.table.variants(self.variants.space, range(len(found)))

    # ---- memory --------------------------------------------------------------------------------
    @cached_property
    def _nbytes(self) -> Ints:
        """Per buffer: its bytes, where `fixed_bytes` does not count them."""
        return np.array(counted_bytes(self.variants.pool), dtype=np.int64)

    @cached_property
    def _kept(self) -> Ints:
        """Per buffer: the same of a weight, with those that it stands for."""
        times = np.array(list(map(self.variants.space.times, range(len(self._nbytes)))))
        return self._nbytes * times

    @cached_property
    def _touched(self) -> Ints:
        """Per option: temporaries it reads or writes; all are live when it runs."""
        nbytes, roots = self._nbytes.copy(), list(self.variants.space.roots)
        nbytes[roots] = 0
        reads, writes = self.table.reads, self.table.writes
        return reads.sums(nbytes[reads.index]) + writes.sums(nbytes[writes.index])

    @cached_property
    def own_bytes(self) -> Ints:
        """Per option: peak bytes of every answer that holds it, at the least."""
        kept = self.table.resident
        weights = kept.sums(self._kept[kept.index])
        return fixed_bytes(self.variants.pool) + self._touched + weights

    @cached_property
    def least_bytes(self) -> int:
        """A proven lower bound of peak bytes in any order, without a solver.

        A weight is kept if some needed value is computed from it by every dispatch that may do so,
        in the smallest layout of these. What the dispatch of a needed value reads and writes is
        live when it runs.
        """
        problem, span = self.problem, self.problem.span
        ways = problem.computes.turned(span).take(problem.needed)
        ways = ways.take(np.flatnonzero(ways.counts))
        if not len(ways):
            return fixed_bytes(self.variants.pool)
        live = int(np.minimum.reduceat(self._touched[ways.index], ways.start[:-1]).max())
        weights = self._weight_bytes()
        return fixed_bytes(self.variants.pool) + _surely_kept(ways, *weights, span) + live

    def _weight_bytes(self) -> tuple[Ragged, Ints]:
        """Per option the weights it reads, and the bytes of all layouts it reads of each."""
        kept, span = self.table.resident, self.problem.span
        is_root = np.zeros(span, dtype=bool)
        is_root[list(self.variants.space.roots)] = True
        kept = kept.where(~is_root[kept.index])
        keys = kept.rows * span + self.problem.value_of[kept.index]
        order = np.argsort(keys, kind="stable")
        pairs, counts = counted(keys[order])
        nbytes = Ragged(np.concatenate([[0], np.cumsum(counts)]), kept.index[order])
        values = Ragged.grouped(pairs // span, pairs % span, len(self))
        return values, nbytes.sums(self._kept[nbytes.index])


def _surely_kept(ways: Ragged, weights: Ragged, nbytes: Ints, span: int) -> int:
    """Bytes of weights that every way to compute some value reads."""
    read = weights.take(ways.index)
    places = Ragged(weights.start, np.arange(len(weights.index))).take(ways.index).index
    keys = ways.rows[read.rows] * span + read.index
    order = np.argsort(keys, kind="stable")
    pairs, counts = counted(keys[order])
    if not len(pairs):
        return 0
    least = np.minimum.reduceat(nbytes[places[order]], np.cumsum(counts) - counts)
    surely = counts == ways.counts[pairs // span]
    most = np.zeros(span, dtype=np.int64)
    np.maximum.at(most, pairs[surely] % span, least[surely])
    return int(most.sum())


def free_table(variants: Variants, table: OptionTable) -> FreeTable:
    """The problem of choosing among these options in any order."""
    pool, space = variants.pool, variants.space
    roots = [r for r in space.roots if r not in pool.held]
    return FreeTable(
        **columns(table),
        roots=np.array(roots, dtype=np.int64),
        needed=np.array(variants.needed, dtype=np.int64),
        served=np.array(sorted(frozenset().union(*pool.served.values())), dtype=np.int64),
        value_of=np.array(space.value, dtype=np.int64),
        is_source=_is_source(variants),
        blocks=_blocks(space, table),
    )


def _blocks(space: Space, table: OptionTable) -> BlockTable | None:
    """Where they are among equal blocks; None if the e-graph stands for itself."""
    rolled = space.rolled
    if rolled is None:
        return None
    later = space.later
    numbers = [later.number(n) for n in range(len(later.node) + len(later.value))]
    return BlockTable(
        table.last,
        option_images(space, table),
        level=np.array(rolled.level, dtype=np.int64),
        buffer=np.array(later.buffer, dtype=np.int64),
        value=np.array(later.value, dtype=np.int64),
        number=np.array(numbers, dtype=np.int64),
        count=rolled.count,
    )


def columns(table: OptionTable) -> dict[str, Any]:
    """What both tables say about the options."""
    names = ("adds", "reads", "writes", "exclusive", "computes", "serves")
    return {n: getattr(table, n) for n in names}


def _is_source(variants: Variants) -> Mask:
    """Per value: whether it is there from the start, in some layout."""
    pool, space = variants.pool, variants.space
    found = np.zeros(len(space.buffer), dtype=bool)
    found[[v for v in set(space.value) if space.is_source(v)]] = True
    found[[space.value[b] for b in pool.held | pool.resident]] = True
    return found
