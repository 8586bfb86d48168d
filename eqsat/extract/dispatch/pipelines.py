"""Pipelines of a GPU or TPU: which take a dispatch, the scratch bytes they need, what they compute.

Every loop of a contraction gets the extent one workgroup computes; tiles of operands and results
follow from the maps. The rules are written down in docs/accelerators.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.affine import map_loops
from eqsat.model.generic import Generic
from eqsat.model.pipelines import ACCUMULATOR, GRID, Padding, Pipeline, Unit
from eqsat.model.tensor import DTYPES, cdiv, is_float
from eqsat.ops.contractions.roles import contraction_roles, inner_loops
from eqsat.ops.movement.collapse import collapse_loops
from eqsat.ops.targets.kernels import facts
from eqsat.ops.targets.tiles import is_met
from eqsat.plan.price import (
    PLAIN,
    Block,
    StagedTile,
    grid_bytes,
    loop_bytes,
    misaligned,
    passed_bytes,
)

NOT_READ, ALONG, APART = range(3)  # how the other members of a dispatch read a root's result
Root = tuple[Generic, int]  # a contraction or reduction, and how it is read


@dataclass(frozen=True)
class WorkgroupTile:
    """The tile of a contraction that one workgroup computes: an extent per loop of a nest."""

    nest: Generic  # the contraction, with its loops put together if the pipeline does that
    extents: tuple[int, ...]
    computed: int  # iterations of the whole nest, with what is padded
    rows: tuple[int, int] = (1, 1)  # extents of m and n where the nest has no such loop
    # role -> its loops, held whole as no extent divides one of them
    whole: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def whole_text(self) -> str:
        """`no tile divides 56x56 of m, 64x3x3 of k`; nothing if all roles are cut."""
        sizes = ["x".join(str(self.nest.sizes[d]) for d in loops) for _, loops in self.whole]
        texts = [f"{s} of {role}" for s, (role, _) in zip(sizes, self.whole, strict=True)]
        return f"no tile divides {', '.join(texts)}" if texts else ""


@dataclass(frozen=True)
class Way:
    """One pipeline for a dispatch; None if it holds nothing that needs one."""

    pipeline: Pipeline | None
    scratch_bytes: int
    whole: str = ""  # what is not cut, in words

    @property
    def name(self) -> str:
        return "" if self.pipeline is None else self.pipeline.name


def needs_pipeline(g: Generic) -> bool:
    """Packed contractions have kernels of their own, and reductions need none."""
    return not g.tile and contraction_roles(g) is not None


@lru_cache(maxsize=50_000)
def ways(
    pipelines: tuple[Pipeline, ...], roots: tuple[Root, ...], padding: Padding | None = None
) -> tuple[Way, ...]:
    """The pipelines that take all unpacked contractions of a dispatch, in the target's order.

    padding: of the target's memory.
    """
    asked = [g for g, _ in roots if needs_pipeline(g)]
    if not asked:
        return (Way(None, sum(root_bytes(g, None, reading) for g, reading in roots)),)
    taken = []
    for p in pipelines:
        cuts = [c for g in asked if (c := cut(g, p, padding)) is not None]
        if len(cuts) == len(asked):
            nbytes = sum(root_bytes(g, p, reading, padding) for g, reading in roots)
            taken.append(Way(p, nbytes, "; ".join(filter(None, (c.whole_text() for c in cuts)))))
    return tuple(taken)


# ---- how a contraction is cut ----------------------------------------------------------------
@lru_cache(maxsize=50_000)
def cut(g: Generic, pipeline: Pipeline, padding: Padding | None = None) -> WorkgroupTile | None:
    """An unpacked contraction cut into workgroups; None if the pipeline does not take it.

    Nor does it if a block of its grid would not be aligned to the rows and lanes of memory.

    Of several intrinsics the one by which the least is computed, the first of equal ones; one that
    aligns all loops comes before one that does not.
    """
    matmul_facts = facts(g, "matmul")
    if not all(is_met(c, matmul_facts) for c in pipeline.when):
        return None
    nest = _collapsed(g) if pipeline.collapse else g
    tried = (_cut(nest, pipeline, u) for u in pipeline.units(g.dtypes, g.precision))
    tiles = [c for c in tried if c is not None]
    if pipeline.walk == GRID and padding is not None:
        tiles = [c for c in tiles if _is_aligned(c, padding)]
    return min(tiles, key=lambda c: (bool(c.whole), c.computed), default=None)


def _cut(nest: Generic, pipeline: Pipeline, unit: Unit) -> WorkgroupTile | None:
    extents, computed = [1] * len(nest.sizes), math.prod(nest.sizes)
    rows, whole = {"m": 1, "n": 1, "k": 1}, []
    for role, loops in _roles(nest).items():
        sizes = [nest.sizes[d] for d in loops] or [1]
        listed = pipeline.extents(role, unit, DTYPES[nest.dtypes[0]][0])
        fit = _tile(sizes, listed, pipeline)
        if fit is not None:
            at, extent = fit
            if loops:
                extents[loops[at]] = extent
            else:
                rows[role] = extent
            computed = computed // sizes[at] * cdiv(sizes[at], extent) * extent
        elif pipeline.unaligned != "whole":
            return None
        else:
            whole += [(role, tuple(loops))] if loops else []
            for d in loops:
                extents[d] = nest.sizes[d]
    return WorkgroupTile(nest, tuple(extents), computed, (rows["m"], rows["n"]), tuple(whole))


def _collapsed(g: Generic) -> Generic:
    """With loops that lie together as one; the pipeline orders them as they lie."""
    collapsed = collapse_loops(g)
    return replace(g, order=()) if collapsed is None else collapsed.sig


def _tile(
    sizes: Sequence[int], listed: Sequence[int], pipeline: Pipeline
) -> tuple[int, int] | None:
    """Which loop of a role is cut, and into which extent; None if none divides it.

    The innermost loop that some extent divides, into the first that does; else, where the pipeline
    pads, the loop and extent with the least share of padding, of equal ones the first as before.
    """
    tried = range(len(sizes) - 1, len(sizes) - 2 if pipeline.cut == "innermost" else -1, -1)
    fits = ((d, e) for d in tried for e in listed if sizes[d] % e == 0)
    fit = next(fits, None)
    if fit is not None or pipeline.unaligned != "padded":
        return fit
    both = [(d, e) for d in tried for e in listed]
    return min(both, key=lambda x: cdiv(sizes[x[0]], x[1]) * x[1] / sizes[x[0]], default=None)


def _roles(g: Generic) -> dict[str, list[int]]:
    """Loops above 1 by role, the innermost last; those of windows too, by the operand with them.

    A loop of an output that both operands have is a batch loop, and is cut to 1.
    """
    lhs, rhs = (map_loops(m) for m in g.maps)
    large = [d for d in g.executed if g.sizes[d] > 1]
    return {
        "m": [d for d in large if d < g.rank and d in lhs and d not in rhs],
        "n": [d for d in large if d < g.rank and d in rhs and d not in lhs],
        "k": [d for d in large if d >= g.rank],
    }


def _packed(g: Generic) -> WorkgroupTile:
    """The kernel's tile; blocks of k may be longer than that, and are read a piece at a time."""
    inner = inner_loops(g)
    extents = [s if d in inner else 1 for d, s in enumerate(g.sizes)]
    blocks = [d for d in inner if d >= g.rank]
    if len(blocks) == 1:
        extents[blocks[0]] = min(extents[blocks[0]], g.tile[2])
    return WorkgroupTile(g, tuple(extents), math.prod(g.sizes))


