"""A choice and what its columns are made from: answers become groups, and groups answers.

And a small choice that holds a good answer: the baseline's dispatches in a few layouts (`packing`).
Per buffer the cheapest node that makes it is known once those of its operands are, as in a greedy
extraction, so layouts spread along the program as far as that pays. An op costs its arithmetic, and
waiting for its operands as much as the dearest of them, so nothing counts twice. Of what is picked,
and of the input program's own nodes, dispatches are made that compute what a dispatch of the
baseline does, or one op.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from eqsat.extract.blocks import NOWHERE, Rolled
from eqsat.extract.candidates.dominators import served_by
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import CandidateTable, Sources, choice_facts, group_of
from eqsat.extract.candidates.space import Moment, Space
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.choice.legal import is_legal, pruned
from eqsat.extract.choice.linear import OWN
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated, with_others
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.memory.bestorder import (
    as_listed,
    graph_of,
    peak_bytes,
)
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.deadline import gc_paused, tick, until
from eqsat.model.goal import Goal
from eqsat.model.selection import (
    TIME_LIMIT,
    Cut,
    Group,
    Removed,
)
from eqsat.model.sets import topological

LATE: Moment = (1 << 60, 0, 0, 0)  # of a value that the program's do not lead to


@dataclass(frozen=True)
class Choices:
    """The candidates there are to choose from, and what was left out."""

    sources: Sources
    removed: tuple[Removed, ...]
    cuts: tuple[Cut, ...]

    def assembled(self, *, floored: bool = False) -> Assembly:
        """Their choice; floored: before any plan is made. OutOfTime if stating it takes too long.

        Prices are Python's own numbers where sums of them need more than 64 bits.
        """
        with gc_paused():
            try:
                choice = choice_of(self.sources, floored=floored)
            except OverflowError:
                long = replace(self.sources, candidates=self.sources.candidates.of_any_size)
                return replace(self, sources=long).assembled()
        return Assembly(self.sources, choice, self.removed, self.cuts)

    def single_ops(self) -> Choices:
        """Of dispatches of one op each alone: few, so their plans are soon made."""
        is_op, candidates = self.sources.space.is_op, self.sources.candidates.candidates
        few = tuple(c for c in candidates if sum([is_op[m] for m in c.members]) <= 1)
        sources = replace(self.sources, candidates=CandidateTable(few))
        return replace(self, sources=sources, cuts=cut_short(self.sources.pool, self.cuts))

    def beside(self, others: Choices) -> Choices:
        """With the candidates of another search of the same e-graph that are not among them."""
        candidates = self.sources.candidates.candidates
        every = with_others(candidates, others.sources.candidates.candidates)
        return replace(self, sources=replace(self.sources, candidates=CandidateTable(every)))


def cut_short(pool: Pool, cuts: Sequence[Cut]) -> tuple[Cut, ...]:
    """With a word about groups behind any op that there was no time for."""
    nodes = sum(map(len, pool.producers.values()))
    others = [c for c in cuts if (c.what, c.by) != ("groups", TIME_LIMIT)]
    return (*others, *([Cut("groups", nodes, TIME_LIMIT)] if nodes else []))


@dataclass(frozen=True)
class Assembly:
    """A choice, and the candidates that its columns are made from."""

    sources: Sources
    choice: Columns
    removed: tuple[Removed, ...]
    cuts: tuple[Cut, ...]

    @property
    def pool(self) -> Pool:
        return self.sources.pool

    @property
    def space(self) -> Space:
        return self.sources.space

    @property
    def looked_at(self) -> int:
        """How many candidates there are, whatever became of them."""
        rolled, candidates = self.space.rolled, self.sources.candidates.candidates
        return (
            len(candidates) if rolled is None else sum(rolled.times(c.members) for c in candidates)
        )

    def take(self, rows: Ints) -> Assembly:
        """With these columns alone."""
        return replace(self, choice=self.choice.take(rows))

    def candidate(self, column: int) -> Candidate:
        return self.sources.candidates[int(self.choice.candidate[column])]

    @property
    def single_ops(self) -> Ints:
        """Columns that are one op alone."""
        members = self.sources.candidates.columns["members"]
        ops = members.sums(np.array(self.space.is_op, dtype=np.int64)[members.index])
        return np.flatnonzero(ops[self.choice.candidate] <= 1)

    # ---- answers and groups --------------------------------------------------------------------
    def groups(self, answer: Answer) -> tuple[Group, ...]:
        """The chosen groups in the order in which they run."""
        return tuple(self._group(i, step) for step, i in enumerate(answer.columns))

    def _group(self, column: int, step: int) -> Group:
        rolled, candidate = self.space.rolled, self.candidate(column)
        time_ps = self.choice.total("time", (column,))
        time_ps //= 1 if rolled is None else rolled.times(candidate.members)
        writes = self.choice.writes.tuples[column]
        return group_of(self.sources.costs, candidate, writes, time_ps, step)

    def locate(self, groups: Sequence[Group]) -> Answer | None:
        """These groups as an answer of this choice, in their order; None if it has not them all."""
        buffer, at = self.space.buffer, dict[frozenset[int], list[int]]()
        for i, writes in enumerate(self.choice.writes.tuples):
            at.setdefault(frozenset(writes), []).append(i)
        chosen: list[int] = []
        alike: set[int] = set()  # keys of what is chosen in an equal block
        written: set[int] = set()
        for g in groups:
            ways = at.get(frozenset(buffer[w] for w in g.writes), ())
            there = [i for i in ways if self._is_part(i, g, written)]
            if not there:  # perhaps nobody needs it: a better one does the same inside
                continue
            same = [i for i in there if self.candidate(i).members == g.members]
            best = min(same or there, key=lambda i: self._rank(i, alike))
            chosen.append(best)
            alike.update((int(self.choice.key[best]), int(self.choice.image[best])))
            written.update(self.choice.writes.tuples[best])
        columns = pruned(self.choice, chosen)
        return as_listed(self.choice, columns) if is_legal(self.choice, columns) else None

    def _rank(self, column: int, alike: set[int]) -> tuple[bool, tuple[int, ...], int]:
        choice = self.choice
        is_alike = int(choice.key[column]) in alike or int(choice.image[column]) in alike - {-1}
        return not is_alike, tuple(choice.adds[column].tolist()), column

    def _is_part(self, column: int, g: Group, written: set[int]) -> bool:
        """Whether a column reads, keeps and holds no more than a group, behind what is written."""
        buffer, choice = self.space.buffer, self.choice
        reads, resident = choice.reads.tuples[column], choice.resident.tuples[column]
        exclusive = self.pool.legality.exclusive(g.members)
        return (
            {buffer[r] for r in g.reads}.issuperset((*reads, *resident))
            and written.isdisjoint(resident)
            and written.issuperset(reads)
            and exclusive.issuperset(choice.exclusive.tuples[column])
        )

    def ahead(self, groups: Iterable[Group]) -> tuple[int, ...]:
        """Nodes to compute from weights before the first dispatch."""
        space, some = self.space, tuple(groups)
        buffers = {space.buffer[r] for g in some for r in g.reads} | set(space.roots)
        buffers -= {space.buffer[w] for g in some for w in g.writes}
        return self.pool.ahead_nodes(b for b in buffers if b in self.pool.resident)

    def in_programs_order(self, answer: Answer) -> Answer:
        """The answer in the order of the program's values, if that needs no more bytes."""
        work = graph_of(self.choice, answer.columns)
        keys = [self._place(i) for i in answer.columns]
        order = topological(work.direct, keys)
        peak = peak_bytes(work, order)
        if peak > answer.peak_bytes:
            return answer
        return replace(answer, columns=tuple(answer.columns[i] for i in order), peak_bytes=peak)

    def _place(self, column: int) -> tuple[Moment, tuple[int, ...], tuple[int, ...]]:
        """Where the program computes what a column writes; ties by what it is."""
        space, writes = self.space, self.choice.writes.tuples[column]
        values = (space.value[b] for b in writes)
        at = min((space.positions[v][0] for v in values if v in space.positions), default=LATE)
        return at, writes, self.candidate(column).members


