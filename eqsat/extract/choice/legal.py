"""Whether columns are an answer of a choice, asked without its rows and without a solver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eqsat.extract.blocks import ONE, TWO
from eqsat.extract.choice.columns import Columns


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