# ---- what a workgroup keeps ------------------------------------------------------------------
def operand_tile(workgroup: WorkgroupTile, operand: int) -> tuple[int, ...]:
    """Extents of the part of an operand that a workgroup reads, padding included."""
    terms = (e.terms for e in workgroup.nest.maps[operand])
    return tuple(1 + sum(abs(s) * (workgroup.extents[d] - 1) for d, s in t) for t in terms)


def operand_tile_bytes(workgroup: WorkgroupTile, operand: int, row_pad: int = 0) -> int:
    """Bytes of the part of an operand that a workgroup reads, padding included.

    row_pad: bytes behind every row, the last dim of more than one element.
    """
    tile = operand_tile(workgroup, operand)
    elements = math.prod(tile) * workgroup.rows[operand]
    dims = zip(tile, workgroup.nest.shapes[operand], strict=True)
    rows = elements // ([e for e, size in dims if size > 1] or [1])[-1]
    return cdiv(elements * DTYPES[workgroup.nest.dtypes[operand]][0], 8) + rows * row_pad


def _is_aligned(workgroup: WorkgroupTile, padding: Padding) -> bool:
    nest, unit = workgroup.nest, (padding.rows, padding.lanes)
    blocks = [(operand_tile(workgroup, i), nest.shapes[i]) for i in range(len(nest.maps))]
    blocks.append((workgroup.extents[: nest.rank], nest.result_shape))
    return not any(misaligned(block, whole, unit) for block, whole in blocks)


