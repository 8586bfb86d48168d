"""Does the pipeline that a dispatch names take it, fit, and take that long? Part of `legal`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.model.affine import map_loops
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.generic import Generic
from eqsat.model.padding import Padding
from eqsat.model.pipelines import GRID, Pipeline
from eqsat.model.schedule import Dispatch
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.plan.scratch import tile_bytes
from eqsat.schedule.workgroups import (
    Workgroup,
    is_unpacked_contraction,
    packed_workgroup,
    reduction_workgroup,
    workgroup,
)


@dataclass(frozen=True)
class Root:
    """A contraction or reduction of a dispatch.

    is_read: whether an op inside reads its result; is_along: whether all these follow its tiles.
    """

    number: int
    attr: Generic
    is_read: bool
    is_along: bool


def pipeline_faults(
    roots: Sequence[Root], dispatch: Dispatch, target: Target, *, is_own: bool
) -> Iterator[str | tuple[str, int]]:
    """What is wrong in words; and what a workgroup keeps, in words and bytes of scratch.

    A dispatch of another target's schedule names none of these: one that may be used is enough.
    """
    if not target.pipelines or not roots:
        return
    names = " and ".join(f"%{r.number}" for r in roots)
    named = [p for p in target.pipelines if p.name == dispatch.pipeline]
    asked: Sequence[Pipeline | None] = named or target.pipelines
    if not any(is_unpacked_contraction(r.attr) for r in roots):
        asked, named = (None,), []
    elif not named and is_own:
        where = target.place("pipelines")
        yield f"is computed by `{dispatch.pipeline}`, no pipeline of {target.name} ({where})"
    taken = [(p, w) for p in asked if (w := _workgroups(roots, p, target.padding)) is not None]
    if not taken:
        which = f"`{named[0].name}` does" if named else "the pipelines do"
        yield f"{which} not take {names} ({target.place('pipelines')})"
        return
    held = (
        sum(_held_bytes(r, w, p, target.padding) for r, w in zip(roots, ws, strict=True))
        for p, ws in taken
    )
    yield f"what a workgroup keeps of {names}", min(held)
    if named:
        least = _least_ps(roots, taken[0][1], named[0], target)
        if dispatch.time_ps < math.floor(least * (1 - 1e-9)):
            took = f"takes {dispatch.time_ps:,} ps"
            yield f"{took}, `{named[0].name}` needs {least:,.0f} for {names}"


def _workgroups(
    roots: Sequence[Root], pipeline: Pipeline | None, padding: Padding | None
) -> list[Workgroup] | None:
    """Of every root; None if the pipeline does not take them all."""
    found = [_workgroup(r.attr, pipeline, padding) for r in roots]
    taken = [w for w in found if w is not None]
    return taken if len(taken) == len(found) else None


def _workgroup(g: Generic, pipeline: Pipeline | None, padding: Padding | None) -> Workgroup | None:
    if contraction_roles(g) is None:
        return reduction_workgroup(g)
    if g.tile:
        return packed_workgroup(g)
    return None if pipeline is None else workgroup(g, pipeline, padding)


def _block_bytes(root: Root, found: Workgroup, stages: int, padding: Padding | None) -> int:
    """Rule 9: blocks that move as often as there are stages, an accumulator, a whole result."""
    g, total = root.attr, 0
    reduced = found.steps(range(g.rank, len(g.sizes)))

    def size(shape: tuple[int, ...], dtype: str) -> int:
        return tile_bytes(shape, dtype) if padding is None else padding.nbytes(shape, dtype)

    for i, m in enumerate(g.maps):
        times = stages if found.steps(map_loops(m)) > 1 else 1
        total += times * size(found.block(i), g.dtypes[i])
    for y in g.yields:
        times = stages if found.steps(range(g.rank)) > 1 else 1
        total += times * size(found.result_block, y.dtype)
        total += size(found.result_block, "f32") if reduced > 1 else 0  # i32 is as large
        whole = root.is_read and not root.is_along
        total += size(g.result_shape, y.dtype) if whole else 0
    return total


def _stage_bytes(found: Workgroup, pipeline: Pipeline) -> int:
    """Rule 8: stages of the operands' tiles, or what the result passes through if that is more."""
    held = passed = 0
    for i, side in enumerate(("lhs", "rhs")):
        if side in pipeline.promote:
            free = side not in pipeline.from_scratch and pipeline.stages > 1
            tile = found.operand_bytes(i) + found.operand_rows(i) * pipeline.row_pad
            held += tile * (pipeline.stages - free)
    rows = min(found.result_rows, 16 * pipeline.subgroups)
    columns = math.prod(found.result_tile) // found.result_rows
    for y in found.g.yields:
        passed += tile_bytes((rows, columns), y.dtype)
    return max(held, passed)


def _held_bytes(
    root: Root, found: Workgroup, pipeline: Pipeline | None, padding: Padding | None
) -> int:
    """Rules 4 to 6, 8 and 9 of "Pipelines of a GPU"."""
    g, promote = root.attr, ("lhs", "rhs")
    if pipeline is not None and is_unpacked_contraction(g):
        promote = pipeline.promote
        if pipeline.walk == GRID:
            return _block_bytes(root, found, pipeline.stages, padding)
    held = 0
    if pipeline is not None and is_unpacked_contraction(g) and found.aligned:
        held = _stage_bytes(found, pipeline)
    elif found.aligned and contraction_roles(g) is not None:
        sides = [i for i, s in enumerate(("lhs", "rhs")) if s in promote]
        held = sum(found.operand_bytes(i) for i in sides)
    in_registers = root.is_along and found.aligned and "result" not in promote
    if not root.is_read or in_registers:
        return held
    shape = found.result_tile if root.is_along else g.sizes[: g.rank]
    return held + sum(tile_bytes(tuple(shape), y.dtype) for y in g.yields)


def _least_ps(
    roots: Sequence[Root], found: Sequence[Workgroup], pipeline: Pipeline, target: Target
) -> float:
    """Picoseconds of the contractions alone, padding included; 0 without rates."""
    total = 0.0
    for r, w in zip(roots, found, strict=True):
        peak = target.rate(r.attr.dtypes[0], r.attr.precision)
        if peak is None or pipeline.rate is None or not is_unpacked_contraction(r.attr):
            continue
        own = pipeline.peak(r.attr.dtypes[0], r.attr.precision)
        operations = 2 * math.prod(r.attr.sizes) * w.padded
        total += (
            float(operations) * PS_PER_SECOND / ((peak if own is None else own) * pipeline.rate)
        )
    return total