def choices(
    pool: Pool,
    goals: Mapping[str, Goal] = OWN,
    *,
    baseline: Sequence[Candidate] = (),
    enough: float = math.inf,
) -> Choices:
    """Dispatches of all nodes of a pool.

    baseline: the input program's candidates, which stay if there is no time for all.
    enough: when (of `elapsed`) no further candidates are looked for.
    """
    costs = pool.space.remembered(Costs, pool.legality.target)
    with until(enough):
        enumeration = enumerated(pool, costs, baseline)
    sources = Sources(pool, costs, CandidateTable(enumeration.candidates), goals)
    return Choices(sources, enumeration.removed, enumeration.cuts)


FUSED, ALONE = 0.0, 1.0  # parts of the time of a move by itself: inside of a dispatch it is free


def packing(
    pool: Pool, goals: Mapping[str, Goal], candidates: Iterable[Candidate], groups: Iterable[Group]
) -> Choices | None:
    """Columns to choose from. `candidates`, `groups`: the baseline's candidates and answer.

    None if nothing but the input program's own nodes is picked. OutOfTime.
    """
    picks = _Picks(pool, pool.space.remembered(Costs, pool.legality.target))
    nodes = picks.nodes()
    if nodes is None:
        return None
    fused = frozenset([pool.space.computes(g.members) for g in groups])
    packed = choices(replace(pool, only=nodes, merged=fused), goals)
    is_op, every = (
        pool.space.is_op,
        dict.fromkeys((*packed.sources.candidates.candidates, *candidates)),
    )
    few = [
        c
        for c in every
        if sum([is_op[m] for m in c.members]) <= 1 or pool.space.computes(c.members) in fused
    ]
    sources = replace(packed.sources, candidates=CandidateTable(tuple(few)))
    return replace(packed, sources=sources)


