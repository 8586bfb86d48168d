"""The columns of every candidate, one after the other: tests compare tables with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from operator import le
from typing import NamedTuple

from eqsat.extract.candidates.sources import EXTRAS, OTHERS, Sources, group_of
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.linear import Dispatches, RelayoutBytes, Ties, Time, added, kernels
from eqsat.extract.dispatch.prices import UNASKED
from eqsat.extract.groups.grow import Candidate
from eqsat.model.deadline import tick


class Variant(NamedTuple):
    """A candidate with the buffers it writes."""

    candidate: Candidate
    adds: tuple[int, ...]  # to each goal that is a sum
    reads: frozenset[int]  # those that are not there from the start
    resident: frozenset[int]
    writes: tuple[int, ...]
    exclusive: frozenset[int]

    @property
    def key(self) -> tuple[tuple[int, ...], ...]:
        """A total order by what it is."""
        return self.writes, self.candidate.members, self.candidate.reads


def listed(sources: Sources, choice: Columns) -> list[Variant]:
    """The columns of a choice one by one."""
    sides = (choice.reads, choice.resident, choice.writes, choice.exclusive)
    parts = zip(*(s.tuples for s in sides), strict=True)
    return [
        Variant(
            sources.candidates[int(choice.candidate[i])],
            tuple(choice.adds[i].tolist()),
            frozenset(reads),
            frozenset(kept),
            tuple(sorted(writes)),
            frozenset(held),
        )
        for i, (reads, kept, writes, held) in enumerate(parts)
    ]


def plain_options(sources: Sources) -> list[Variant]:
    """What candidates may write, found without arrays."""
    return _Plain(sources.pool, sources.costs, sources.candidates, sources.goals).every


class _Plain(Sources):
    @property
    def every(self) -> list[Variant]:
        return [v for c in self.candidates.candidates for v in self._of(c)]

    def _of(self, c: Candidate) -> list[Variant]:
        tick()
        space, pool = self.space, self.pool
        reads = frozenset([space.buffer[r] for r in c.reads])
        sinks = tuple(dict.fromkeys([space.buffer[w] for w in c.writes]))
        if not reads.isdisjoint(sinks):
            return []
        exclusive, computed = pool.legality.exclusive(c.members), space.computes(c.members)
        sides = self._sides(reads)
        fixed = self._fixed(c)
        found = []
        for extra in self._extra_sets(c, sinks, computed):
            writes = (*sinks, *extra)
            written = frozenset([space.value[b] for b in writes])
            if not self._leaves(computed, written):
                continue
            adds = self._adds(c, writes, self._time_ps(c, extra), fixed)
            found += [Variant(c, adds, *s, tuple(sorted(writes)), exclusive) for s in sides]
        return found

    def _leaves(self, computed: frozenset[int], written: frozenset[int]) -> bool:
        """Whether the results need nothing that is computed here alone and not written."""
        consumers, nobody = self.space.consumers, frozenset[int]()
        lost = {v for v in computed & self.lost.once if consumers.get(v, nobody) - computed}
        return self.lost.leaves_a_way(frozenset(lost - written), written)

    def _sides(self, reads: frozenset[int]) -> list[tuple[frozenset[int], frozenset[int]]]:
        """What is read of this run's, and of the weights; of some of them it may be either."""
        pool = self.pool
        run, kept = reads - pool.held - pool.optional, reads & pool.resident
        optional = sorted(reads & pool.optional)
        sets = [frozenset(s) for n in range(len(optional) + 1) for s in combinations(optional, n)]
        return [(run | made, kept - made) for made in sets]

    def _time_ps(self, c: Candidate, extra: tuple[int, ...]) -> int:
        """With what is written besides."""
        is_stated = not extra and c.time_ps != UNASKED
        return c.time_ps if is_stated else self.costs.of(c.members).wider_ps(c, extra)

    def _fixed(self, c: Candidate) -> dict[type, int]:
        """What a dispatch adds to our own goals whatever it writes."""
        return {
            RelayoutBytes: sum([self.moved[m] for m in c.members]),
            Ties: sum([self.tied[m] for m in c.members]),
            Dispatches: kernels(self.space.egraph, c.members) if self.has_loops else 1,
        }

    def _adds(
        self, c: Candidate, writes: tuple[int, ...], time_ps: int, fixed: Mapping[type, int]
    ) -> tuple[int, ...]:
        """What a dispatch adds to each goal; our own are known without asking them."""
        found = []
        for name, goal in self.goals.items():
            if isinstance(goal, Time):
                found.append(time_ps)
            elif type(goal) in fixed:
                found.append(fixed[type(goal)])
            else:
                group = group_of(self.costs, c, writes, time_ps)
                sides = self.space.egraph, self.pool.legality.target
                found.append(added(name, goal, *sides, group))
        return tuple(found)

    @cached_property
    def read(self) -> frozenset[int]:
        """Buffers some candidate or the caller reads."""
        space = self.pool.space
        reads = {space.buffer[r] for c in self.candidates.candidates for r in c.reads}
        return frozenset(reads | set(space.roots))

    def _extra_sets(
        self, c: Candidate, sinks: tuple[int, ...], computed: frozenset[int]
    ) -> list[tuple[int, ...]]:
        """What a group may write beside its results: values the caller or other values need.

        None, one, two, or all results of the program that are computed inside (and one more).
        """
        fusion = self.pool.legality.of(c.members).fusion
        space, nobody = self.space, frozenset[int]()
        room = fusion.operands - len(c.reads) - len(sinks)
        if not fusion.multi_result or room <= 0:
            return [()]
        consumers, value = space.consumers, space.value
        useful = {
            space.buffer[e] for e in c.exposable if not consumers.get(value[e], nobody) <= computed
        }
        extras = sorted((useful & self.read).difference(sinks))
        if not extras:
            return [()] if self._has_readers(sinks, computed) else []
        roots = tuple(b for b in extras if b in self._roots)
        sets = [s for size in range(EXTRAS + 1) for s in combinations(extras, size)]
        if len(roots) > EXTRAS:
            sets += [roots, *(tuple(sorted({*roots, b})) for b in extras if b not in roots)]
        return [s for s in sets if len(s) <= room and self._has_readers((*sinks, *s), computed)]

    @cached_property
    def _roots(self) -> frozenset[int]:
        return frozenset(self.space.roots)

    def _has_readers(self, writes: tuple[int, ...], computed: frozenset[int]) -> bool:
        """A value is not written in more layouts than there are others that need it."""
        space = self.space
        values = [space.value[b] for b in writes]
        if len(set(values)) == len(values):
            return True
        layouts, wanted = Counter(values), space.wanted
        return all(
            n == 1 or n <= wanted[v] + len(space.consumers.get(v, frozenset()) - computed - {-1})
            for v, n in layouts.items()
        )


