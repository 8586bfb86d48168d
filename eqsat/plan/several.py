"""A nest whose stores share no loops: parts that are kernels of their own, done one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from eqsat.model.nest import Nest, NoNest, Store
from eqsat.model.plan import Machine, Plan
from eqsat.plan.stages import Moved, access_loops, needed, summed


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
