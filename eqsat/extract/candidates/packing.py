"""The baseline's dispatches in a few layouts: a small choice that holds a good answer.

Per buffer the cheapest node that makes it is known once those of its operands are, as in a greedy
extraction, so layouts spread along the program as far as that pays. An op costs its arithmetic, and
waiting for its operands as much as the dearest of them, so nothing counts twice. Of what is picked,
and of the input program's own nodes, dispatches are made that compute what a dispatch of the
baseline does, or one op.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

from eqsat.extract.candidates.assemble import Choices, choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import CandidateTable
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.model.deadline import tick
from eqsat.model.goal import Goal
from eqsat.model.selection import Group

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
