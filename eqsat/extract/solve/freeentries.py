"""Who writes the first of some layouts, as arrays: it says the same as `firsts`."""

from __future__ import annotations

import numpy as np

from eqsat.extract.ragged import Ints, Mask, Ragged, contains, distinct, joined
from eqsat.extract.solve.firsts import circles
from eqsat.extract.solve.freetable import FreeTable
from eqsat.model.deadline import tick


def entries(table: FreeTable) -> tuple[Ragged, Ragged]:
    """Per set of layouts: options that may write the first, and those that read one of them.

    All layouts of a value, and those that are converted in a circle. Sets nobody reads are left
    out, and values of which the rows would say no more than those of their only layout.
    """
    span = table.span
    used = np.flatnonzero(table.readers.counts + table.writers.counts)
    whole = Ragged.grouped(table.value_of[used], used, span)
    values = np.flatnonzero(whole.counts)
    sets = joined([whole.take(values), Ragged.of(_in_circles(table))])
    tick()
    of_buffer = sets.turned(span)
    count = len(sets)
    read = table.reads.spread(of_buffer).distinct()
    written = table.writes.spread(of_buffer).distinct()
    first = ~contains(read.pairs(count), written.pairs(count))
    value = table.value_of[sets.index[sets.start[:-1]]]
    computed = value[written.index] + written.rows * span
    is_made = contains(table.computes.pairs(span), computed)
    is_whole = np.arange(count) < len(values)
    first &= ~is_whole[written.index] | table.is_source[value[written.index]] | is_made
    writers, readers = written.where(first).turned(count), read.turned(count)
    alone = is_whole & _is_one_buffer(table, sets, writers.counts)
    kept = np.flatnonzero((readers.counts > 0) & ~alone)
    return writers.take(kept), readers.take(kept)


def _is_one_buffer(table: FreeTable, sets: Ragged, writers: Ints) -> Mask:
    """Per set: whether it is one layout, and all who write that are among so many writers."""
    only = sets.index[sets.start[:-1]]
    return (sets.counts == 1) & (table.writers.counts[only] == writers)


def _in_circles(table: FreeTable) -> list[tuple[int, ...]]:
    """Layouts of one value that are converted into each other."""
    to = table.writes.take(table.reads.rows)
    origin = np.repeat(table.reads.index, to.counts)
    same = table.value_of[origin] == table.value_of[to.index]
    pairs = distinct(origin[same] * table.span + to.index[same])
    ways: dict[int, dict[int, set[int]]] = {}
    for pair in pairs.tolist():
        a, b = divmod(pair, table.span)
        ways.setdefault(int(table.value_of[a]), {}).setdefault(a, set()).add(b)
    return [tuple(sorted(s)) for _, w in sorted(ways.items()) for s in circles(w)]
