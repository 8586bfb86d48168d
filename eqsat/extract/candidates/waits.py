"""What has to be computed before a value is there, whatever is chosen."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.candidates.pool import Pool
from eqsat.model.deadline import tick


@dataclass(frozen=True)
class Waits:
    """Asked about values of one pool.

    Must-analysis over all nodes: the meet over those that make a buffer, the union over what one
    reads. Only values that one dispatch alone may compute count, by their bits: who computes such
    a value and waits for another that needs it waits for itself.
    """

    pool: Pool

    def needs(self, value: int, other: int) -> bool:
        """Whether every way to a value computes another one, which one dispatch may do alone."""
        bit = self._bits.get(other)
        return bit is not None and value != other and bool(self._before.get(value, 0) & bit)

    @cached_property
    def _bits(self) -> dict[int, int]:
        """Per value that one dispatch alone may compute, however it does: a bit."""
        space, legality = self.pool.space, self.pool.legality
        free: set[int] = set()  # what some node may compute again, or beside another one
        owned: dict[int, None] = {}
        for n in self._nodes:
            numbers = legality.exclusive((n,))
            for v in sorted(space.computes((n,))):
                if legality.value_number(v) in numbers:
                    owned.setdefault(v)
                else:
                    free.add(v)
        return {v: 1 << i for i, v in enumerate(v for v in owned if v not in free)}

    @cached_property
    def _nodes(self) -> tuple[int, ...]:
        pool = self.pool
        nodes = range(len(pool.space.egraph.nodes))
        return tuple(n for n in nodes if pool.allows(n) and pool.space.kinds[n] != "leaf")

    @cached_property
    def _before(self) -> dict[int, int]:
        """Per value that can be made: what every way to each of its layouts computes, itself too.

        The greatest fixpoint, as no derivation waits for itself.
        """
        space, bits = self.pool.space, self._bits
        own, made = list[int](), list[tuple[int, ...]]()
        readers: dict[int, list[int]] = {}
        for i, n in enumerate(self._nodes):
            own.append(sum(bits.get(v, 0) for v in space.computes((n,))))
            made.append(tuple(dict.fromkeys((space.result[n], *space.made[n]))))
            for b in set(space.operands[n]).difference(made[-1]):
                readers.setdefault(b, []).append(i)
        there = self.pool.held | self.pool.resident | self.pool.fills.keys() | self._leaves
        known = dict.fromkeys(there, 0)
        waiting = deque(range(len(own)))
        while waiting:
            tick()
            i = waiting.popleft()
            reads = [o for o in space.operands[self._nodes[i]] if o not in made[i]]
            if any(o not in known for o in reads):
                continue
            needed = own[i]
            for o in reads:
                needed |= known[o]
            for b in made[i]:
                new = needed & known.get(b, needed)
                if known.get(b) != new:
                    known[b] = new
                    waiting.extend(readers.get(b, ()))
        found: dict[int, int] = {}
        for b, needed in known.items():
            v = space.value[b]
            found[v] = found.get(v, needed) & needed
        return found

    @cached_property
    def _leaves(self) -> frozenset[int]:
        space = self.pool.space
        return frozenset(
            space.result[n] for n, kind in enumerate(space.kinds) if kind == "leaf"
        )