@dataclass(frozen=True)
class _Picks:
    pool: Pool
    costs: Costs

    def nodes(self) -> frozenset[int] | None:
        """The program's own, what is picked, and the cheapest from one of their buffers to another.

        Once as if all moves were fused, once as if none were. None if only its own are picked.
        """
        pool, space = self.pool, self.pool.space
        program_nodes = {i for i, n in enumerate(space.egraph.nodes) if n.rule == -1}
        picked = program_nodes | self._picked(FUSED) | self._picked(ALONE)
        if picked == program_nodes:
            return None
        ends = {b for i in picked for b in self._ends(i)}.union(pool.fills)
        first: dict[Hashable, tuple[bool, float, int]] = {}
        for i in filter(pool.allows, range(len(space.egraph.nodes))):
            if i in picked or ends.issuperset(self._ends(i)):
                key = space.output_buffers[i], space.result[i], space.operands[i]
                way = i not in picked, self._price(i, FUSED), i
                first[key] = min(first.get(key, way), way)
        return frozenset(picked).union(i for is_new, _, i in first.values() if is_new)

    def _ends(self, node: int) -> Collection[int]:
        """Buffers that a node reads and makes."""
        space = self.pool.space
        return (*space.operands[node], *space.output_buffers[node], space.result[node])

    def _picked(self, part: float) -> set[int]:
        """The nodes of the cheapest way to make each result."""
        by, picked = self._cheapest(part), set[int]()
        work = list(self.pool.space.roots)
        while work:
            node = by.get(work.pop())
            if node is not None and node not in picked:
                picked.add(node)
                work += self.pool.space.operands[node]
        return picked

    def _cheapest(self, part: float) -> dict[int, int]:
        """Per buffer that has to be made: the node by which that ends first (Knuth, IPL 1977)."""
        space, given = (
            self.pool.space,
            sorted({*self.pool.held, *self.pool.fills, *self.pool.ahead}),
        )
        readers, missing = self._readers
        waiting, by = list(missing), dict.fromkeys(given, -1)
        ends = [(0.0, n, b) for n, b in enumerate(given)]
        alone = [i for i in self._every if not missing[i]]
        ends += [(self._price(i, part), i, b) for i in alone for b in space.output_buffers[i]]
        heapify(ends)
        done: set[int] = set()
        while ends:
            tick()
            end, node, buffer = heappop(ends)
            if buffer in done:
                continue
            done.add(buffer)
            by.setdefault(buffer, node)
            for i in readers.get(buffer, ()):
                waiting[i] -= 1
                if not waiting[i]:
                    ready = end + self._price(i, part)
                    for b in {*space.output_buffers[i], space.result[i]} - done:
                        heappush(ends, (ready, i, b))
        return {b: n for b, n in by.items() if n >= 0}

    @cached_property
    def _every(self) -> tuple[int, ...]:
        ways = (*self.pool.producers.values(), *self.pool.relaxed.values())
        return tuple(sorted({i for some in ways for i in some}))

    @cached_property
    def _readers(self) -> tuple[dict[int, list[int]], list[int]]:
        """Per buffer the nodes that read it, and per node how many buffers it reads."""
        space, readers = self.pool.space, dict[int, list[int]]()
        missing = [0] * len(space.kinds)
        for i in self._every:
            operands = set(space.operands[i])
            missing[i] = len(operands)
            for b in operands:
                readers.setdefault(b, []).append(i)
        return readers, missing

    def _price(self, node: int, part: float) -> float:
        """Picoseconds of arithmetic, or of so much of a move."""
        space, here = self.pool.space, self.costs.of((node,))
        # picoseconds of any other node than the input program's: fewer are better
        penalty_ps = 0.0 if space.egraph.nodes[node].rule == -1 else 1.0
        if space.kinds[node] != "conversion":
            return penalty_ps + here.compute_ps(node, here.iterations[node])
        moved = sum(here.class_ps[b] for b in (*space.operands[node], *space.output_buffers[node]))
        return penalty_ps + part * moved


