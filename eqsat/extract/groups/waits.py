"""What has to be computed before a value is there, whatever is chosen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool


@dataclass(frozen=True)
class Waits:
    """Asked about values of one pool.

    Must-analysis over all nodes: the meet over those that make a buffer, the union over what one
    reads. Only values that one dispatch alone may compute count, by their bits: who computes such
    a value and waits for another that needs it waits for itself.
    """

    pool: Pool

    def among(self, values: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """(i, j): every way to values[i] computes values[j], as one dispatch alone may do."""
        bits, before = self._bits, self._before
        every = 0
        for v in values:
            every |= bits.get(v, 0)
        found: list[tuple[int, int]] = []
        for i, v in enumerate(values):
            own = before.get(v, 0) & every & ~bits.get(v, 0)
            if own:
                found += [(i, j) for j, u in enumerate(values) if own & bits.get(u, 0)]
        return tuple(found)

    def for_itself(self, computed: Iterable[int], reads: Iterable[int]) -> bool:
        """Whether a dispatch that computes these values waits for itself by what it reads.

        Every way to a value that it reads computes one of its own, which no other one may compute.
        """
        bits, before, value = self._bits, self._before, self.pool.space.value
        own = 0
        for v in computed:
            own |= bits.get(v, 0)
        return bool(own) and any([before.get(value[b], 0) & own for b in reads])

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
    def _nodes(self) -> dict[int, tuple[int, ...]]:
        """Nodes that may be chosen and make something of something else, and what they make."""
        pool, space = self.pool, self.pool.space
        found: dict[int, tuple[int, ...]] = {}
        for n, kind in enumerate(space.kinds):
            made = tuple(dict.fromkeys((space.result[n], *space.made[n])))
            if pool.allows(n) and kind != "leaf" and set(made).isdisjoint(space.operands[n]):
                found[n] = made
        return found

    @cached_property
    def _before(self) -> dict[int, int]:
        """Per value that can be made: what every way to each of its layouts computes, itself too.

        The greatest fixpoint, as no derivation waits for itself.
        """
        space, nodes, bits = self.pool.space, self._nodes, self._bits
        own = {n: sum(bits.get(v, 0) for v in space.computes((n,))) for n in nodes}
        readers: dict[int, list[int]] = {}
        for n in nodes:
            for b in space.needs[n]:
                readers.setdefault(b, []).append(n)
        known = dict.fromkeys(self._there, 0)
        waiting = deque(nodes)
        while waiting:
            tick()
            n = waiting.popleft()
            if any(o not in known for o in space.needs[n]):
                continue
            needed = own[n]
            for o in space.needs[n]:
                needed |= known[o]
            for b in nodes[n]:
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
    def _there(self) -> frozenset[int]:
        """Buffers that may be there from the start, or that hold one value."""
        pool, space = self.pool, self.pool.space
        leaves = {space.result[n] for n, kind in enumerate(space.kinds) if kind == "leaf"}
        return pool.held | pool.resident | pool.fills.keys() | leaves
