"""What a dispatch computes and keeps to itself is lost for others, if none may compute it again.

Of a value that is cut into slices a dispatch may compute one slice alone, and so half of the work;
but then nobody can compute the other slice. Such a column is in no answer, yet the relaxation would
add up two halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.pool import Pool


@dataclass(frozen=True)
class Lost:
    """Asked about values of one pool."""

    pool: Pool

    @cached_property
    def once(self) -> frozenset[int]:
        """Values that one dispatch alone computes, whichever of their nodes it holds.

        Not those that are there from the start, or may be.
        """
        space, legality = self.pool.space, self.pool.legality
        again, found = {space.value[b] for b in self.pool.ahead}, set[int]()
        for i in range(len(space.kinds)):
            for v in space.computes((i,)):
                found.add(v)
                if space.is_source(v) or legality.value_number(v) not in legality.exclusive((i,)):
                    again.add(v)
        return frozenset(found - again)

    @cached_property
    def _known(self) -> dict[tuple[frozenset[int], frozenset[int]], bool]:
        return {}

    def leaves_a_way(self, lost: frozenset[int], written: frozenset[int]) -> bool:
        """Whether all results may be computed without these values of `once`, given written ones.

        A value is lost, too, if each way to compute it reads a lost one. That is the least fixpoint
        over all nodes, so what it calls lost no dispatch can compute; more may be.
        """
        key = lost, written
        if key not in self._known:
            self._known[key] = self._leaves(set(lost), written)
        return self._known[key]

    def _leaves(self, lost: set[int], written: frozenset[int]) -> bool:
        space, ways, nobody = self.pool.space, self.pool.derivations, frozenset[int]()
        waiting = list(lost)
        while waiting:
            for w in space.consumers.get(waiting.pop(), nobody):
                if w == -1:
                    return False
                if w in lost or w in written or w not in ways or w in self._there:
                    continue
                if not any(lost.isdisjoint(reads) for reads in ways[w]):
                    lost.add(w)
                    waiting.append(w)
        return True

    @cached_property
    def _there(self) -> frozenset[int]:
        """Values that may be there without being computed in the run."""
        space = self.pool.space
        known = {space.value[b] for b in self.pool.ahead}
        return frozenset(known.union(v for v in set(space.value) if space.is_source(v)))