def unrolled_assembly(short: Assembly, pool: Pool, rolled: Rolled) -> Assembly:
    """The columns of the short program, in all blocks in which they are there."""
    choice, space = short.choice, pool.space
    sides = {n: list[tuple[int, ...]]() for n in ("reads", "resident", "writes", "extras")}
    candidates, adds, exclusive, of = list[Candidate](), list[list[int]](), list[list[int]](), []
    for i in range(len(choice)):
        c = short.candidate(i)
        times = rolled.times(c.members)
        for back in rolled.copies(c.members):
            members = rolled.nodes_at(c.members, back)
            parts = (rolled.classes_at(side, back) for side in (c.reads, c.writes, c.exposable))
            reads, writes, exposable = parts
            moved = c._replace(members=members, reads=reads, writes=writes, exposable=exposable)
            candidates.append(moved)
            adds.append([a // times for a in choice.adds[i].tolist()])
            exclusive.append(sorted(pool.legality.exclusive(members)))
            of.append(i)
            for name, buffers in sides.items():
                there = rolled.classes_at(getattr(choice, name).tuples[i], back)
                buffers.append(tuple(sorted({space.buffer[b] for b in there})))
    sources = replace(
        short.sources, pool=pool, candidates=CandidateTable(candidates),
        costs=space.remembered(Costs, pool.legality.target),
    )  # fmt: skip
    rows, count = np.array(of, dtype=np.int64), len(of)
    computes = [tuple(sorted(space.computes(c.members))) for c in candidates]
    columns: dict[str, Any] = {name: Ragged.of(buffers) for name, buffers in sides.items()}
    values = [{space.value[b] for b in w} for w in sides["writes"]]
    serves = [
        sorted(served_by(pool, c.members, w)) for c, w in zip(candidates, values, strict=True)
    ]
    whole = replace(
        choice.take(rows), facts=choice_facts(pool, choice.facts.linear), **columns,
        adds=np.array(adds, dtype=choice.adds.dtype).reshape(count, -1),
        exclusive=Ragged.of(exclusive), computes=Ragged.of(computes), serves=Ragged.of(serves),
        candidate=np.arange(count), last=np.full(count, NOWHERE),
        key=np.arange(count), image=np.full(count, -1),
    )  # fmt: skip
    return replace(short, sources=sources, choice=whole)
