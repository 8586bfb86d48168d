"""Parts of a nest that are computed one after another: separate stores, and passes of reductions.

A nest whose stores share no loops is several nests (`Several`). Else a reduction waits for those
that it reads. Stores that share loops or reductions are one section. A section's outer loops are
those that all of its reductions and stores have; at one point of them, a row, its passes run one
after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from eqsat.model.dispatch import Machine, Plan
from eqsat.model.nest import Access, Nest, NoNest, Store
from eqsat.plan.stages import Loops, Moved, access_loops, accesses_read, needed, stages_read, summed


@dataclass(frozen=True)
class Several(Plan):
    """parts: plans of `parts_of(nest)`, in order; the items of each follow those before it."""

    kind: ClassVar[str] = "several"
    parts: tuple[Plan, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"parts": [p.to_json() for p in self.parts]}

    def to_text(self) -> str:
        return "; then ".join(p.to_text() for p in self.parts)


def plan(nest: Nest, machine: Machine, planner: Callable[[Nest, Machine], Plan]) -> Several:
    """A plan for each part; raises NoNest if there is only one."""
    parts = parts_of(nest)
    if len(parts) < 2:
        raise NoNest("all stores share loops")
    plans = tuple(planner(p.anonymous(), machine) for p in parts)
    return Several(
        items=sum(p.items for p in plans),
        scratch_bytes=max(p.scratch_bytes for p in plans),
        work=summed(p.work for p in plans),
        parts=plans,
    )


@lru_cache(maxsize=16)  # planner and price ask one after the other
def parts_of(nest: Nest) -> tuple[Nest, ...]:
    """The nest cut into those whose stores share loops, each with its own loops alone."""
    groups: list[tuple[set[int], list[Store]]] = []
    for s in nest.stores:
        loops, stores = _loops(nest, s), [s]
        for other in [g for g in groups if g[0] & loops or not loops]:
            groups.remove(other)
            loops, stores = loops | other[0], other[1] + stores
        groups.append((loops, stores))
    if len(groups) < 2:
        return (nest,)
    order = {id(s): i for i, s in enumerate(nest.stores)}
    return tuple(_part(nest, loops, sorted(g, key=lambda s: order[id(s)])) for loops, g in groups)


def _loops(nest: Nest, store: Store) -> set[int]:
    stages = (nest.stages[i] for i in needed(nest, [store.stage]))
    loops = set(store.loops).union(*((*s.loops, *s.reduced) for s in stages))
    tied = [access_loops(b) for b in nest.bounds]  # a bound ties the loops it is about
    while more := set[int]().union(*(x for x in tied if x & loops)) - loops:
        loops |= more
    return loops


def _part(nest: Nest, loops: set[int], stores: Sequence[Store]) -> Nest:
    order = sorted(loops)
    stages = needed(nest, (s.stage for s in stores))
    moved = Moved(
        lambda strides: tuple(strides[i] for i in order),
        lambda walked: tuple(map(order.index, walked)),
        {old: new for new, old in enumerate(stages)},
    )
    bounds = [b for b in nest.bounds if any(b.strides[i] for i in order)]
    return Nest(
        tuple(nest.sizes[i] for i in order),
        tuple(moved.stage(nest.stages[i]) for i in stages),
        tuple(moved.store(s) for s in stores),
        tuple(map(moved.bound, bounds)),
    )


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
        """Accesses of a pass to buffers, each once; in_scratch: stages that come from scratch."""
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
