"""What a nest without a vector contraction computes, in passes: which reductions wait for which.

Stores that share loops or reductions are one section. A section's outer loops are those that all
of its reductions and stores have; at one point of them, a row, its passes run one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

from eqsat.model.nest import Access, Nest
from eqsat.plan.stages import Loops, accesses_read, needed, stages_read


class Sweep(NamedTuple):
    """Reductions and stores that run in one pass of a row, and the loops of the pass.

    inner: loops of their results that are not outer ones. reduced: of the reductions.
    """

    stages: tuple[int, ...]
    stores: tuple[int, ...]
    inner: Loops
    reduced: Loops


class RowSection(NamedTuple):
    """Stores, the reductions that they need, and the loops that all of these have."""

    stores: tuple[int, ...]
    stages: tuple[int, ...]
    outer: Loops


class Dependences:
    """The dependences of a nest's stages."""

    def __init__(self, nest: Nest):
        self.nest = nest
        self._evaluated: dict[Sweep, tuple[int, ...]] = {}
        self._accesses: dict[tuple[Sweep, frozenset[int]], tuple[Access, ...]] = {}
        self._steps: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {}

    @cached_property
    def needs(self) -> list[Loops]:
        """Per stage: the reductions whose results it reads, through stages that are none."""
        needs: list[Loops] = []
        for s in self.nest.stages:
            reads = stages_read(s.arguments)
            sides = ({a} if self.nest.stages[a].combine else needs[a] for a in reads)
            needs.append(frozenset[int]().union(*sides))
        return needs

    def stage_needs(self, number: int) -> Loops:
        """Reductions that a value of this stage needs, itself if it is one."""
        return frozenset({number}) if self.nest.stages[number].combine else self.needs[number]

    @cached_property
    def all_needs(self) -> list[Loops]:
        """`needs`, and what those need."""
        closure: list[Loops] = []
        for direct in self.needs:
            closure.append(direct.union(*(closure[r] for r in direct)))
        return closure

    @cached_property
    def levels(self) -> list[int]:
        """Per stage: reductions that follow one another before it."""
        levels: list[int] = []
        for direct in self.needs:
            levels.append(max((levels[r] + 1 for r in direct), default=0))
        return levels

    @cached_property
    def sections(self) -> list[RowSection]:
        """Sections in the order of their first stores."""
        merged: list[tuple[list[int], set[int], set[Loops]]] = []
        for i, s in enumerate(self.nest.stores):
            stages = set(self.all_needs[s.stage] | self.stage_needs(s.stage))
            stages |= {r for q in self.stage_needs(s.stage) for r in self.all_needs[q]}
            joined = ([i], stages, {frozenset(s.loops)})
            for other in [m for m in merged if m[1] & joined[1] or m[2] & joined[2]]:
                merged.remove(other)
                joined = (other[0] + joined[0], other[1] | joined[1], other[2] | joined[2])
            merged.append(joined)
        return [self._section(sorted(a), sorted(b)) for a, b, _ in merged]

    def _section(self, stores: list[int], stages: list[int]) -> RowSection:
        spaces = [frozenset(self.nest.stores[i].loops) for i in stores]
        spaces += [frozenset(self.nest.stages[i].loops) for i in stages]
        reduced = {d for i in stages for d in self.nest.stages[i].reduced}
        return RowSection(tuple(stores), tuple(stages), frozenset.intersection(*spaces) - reduced)

    def groups(self, section: RowSection) -> list[Sweep]:
        """The passes of a section, in an order in which all is there that one needs."""
        sweeps: dict[tuple[int, Loops, Loops], tuple[list[int], list[int]]] = {}
        for i in section.stages:
            s = self.nest.stages[i]
            key = (self.levels[i], frozenset(s.loops) - section.outer, frozenset(s.reduced))
            sweeps.setdefault(key, ([], []))[0].append(i)
        for i in section.stores:
            s = self.nest.stores[i]
            needed = self.stage_needs(s.stage)
            level = max((self.levels[r] + 1 for r in needed), default=0)
            inner = frozenset(s.loops) - section.outer
            same = [k for k in sweeps if k[0] == level and k[1] | k[2] == inner]
            key = same[0] if same else (level, inner, frozenset())
            sweeps.setdefault(key, ([], []))[1].append(i)
        order = sorted(sweeps, key=lambda k: k[0])
        return [Sweep(tuple(sweeps[k][0]), tuple(sweeps[k][1]), k[1], k[2]) for k in order]

    def roots(self, group: Sweep) -> Iterator[int]:
        """Stages whose bodies or values a pass evaluates at every point."""
        yield from group.stages
        yield from (self.nest.stores[i].stage for i in group.stores)

    def evaluated(self, group: Sweep) -> tuple[int, ...]:
        """Stages without a reduction that a pass needs, those it stores included, in order."""
        if group not in self._evaluated:
            self._evaluated[group] = self._evaluated_by(group)
        return self._evaluated[group]

    def _evaluated_by(self, group: Sweep) -> tuple[int, ...]:
        stages = self.nest.stages
        starts = [i for i in self.roots(group) if not stages[i].combine]
        starts += [a for i in group.stages for a in stages_read(stages[i].arguments)]
        return tuple(needed(self.nest, starts, lambda i: bool(stages[i].combine)))

    def accesses(self, group: Sweep, in_scratch: Iterable[int] = ()) -> tuple[Access, ...]:
        """What a pass reads from buffers, each once; in_scratch: stages that come from scratch."""
        key = group, frozenset(in_scratch)
        if key not in self._accesses:
            stages = [i for i in (*self.evaluated(group), *group.stages) if i not in key[1]]
            reads = (accesses_read(self.nest.stages[i].arguments) for i in stages)
            self._accesses[key] = tuple(dict.fromkeys(chain.from_iterable(reads)))
        return self._accesses[key]

    def steps(self, stores: tuple[int, ...], loop: int) -> tuple[int, int]:
        """How far a loop steps at most in what these stores write, and in what the nest reads."""
        key = stores, loop
        if key not in self._steps:
            written = [abs(self.nest.stores[i].access.strides[loop]) for i in stores]
            read = [abs(a.strides[loop]) for a in self._reads]
            self._steps[key] = max(written, default=0), max(read, default=0)
        return self._steps[key]

    @cached_property
    def _reads(self) -> list[Access]:
        return [a for s in self.nest.stages for a in accesses_read(s.arguments)]


@lru_cache(maxsize=16)  # planner, check and generator ask one after the other
def dependences(nest: Nest) -> Dependences:
    """The dependences of a nest."""
    return Dependences(nest)
