"""Equal blocks of a program get equal dispatches, where no goal gets worse by that.

Of answers that are equal by every goal a search finds any, block by block. So the choice of one
block is repeated in the others, in the longest run of blocks in which that is legal and as good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from eqsat.extract.blockcopies import BlockCopies
from eqsat.extract.blockruns import BlockRun, Chosen, Key
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.check import check
from eqsat.extract.goalvalues import goal_values
from eqsat.extract.ordered import SearchLimits
from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.model.goal import Goal
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target

TRIES = 64  # runs of blocks that are tried, the longest first


def with_equal_blocks(
    assembly: Assembly,
    target: Target,
    found: Selection,
    linear: Mapping[str, Goal],
    limits: SearchLimits,
) -> Selection:
    """The selection with equal blocks alike, or as it was; every goal is as good or better.

    Bounds, proofs and why the search ended stay. What is changed has passed `extract.check`.
    """
    shift = assembly.pool.space.egraph.shift
    if shift is None or not limits.seconds:
        return found
    tied = _TiedBlocks(assembly, target, linear, limits, BlockCopies(assembly.pool.space, shift))
    return tied.improved(found)


@dataclass(frozen=True)
class _TiedBlocks:
    """What is asked of a selection, and how its groups are copied."""

    assembly: Assembly
    target: Target
    linear: Mapping[str, Goal]
    limits: SearchLimits
    copies: BlockCopies

    def improved(self, found: Selection) -> Selection:
        """Run after run is made alike, for each way to cut the program into blocks."""
        for cut in self.copies.cuts(found.groups):
            chosen = Chosen(found.groups, self.copies, cut)
            for run in chosen.runs(self._conversions)[:TRIES]:
                better = self._repeated(found, chosen, run)
                if better is not None:
                    found, chosen = better, replace(chosen, groups=better.groups)
        return found

    def _conversions(self, group: Group) -> int:
        """What a group adds to the tie-break."""
        egraph = self.assembly.pool.space.egraph
        return self.linear[TIE_BREAK].build(egraph, self.target, group)

    def _repeated(self, found: Selection, chosen: Chosen, run: BlockRun) -> Selection | None:
        """The selection with one run alike; None if that is illegal or worse."""
        if chosen.is_alike(run) or not self.limits.seconds:
            return None
        groups = chosen.repeated(run)
        listed = None if groups is None else self._in_order(groups)
        if listed is None or not self._is_whole(listed):
            return None
        made = replace(found, groups=listed, ahead=self.assembly.ahead(listed))
        if replace(chosen, groups=listed).pairs <= chosen.pairs:
            return None
        before, after = self._values(found), self._values(made)
        if any(after[n] > before[n] for n in before):
            return None
        goals = tuple((n, replace(r, value=after[n])) for n, r in found.goals)
        made = replace(made, goals=goals)
        faults = check(self.assembly.pool.space.egraph, self.target, made)
        return None if faults else made

    def _in_order(self, groups: Sequence[tuple[Key, Group]]) -> tuple[Group, ...] | None:
        """One per step, each behind all it reads from and else by its key; None if none can be."""
        buffer = self.assembly.pool.space.buffer
        writer = {buffer[w]: i for i, (_, g) in enumerate(groups) for w in g.writes}
        needs = [{writer[b] for r in g.reads if (b := buffer[r]) in writer} for _, g in groups]
        readers: list[list[int]] = [[] for _ in groups]
        for i, need in enumerate(needs):
            for j in need:
                readers[j].append(i)
        waiting = [(key, i) for i, (key, _) in enumerate(groups) if not needs[i]]
        heapify(waiting)
        listed: list[Group] = []
        while waiting:
            _, i = heappop(waiting)
            listed.append(replace(groups[i][1], step=len(listed)))
            for j in readers[i]:
                needs[j].discard(i)
                if not needs[j]:
                    heappush(waiting, (groups[j][0], j))
        return tuple(listed) if len(listed) == len(groups) else None

    def _is_whole(self, groups: Sequence[Group]) -> bool:
        """Whether each value that is read is there or written, each once, and all for somebody."""
        space, pool = self.assembly.pool.space, self.assembly.pool
        written = [space.buffer[w] for g in groups for w in g.writes]
        wanted = {space.buffer[r] for g in groups for r in g.reads} | set(space.roots)
        there = space.inputs | pool.resident
        is_needed = all(any(space.buffer[w] in wanted for w in g.writes) for g in groups)
        return is_needed and len(set(written)) == len(written) and wanted <= there.union(written)

    def _values(self, selection: Selection) -> dict[str, int]:
        return goal_values(self.assembly.pool.space, self.target, self.linear, selection)
