"""Who writes the first of some layouts, as arrays: it says the same as `firsts`."""

from __future__ import annotations

import numpy as np

from eqsat.extract.ragged import Ints, Mask, Ragged, contains
from eqsat.extract.solve.freetable import FreeTable


def of_values(table: FreeTable) -> tuple[Ints, Ragged, Ragged]:
    """Values: options that may write the first layout of each, and those that read one.

    A value that is not there from the start is computed by the former. Without values nobody reads,
    and those of which the rows would say no more than those of their only layout.
    """
    span = table.span
    used = np.flatnonzero(table.readers.counts + table.writers.counts)
    whole = Ragged.grouped(table.value_of[used], used, span)
    values = np.flatnonzero(whole.counts)
    sets = whole.take(values)
    written, read = _sides(table, sets)
    computed = values[written.index] + written.rows * span
    is_made = contains(table.computes.pairs(span), computed)
    first = is_made | table.is_source[values[written.index]]
    writers, readers = written.where(first).turned(len(sets)), read.turned(len(sets))
    kept = (readers.counts > 0) & ~_is_one_buffer(table, sets, writers.counts)
    if table.blocks is not None:  # the same value one block later as well
        there = np.isin(values, table.blocks.value[values[kept]])
        kept |= there
    left = np.flatnonzero(kept)
    return values[left], writers.take(left), readers.take(left)


def _sides(table: FreeTable, sets: Ragged) -> tuple[Ragged, Ragged]:
    """Per option: the sets of which it writes a layout and reads none, and those it reads."""
    of_buffer, count = sets.turned(table.span), max(len(sets), 1)
    read = table.reads.spread(of_buffer).distinct()
    written = table.writes.spread(of_buffer).distinct()
    return written.where(~contains(read.pairs(count), written.pairs(count))), read


def _is_one_buffer(table: FreeTable, sets: Ragged, writers: Ints) -> Mask:
    """Per set: whether it is one layout, and all who write that are among so many writers."""
    only = sets.index[sets.start[:-1]]
    return (sets.counts == 1) & (table.writers.counts[only] == writers)