def plain_undominated(variants: list[Variant]) -> list[Variant]:
    """Drop an option if another one writes the same, reads no more, and is as good."""
    buckets: dict[frozenset[int], list[Variant]] = {}
    for v in variants:
        buckets.setdefault(frozenset(v.writes), []).append(v)
    found = []
    for bucket in buckets.values():
        tick()
        found += bucket if len(bucket) == 1 else _best(bucket)
    return found


def _best(bucket: list[Variant]) -> list[Variant]:
    """Of options that write the same: those no other one dominates.

    One dominates another if it needs no more, blocks no more and costs no more. Needs are bits of
    one number here, and in the order of this list an earlier one is known to be as fast; of equals
    the one of fewest ops is kept.
    """
    bucket.sort(key=lambda v: (v.adds, len(v.candidate.reads), len(v.candidate.members), v.key))
    # of buffers, made in the run or there as weights; of exclusive numbers
    bits: dict[tuple[str, int], int] = {}
    kept: dict[tuple[int, tuple[int, ...]], Variant] = {}
    for v in bucket:
        tick()
        mask = 0
        for what, numbers in (("made", v.reads), ("kept", v.resident), ("held", v.exclusive)):
            for n in numbers:
                mask |= bits.setdefault((what, n), 1 << len(bits))
        costs = v.adds[OTHERS:]
        if (mask, costs) in kept:
            continue
        if not any(m | mask == mask and (c == costs or all(map(le, c, costs))) for m, c in kept):
            kept[mask, costs] = v
    return list(kept.values())
