"""Columns that wait for each other: cut, with all others of their kind, where they occur."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from eqsat.extract.choice.columns import Barred, Columns


def circle(choice: Columns, columns: Sequence[int]) -> Barred | None:
    """Columns that wait for each other, and all that could be in their places; None: none do.

    One place is filled by whoever reads one buffer of the circle and writes the next. A buffer has
    one writer, so of n places n - 1 are filled at most.
    """
    reads, writes = choice.reads.tuples, choice.writes.tuples
    writer = {b: i for i in columns for b in writes[i]}
    before = {i: [writer[b] for b in reads[i] if b in writer and writer[b] != i] for i in columns}
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        round_trip = error.args[1][:-1]  # each writes what the next one reads
    else:
        return None
    pairs = zip(round_trip, [*round_trip[1:], round_trip[0]], strict=True)
    handed = [min(b for b in reads[j] if writer.get(b) == i) for i, j in pairs]
    places = [
        sorted(set(choice.readers[read].tolist()) & set(choice.writers[written].tolist()))
        for read, written in zip([handed[-1], *handed[:-1]], handed, strict=True)
    ]
    return tuple(i for place in places for i in place), len(places) - 1
