"""A choice and what its columns are made from: answers become groups, and groups answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import CandidateTable, Sources, group_of
from eqsat.extract.candidates.space import Moment, Space
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.choice.columns import Answer, Columns
from eqsat.extract.choice.legal import is_legal, pruned
from eqsat.extract.choice.linear import OWN
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated, with_others
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.memory.bestorder import as_listed
from eqsat.extract.memory.dispatchgraph import graph_of, peak_bytes
from eqsat.extract.ragged import Ints
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import until
from eqsat.model.goal import Goal
from eqsat.model.selection import TIME_LIMIT, Cut, Group, Removed
from eqsat.model.topological import topological

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
        with uncollected():
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
    enough: when (of time.monotonic()) no further candidates are looked for.
    """
    costs = pool.space.remembered(Costs, pool.legality.target)
    with until(enough):
        enumeration = enumerated(pool, costs, baseline)
    sources = Sources(pool, costs, CandidateTable(enumeration.candidates), goals)
    return Choices(sources, enumeration.removed, enumeration.cuts)