def _moves(workgroup: WorkgroupTile, loops: Iterable[int]) -> bool:
    """Whether another step of the grid has another block of what these loops index."""
    return any(workgroup.extents[d] < workgroup.nest.sizes[d] for d in loops)


def _grid_bytes(workgroup: WorkgroupTile, stages: int, padding: Padding) -> int:
    """Of blocks of operands and result, and what is kept of the result between steps of k."""
    nest = workgroup.nest
    blocks = [
        Block(operand_tile(workgroup, i), nest.dtypes[i], _moves(workgroup, map_loops(m)))
        for i, m in enumerate(nest.maps)
    ]
    dtypes, result = [y.dtype for y in nest.yields], workgroup.extents[: nest.rank]
    blocks += [Block(result, dtype, _moves(workgroup, range(nest.rank))) for dtype in dtypes]
    accumulators = [ACCUMULATOR if is_float(dtype) else "i32" for dtype in dtypes]
    if not _moves(workgroup, range(nest.rank, len(nest.sizes))):
        accumulators = []
    return grid_bytes(blocks, [Block(result, dtype) for dtype in accumulators], padding, stages)


def _loop_bytes(workgroup: WorkgroupTile, pipeline: Pipeline) -> int:
    """Of the stages of the promoted operands, and of what results pass through."""
    sides = [(i, s) for i, s in enumerate(("lhs", "rhs")) if s in pipeline.promote]
    tiles = [
        StagedTile(operand_tile_bytes(workgroup, i, pipeline.row_pad), s in pipeline.from_scratch)
        for i, s in sides
    ]
    rank = workgroup.nest.rank
    rows = math.prod(
        e for d, e in enumerate(workgroup.extents[:rank]) if d in _rows(workgroup.nest)
    )
    columns = math.prod((*workgroup.extents[:rank], *workgroup.rows)) // (rows * workgroup.rows[0])
    passed = [
        passed_bytes(rows * workgroup.rows[0], columns, y.dtype, pipeline.subgroups)
        for y in workgroup.nest.yields
    ]
    return loop_bytes(tiles, pipeline.stages, sum(passed))


def _rows(nest: Generic) -> set[int]:
    return set(_roles(nest)["m"])


def root_bytes(
    g: Generic, pipeline: Pipeline | None, reading: int, padding: Padding | None = None
) -> int:
    """Scratch bytes of a contraction or reduction whose result the other members read so.

    A reduction is cut into single results; they and the tile of a packed contraction's result stay
    in registers.
    """
    promote: tuple[str, ...] = ("lhs", "rhs")
    workgroup = WorkgroupTile(g, tuple(1 if d < g.rank else s for d, s in enumerate(g.sizes)), 0)
    is_contraction = contraction_roles(g) is not None
    if is_contraction and g.tile:
        workgroup = _packed(g)
    elif is_contraction:
        assert pipeline is not None, "unpacked contractions are asked about by pipeline"
        taken = cut(g, pipeline, padding)
        assert taken is not None, "asked of pipelines that take it"
        workgroup, promote = taken, pipeline.promote
        if pipeline.walk == GRID:
            held = [(g.result_shape, y.dtype) for y in g.yields] if reading == APART else []
            of = padding or PLAIN
            blocks = _grid_bytes(workgroup, pipeline.stages, of)
            return blocks + sum(of.nbytes(*whole) for whole in held)
    total = 0
    if pipeline is not None and is_contraction and not g.tile and not workgroup.whole:
        total = _loop_bytes(workgroup, pipeline)
    elif is_contraction and not workgroup.whole:
        total = sum(
            operand_tile_bytes(workgroup, i) for i, s in enumerate(("lhs", "rhs")) if s in promote
        )
    in_registers = reading == ALONG and not workgroup.whole and "result" not in promote
    if reading == NOT_READ or in_registers:
        return total
    tile = (*workgroup.extents[: workgroup.nest.rank], *workgroup.rows)
    held = g.result_shape if reading == APART else tile
    return total + sum(cdiv(math.prod(held) * DTYPES[y.dtype][0], 8) for y in g.yields)
