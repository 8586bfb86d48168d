"""A plan held against its nest, by exact integer reasoning: would its kernel leave something out?

Planner and generator share records of what follows from a plan (`Blocking`, `RowExtents`, `Part`).
Here these are taken as they are, and asked for what has to hold of them: loops are run over once,
tiles and panels are as many rows and columns as there are, what is left out is a pad, what is kept
lies apart, the multiply-adds are those of the ops. Nothing here asks how a plan was found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from eqsat.model.nest import Access, Nest
from eqsat.model.plan import Plan
from eqsat.plan.blockcheck import row_block_faults
from eqsat.plan.contraction import Tiling
from eqsat.plan.rowblocks import RowBlocks
from eqsat.plan.rowcheck import row_faults
from eqsat.plan.rows import Rows
from eqsat.plan.several import Several, parts_of
from eqsat.plan.stages import needed
from eqsat.plan.tilecheck import tiling_faults


def plan_faults(nest: Nest, plan: Plan) -> Iterator[str]:
    """What of a plan is wrong for its nest, each in a sentence; the nest is taken as right."""
    match plan:
        case Tiling():
            yield from tiling_faults(nest, plan)
        case RowBlocks():
            yield from row_block_faults(nest, plan)
        case Rows():
            yield from row_faults(nest, plan)
        case Several():
            yield from _several_faults(nest, plan)


def _described(nest: Nest) -> Iterator[Hashable]:
    """What is written and computed, whatever the numbers of loops and stages are."""

    def spread(strides: tuple[int, ...], loops: Iterable[int]) -> Hashable:
        return tuple(sorted((nest.sizes[i], strides[i]) for i in loops))

    for s in nest.stores:
        yield s.access.buffer, s.access.base, spread(s.access.strides, s.loops)
    for i in needed(nest, (s.stage for s in nest.stores)):
        s = nest.stages[i]
        reads = [a for a in s.arguments if isinstance(a, Access)]
        own = {*s.loops, *s.reduced}
        yield (
            s.node, str(s.body), s.combine, s.dtype,
            tuple(sorted(nest.sizes[d] for d in s.loops)),
            tuple(sorted(nest.sizes[d] for d in s.reduced)),
            tuple((a.buffer, a.base, spread(a.strides, own)) for a in reads),
        )  # fmt: skip


def _several_faults(nest: Nest, plan: Several) -> Iterator[str]:
    parts = parts_of(nest)
    if len(parts) != len(plan.parts):
        yield f"{len(plan.parts)} plans are of {len(parts)} parts"
        return
    if plan.items != sum(p.items for p in plan.parts):
        yield "it has other work items than its parts"
    if plan.scratch_bytes < max(p.scratch_bytes for p in plan.parts):
        yield "it has less scratch than one of its parts"
    if {x for p in parts for x in _described(p)} != set(_described(nest)):
        yield "its parts compute something else than the nest"
    if sum(len(p.stores) for p in parts) != len(nest.stores):
        yield "its parts write other pieces than the nest"
    for part, own in zip(parts, plan.parts, strict=True):
        yield from plan_faults(part, own)
