"""Which block of the program each chosen dispatch belongs to, and what it is in another block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_low

import numpy as np

from eqsat.extract.candidates.space import Space
from eqsat.extract.chains import Chains
from eqsat.model.selection import Group
from eqsat.model.shift import Shift

CUTS = 4  # ways to cut the program into blocks that are tried
GroupWork = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str]


@dataclass(frozen=True)
class BlockCopies:
    """The shift of an e-graph as dispatches see it. It is a hint: who copies has to check."""

    space: Space
    shift: Shift

    def places(self, groups: Sequence[Group]) -> dict[int, int]:
        """Per group that is in some block: where the program computes the last of its values.

        Equal groups of two blocks are as many `period`s apart as their blocks. Groups are named by
        their number.
        """
        at = self._place
        found = {i: [at[m] for m in g.members if m in at] for i, g in enumerate(groups)}
        return {i: max(known) for i, known in found.items() if known}

    def cuts(self, groups: Sequence[Group]) -> tuple[int, ...]:
        """Places in a period at which a program falls apart into blocks, the best first.

        Those at which the fewest values are handed on from one block to the next.
        """
        places = self.places(groups)
        if not places:
            return ()
        crossed = self._crossed(groups, places)
        begin, end = min(places.values()), max(places.values())
        found: dict[int, list[int]] = {c: [] for c in range(self.period)}
        for place in range(begin + 1, end + 1):
            found[place % self.period].append(crossed[place])
        cost = {c: median_low(counts) for c, counts in found.items() if counts}
        least = [c for c in cost if cost[c] == min(cost.values())]
        parts = {tuple([(p - c) // self.period for p in places.values()]): c for c in least}
        return tuple(sorted(parts.values()))[:CUTS]

    def _crossed(self, groups: Sequence[Group], places: Mapping[int, int]) -> Counter[int]:
        """Per place: how many values are written before it and read there or later."""
        buffer = self.space.buffer
        last: dict[int, int] = {}
        for i, place in places.items():
            for b in (buffer[r] for r in groups[i].reads):
                last[b] = max(last.get(b, place), place)
        written = ((buffer[w], place) for i, place in places.items() for w in groups[i].writes)
        return Counter(t for b, p in written for t in range(p + 1, last.get(b, p) + 1))

    def copied(self, group: Group, blocks: int) -> Group | None:
        """The group so many blocks later (earlier if negative); None if a part is not there."""
        nodes, classes = self._images(blocks)
        members = [nodes[m] for m in group.members]
        reads, writes = ([classes[c] for c in cs] for cs in (group.reads, group.writes))
        if min(*members, *reads, *writes) < 0:
            return None
        return replace(group, members=tuple(members), reads=tuple(reads), writes=tuple(writes))

    def _images(self, blocks: int) -> tuple[list[int], list[int]]:
        """Per node and per class: what it is so many blocks later, -1 where that is nothing."""
        if blocks not in self._known:
            tables = (c.at(np.arange(len(c.place)), blocks) for c in (self._nodes, self._classes))
            nodes, classes = (t.tolist() for t in tables)
            self._known[blocks] = nodes, classes
        return self._known[blocks]

    @cached_property
    def _known(self) -> dict[int, tuple[list[int], list[int]]]:
        return {}

    @cached_property
    def _nodes(self) -> Chains:
        return Chains.of(self.shift.node)

    @cached_property
    def _classes(self) -> Chains:
        return Chains.of(self.shift.eclass)

    @cached_property
    def _place(self) -> dict[int, int]:
        """Per op that has an image, or is one: its place in the program.

        The first of a chain of images has its own, each of the others is a period later.
        """
        nodes, is_op = self._nodes, self.space.is_op
        heads = nodes.order[nodes.start[nodes.chain]].tolist()
        moving = [i for i in np.flatnonzero(nodes.moves).tolist() if is_op[i]]
        begin = {h: self._position(h) for h in {heads[i] for i in moving}}
        return {
            i: p + int(nodes.place[i]) * self.period
            for i in moving
            if (p := begin[heads[i]]) is not None
        }

    def _position(self, node: int) -> int | None:
        """Where the program computes a node's value, or all that is needed for it."""
        value, positions = self.space.value, self.space.positions
        at = [positions[value[c]][0][0] for c in self.space.outputs[node] if value[c] in positions]
        return max(at, default=None)

    @cached_property
    def period(self) -> int:
        """How far apart in the program equal values of two blocks are, most often."""
        at = {c: i for i, c in reversed(list(enumerate(self.space.egraph.values)))}
        image = self.shift.eclass
        apart = Counter(at[image[c]] - at[c] for c in at if image[c] in at and image[c] != c)
        later = {d: n for d, n in apart.items() if d > 0}
        return max(later, key=lambda d: (later[d], -d), default=1)


def group_work(group: Group) -> GroupWork:
    """What makes two dispatches the same one."""
    parts = (group.members, group.reads, group.writes)
    members, reads, writes = (tuple(sorted(p)) for p in parts)
    return members, reads, writes, group.pipeline
