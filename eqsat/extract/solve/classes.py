"""The problem without an order once per block class: elements that are added up, and options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eqsat.extract.chains import FAR, INNER, PARTS, Chains
from eqsat.extract.ragged import Ints, Mask, Ragged, contains, distinct
from eqsat.extract.solve.freetable import FreeTable


@dataclass(frozen=True)
class Classes:
    """Elements of one kind that are added up: the inner ones of a chain; the ends are apart.

    is_used: per element, whether any option has it.
    """

    chains: Chains
    is_used: Mask

    @cached_property
    def of(self) -> Ints:
        """Per element: its class."""
        return self.chains.parts

    @cached_property
    def sizes(self) -> Ints:
        """Per class: how many of it are used."""
        count = PARTS * (len(self.chains.start) - 1)
        return np.bincount(self.of, self.is_used, minlength=count).astype(np.int64)

    @property
    def place(self) -> Ints:
        """Per element: its block, from the begin of its chain."""
        return self.chains.place

    @property
    def moves(self) -> Mask:
        """Per element: whether it has images at all."""
        return self.chains.moves

    @cached_property
    def is_inner(self) -> Mask:
        """Per class: whether it may be several elements."""
        return np.arange(len(self.sizes)) % PARTS == INNER


@dataclass(frozen=True)
class FoldedTable:
    """Row by row an option in one block, and in which others it has the same part in all sums.

    `blocks`: per row how many blocks later each is than the row's own option, itself among them,
    plus `FAR`. The classes are those of buffers, values and exclusive numbers.
    """

    table: FreeTable
    blocks: Ragged
    buffers: Classes
    values: Classes
    numbers: Classes

    def __len__(self) -> int:
        return len(self.table)

    @property
    def count(self) -> Ints:
        """Per row: how many options it is."""
        return self.blocks.counts

    def take(self, rows: Ints) -> FoldedTable:
        """These rows; of elements as many stay in use."""
        return replace(self, table=self.table.take(rows), blocks=self.blocks.take(rows))

    def is_there(self, rows: Ints, blocks: Ints) -> Mask:
        """Pair by pair: whether the option is there so many blocks later."""
        return contains(self._there, rows * 2 * FAR + blocks + FAR)

    @cached_property
    def _there(self) -> Ints:
        return np.sort(self.blocks.pairs(2 * FAR))

    @cached_property
    def coarse(self) -> FreeTable:
        """The options with classes in place of elements."""
        table, of = self.table, self.buffers.of
        span = max(len(c.sizes) for c in (self.buffers, self.values, self.numbers)) + 1
        return replace(
            table,
            reads=table.reads.mapped(of),
            writes=table.writes.mapped(of),
            exclusive=table.exclusive.mapped(self.numbers.of),
            computes=table.computes.mapped(self.values.of),
            serves=table.serves.mapped(self.values.of),
            roots=distinct(of[table.roots]),
            value_of=np.zeros(span, dtype=np.int64),
        )
