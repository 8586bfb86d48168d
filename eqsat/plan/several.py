"""A nest whose stores share no loops: parts that are kernels of their own, done one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from eqsat.model.nest import Access, Bound, Nest, NoNest, Stage, Store
from eqsat.model.plan import Machine, Plan, Work


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
    plans = tuple(planner(p, machine) for p in parts)
    return Several(
        items=sum(p.items for p in plans),
        scratch_bytes=max(p.scratch_bytes for p in plans),
        work=_total(p.work for p in plans),
        parts=plans,
    )


def _total(works: Iterable[Work]) -> Work:
    total = Work(items=0)
    for w in works:
        added = {f.name: getattr(total, f.name) + getattr(w, f.name) for f in fields(Work)}
        total = replace(total, **added)
    return total


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


def _stages(nest: Nest, stage: int) -> set[int]:
    """A stage and all it needs."""
    found, left = set[int](), [stage]
    while left:
        i = left.pop()
        if i not in found:
            found.add(i)
            left += [a for a in nest.stages[i].arguments if isinstance(a, int)]
    return found


def _loops(nest: Nest, store: Store) -> set[int]:
    stages = (nest.stages[i] for i in _stages(nest, store.stage))
    loops = set(store.loops).union(*((*s.loops, *s.reduced) for s in stages))
    for b in nest.bounds:  # a bound ties the loops it is about
        about = {i for i, x in enumerate(b.strides) if x}
        loops |= about if about & loops else set()
    return loops


def _part(nest: Nest, loops: set[int], stores: Sequence[Store]) -> Nest:
    kept = sorted(loops)
    stages = sorted(set().union(*(_stages(nest, s.stage) for s in stores)))
    moved = _Moved(kept, {old: new for new, old in enumerate(stages)})
    bounds = [b for b in nest.bounds if any(b.strides[i] for i in kept)]
    return Nest(
        tuple(nest.sizes[i] for i in kept),
        tuple(moved.stage(nest.stages[i]) for i in stages),
        tuple(moved.store(s) for s in stores),
        tuple(map(moved.bound, bounds)),
    )


@dataclass(frozen=True)
class _Moved:
    """loops: those that are kept. stages: number of each stage in the part."""

    loops: list[int]
    stages: dict[int, int]

    def bound(self, b: Bound) -> Bound:
        return replace(b, strides=tuple(b.strides[i] for i in self.loops))

    def access(self, a: Access) -> Access:
        return replace(
            a.with_indices(self.access),
            strides=tuple(a.strides[i] for i in self.loops),
            bounds=tuple(map(self.bound, a.bounds)),
        )

    def _numbers(self, loops: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.loops.index(i) for i in loops)

    def stage(self, s: Stage) -> Stage:
        return replace(
            s,
            loops=self._numbers(s.loops),
            reduced=self._numbers(s.reduced),
            bounds=tuple(map(self.bound, s.bounds)),
            arguments=tuple(
                self.stages[a] if isinstance(a, int) else self.access(a) for a in s.arguments
            ),
        )

    def store(self, s: Store) -> Store:
        return replace(
            s,
            access=self.access(s.access),
            stage=self.stages[s.stage],
            loops=self._numbers(s.loops),
            bounds=tuple(map(self.bound, s.bounds)),
        )
