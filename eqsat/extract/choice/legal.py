"""Whether columns are an answer of a choice, asked without its rows and without a solver.

Columns that wait for each other are none: they are cut, with all others of their kind, where they
occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.choice.columns import Barred, Columns


def is_legal(choice: Columns, columns: Sequence[int]) -> bool:
    """Whether they keep every rule of the choice, budgets and the order aside."""
    written = _all(choice.writes.tuples, columns)
    there = set(written)
    needed = {*choice.facts.roots.tolist(), *_all(choice.reads.tuples, columns)}
    kept, held = set(_all(choice.resident.tuples, columns)), _all(choice.exclusive.tuples, columns)
    once = len(there) == len(written) and len(set(held)) == len(held) and kept.isdisjoint(there)
    return once and needed <= there and _is_alike(choice, columns) and _is_forced(choice, columns)


def _all(rows: Sequence[tuple[int, ...]], columns: Iterable[int]) -> list[int]:
    return [n for i in columns for n in rows[i]]


def _is_alike(choice: Columns, columns: Sequence[int]) -> bool:
    """Whether both of the equal blocks in the middle hold the same."""
    if choice.facts.blocks is None:
        return True
    keys = {int(choice.key[i]) for i in columns}
    images = {int(choice.image[i]) for i in columns if choice.last[i] == ONE}
    return images == {int(choice.key[i]) for i in columns if choice.last[i] == TWO} <= keys


def _is_forced(choice: Columns, columns: Sequence[int]) -> bool:
    if choice.forced is None:
        return True
    useful = set(pruned(choice, columns))
    wanted = {*choice.facts.roots.tolist(), *_all(choice.reads.tuples, useful)}
    return any(i in useful and not wanted.isdisjoint(b) for i, b in choice.forced)


def pruned(choice: Columns, columns: Sequence[int]) -> tuple[int, ...]:
    """Without columns that no root needs, in their order; no goal gets worse."""
    writer = {b: i for i in columns for b in choice.writes.tuples[i]}
    kept: set[int] = set()
    waiting = choice.facts.roots.tolist()
    while waiting:
        i = writer.get(waiting.pop())
        if i is not None and i not in kept:
            kept.add(i)
            waiting += choice.reads.tuples[i]
    return tuple(i for i in columns if i in kept)


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
