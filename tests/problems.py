"""Random choices, small enough to try every answer (for the tests of the search).

What an answer is and what it is worth is told here without the product's rows and checks.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from eqsat.extract.choice.columns import MEMORY, ChoiceFacts, Columns
from eqsat.extract.choice.linear import OWN
from eqsat.extract.choice.relax import Relaxation, relaxation
from eqsat.extract.choice.statement import Effort, Solution, Statement, solve
from eqsat.extract.memory.bestorder import best_order, graph_of
from eqsat.extract.memory.items import MemoryItems
from eqsat.extract.memory.leastpeak import InAnyOrder, unordered_pairs
from eqsat.extract.minimiser import Minimiser, SearchLimits
from eqsat.extract.ragged import Ragged

Values = tuple[int, ...]
Chosen = tuple[int, ...]  # of an answer, ascending
EFFORT = Effort(seconds=20.0, seed=0)


class Column(NamedTuple):
    """A column as it is listed; `computes` are what it writes if nothing else is said."""

    adds: Values
    reads: Values
    writes: Values
    exclusive: Values = ()
    resident: Values = ()
    computes: Values | None = None


def choice_of(
    columns: Sequence[Column],
    nbytes: Mapping[int, int],
    roots: Iterable[int],
    fixed_bytes: int = 0,
    *,
    value_of: Mapping[int, int] | None = None,
    linear: tuple[str, ...] = tuple(OWN),
) -> Columns:
    """Buffers and values are numbered alike; values of weights are there from the start."""
    value_of = dict(value_of or {})
    held = {b for c in columns for b in c.resident}
    span = 1 + max([*nbytes, *value_of.values(), *(v for c in columns for v in c.computes or ())])
    values = np.array([value_of.get(b, b) for b in range(span)], dtype=np.int64)
    source = np.zeros(span, dtype=bool)
    source[[values[b] for b in held]] = True
    none = np.arange(0)
    facts = ChoiceFacts(
        linear,
        np.array([nbytes.get(b, 0) for b in range(span)], dtype=np.int64),
        fixed_bytes,
        roots=np.array(sorted(roots), dtype=np.int64),
        needed=none,
        served=none,
        value_of=values,
        is_source=source,
        times=np.ones(span, dtype=np.int64),
    )
    count = len(columns)
    return Columns(
        facts,
        np.array([c.adds for c in columns]).reshape(count, len(linear)),
        reads=Ragged.of([c.reads for c in columns]),
        resident=Ragged.of([c.resident for c in columns]),
        writes=Ragged.of([c.writes for c in columns]),
        exclusive=Ragged.of([c.exclusive for c in columns]),
        computes=Ragged.of([c.writes if c.computes is None else c.computes for c in columns]),
        serves=Ragged.of([()] * count),
        candidate=np.arange(count),
        extras=Ragged.of([()] * count),
        is_asked=np.ones(count, dtype=bool),
        last=np.full(count, -1),
        key=np.arange(count),
        image=np.full(count, -1),
    )


def random_choice(seed: int, *, some_held: bool = False, some_layouts: bool = False) -> Columns:
    """Buffers in layers, each with a few writers of the layers before; some write two.

    Weight 6 may be made in the run as well. some_held: most columns hold exclusive numbers.
    some_layouts: some buffers are another layout of the value of the one before them, which those
    of its writers compute that read none of these.
    """
    rng = random.Random(seed)
    buffers = list(range(rng.randint(2, 6)))
    weights = [6, 7]
    columns: list[Column] = []
    for b in buffers:
        for _ in range(rng.randint(1, 3)):
            reads = rng.sample(buffers[:b], rng.randint(0, min(b, 2)))
            writes = [b]
            if rng.random() < 0.3 and b:
                extra = rng.choice(buffers[:b])
                if extra not in reads:
                    writes.append(extra)
            resident = tuple(w for w in weights if rng.random() < 0.2)
            exclusive = (rng.randint(0, 9),) if rng.random() < 0.2 else ()
            if some_held:
                exclusive = tuple(sorted(rng.sample(range(5), rng.choice((0, 1, 1, 2)))))
            adds = (rng.randint(1, 20), rng.randint(0, 3), 1)
            if rng.random() < 0.15 and 6 not in resident:
                reads.append(6)
            sides = tuple(sorted(reads)), tuple(sorted(writes)), exclusive, resident
            columns.append(Column(adds, *sides))
    if rng.random() < 0.5:
        columns.append(Column((rng.randint(1, 5), 0, 1), (), (6,)))
    columns.sort(key=lambda c: (c.writes, c.reads, c.adds))
    roots = rng.sample(buffers, rng.randint(1, min(2, len(buffers))))
    nbytes = {b: rng.choice((4, 8, 64, 100)) for b in (*buffers, *weights)}
    if not some_layouts:
        return choice_of(columns, nbytes, roots, 16)
    value_of: dict[int, int] = {}
    for b in buffers[1:]:
        if rng.random() < 0.6:
            value_of[b] = value_of.get(b - 1, b - 1)
    computing = [c._replace(computes=_computed(c, value_of)) for c in columns]
    return choice_of(computing, nbytes, roots, 16, value_of=value_of)


def _computed(column: Column, value_of: Mapping[int, int]) -> Values:
    written, read = ({value_of.get(b, b) for b in side} for side in (column.writes, column.reads))
    return tuple(sorted(written - read))


# ---- every answer --------------------------------------------------------------------------------
def every_answer(choice: Columns) -> set[Chosen]:
    """All legal answers without useless columns, by trying every writer of what is needed."""
    writers, roots = choice.writers.tuples, set(choice.facts.roots.tolist())
    reads, writes = choice.reads.tuples, choice.writes.tuples
    found: set[Chosen] = set()
    seen: set[frozenset[int]] = set()

    def extend(chosen: frozenset[int]) -> None:
        if chosen in seen:
            return
        seen.add(chosen)
        written = [b for i in chosen for b in writes[i]]
        held = [n for i in chosen for n in choice.exclusive.tuples[i]]
        if len(set(written)) < len(written) or len(set(held)) < len(held):
            return
        missing = sorted(({b for i in chosen for b in reads[i]} | roots).difference(written))
        if not missing:
            found.add(tuple(sorted(useful(choice, chosen))))
            return
        for w in writers[missing[0]]:
            extend(chosen | {w})

    extend(frozenset())
    return {a for a in found if keeps_the_rules(choice, a)}


def useful(choice: Columns, chosen: Iterable[int]) -> set[int]:
    """Those of the chosen columns that a root is made from."""
    writer = {b: i for i in chosen for b in choice.writes.tuples[i]}
    found, waiting = set[int](), [writer[r] for r in choice.facts.roots.tolist()]
    while waiting:
        i = waiting.pop()
        if i not in found:
            found.add(i)
            waiting += [writer[b] for b in choice.reads.tuples[i]]
    return found


def keeps_the_rules(choice: Columns, columns: Sequence[int]) -> bool:
    """What is read or a result is written, once and before; nothing is held twice."""
    counts = Counter(b for i in columns for b in choice.writes.tuples[i])
    held = Counter(n for i in columns for n in choice.exclusive.tuples[i])
    needed = {b for i in columns for b in choice.reads.tuples[i]} | set(choice.facts.roots.tolist())
    kept = {b for i in columns for b in choice.resident.tuples[i]}
    is_once = all(n == 1 for n in (*counts.values(), *held.values()))
    return (
        is_once and needed <= counts.keys() and kept.isdisjoint(counts)
        and has_order(choice, columns) and serves(choice, columns)
    )  # fmt: skip


def has_order(choice: Columns, columns: Sequence[int]) -> bool:
    """Whether they do not wait for each other."""
    writer = {b: i for i in columns for b in choice.writes.tuples[i]}
    before = {i: {writer[b] for b in choice.reads.tuples[i] if b in writer} for i in columns}
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return True


def serves(choice: Columns, columns: Sequence[int]) -> bool:
    """Whether one of the forced columns is chosen, and a buffer of it read or a result."""
    if choice.forced is None:
        return True
    wanted = {b for i in columns for b in choice.reads.tuples[i]} | set(choice.facts.roots.tolist())
    return any(i in columns and wanted & set(buffers) for i, buffers in choice.forced)


# ---- what answers are worth ----------------------------------------------------------------------
def peak(choice: Columns, columns: Chosen) -> int:
    """Bytes of the worst step of the best order there is."""
    best = best_order(graph_of(choice, columns))  # `test_order` has it by brute force
    assert best.is_proven
    return best.peak_bytes


def value(choice: Columns, goal: str, columns: Chosen) -> int:
    if goal == MEMORY:
        return peak(choice, columns)
    at = choice.facts.linear.index(goal)
    return sum(int(choice.adds[i, at]) for i in columns)


def worth(choice: Columns, weights: Mapping[str, int], columns: Chosen) -> int:
    return sum(w * value(choice, g, columns) for g, w in weights.items())


# ---- the product, asked --------------------------------------------------------------------------
def stated(choice: Columns, weights: Mapping[str, int], caps: Mapping[str, int]) -> Statement:
    """The question as rows, those of bytes among them where they are asked about."""
    told = Statement(choice)
    if MEMORY in {*weights, *caps}:
        bytes_of(choice, caps)(told)
    for goal, cap in caps.items():
        told.cap(goal, cap)
    return told


def bytes_of(
    choice: Columns, caps: Mapping[str, int], *, pairs: bool = False
) -> Callable[[Statement], None]:
    """Rows of bytes: a lower bound in any order."""
    items = MemoryItems(choice)
    return InAnyOrder(items, caps, pairs=unordered_pairs(items) if pairs else ())


def solved(
    choice: Columns, weights: Mapping[str, int], caps: Mapping[str, int] | None = None
) -> Solution:
    """By one solve, without cuts."""
    return solve(stated(choice, weights, caps or {}), weights, EFFORT)


def relaxed(
    choice: Columns, weights: Mapping[str, int], caps: Mapping[str, int] | None = None
) -> Relaxation | None:
    return relaxation(choice, weights, caps, bytes_of(choice, caps or {}))


def questions(choice: Columns, seconds: float = math.inf) -> Minimiser:
    return Minimiser(choice, SearchLimits(seconds, 0))


def sets_of(count: int) -> Iterator[Chosen]:
    """Every set of so many columns."""
    for bits in range(1 << count):
        yield tuple(i for i in range(count) if bits >> i & 1)


def best_of(values: Iterable[Values]) -> set[Values]:
    """Those that no other one is as good as everywhere."""
    every = set(values)
    return {
        v
        for v in every
        if not any(o != v and all(x <= y for x, y in zip(o, v, strict=True)) for o in every)
    }
