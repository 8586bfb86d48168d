"""What a workgroup of a GPU computes of a contraction: docs/accelerators.md.

Written from "Pipelines of a GPU" there, apart from the search: loops that a pipeline puts
together stay a list here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eqsat.model.affine import map_loops
from eqsat.model.generic import Generic
from eqsat.model.padding import Padding
from eqsat.model.pipelines import GRID, Pipeline, Unit
from eqsat.model.tensor import DTYPES, cdiv
from eqsat.ops.contractions.roles import contraction_roles, inner_loops
from eqsat.ops.targets.tiles import COMPARE
from eqsat.plan.scratch import tile_bytes

Run = tuple[int, ...]  # loops that count as one


@dataclass(frozen=True)
class Workgroup:
    """How many of its iterations one workgroup takes of every run of loops."""

    g: Generic
    taken: dict[Run, int]
    rows: int = 1  # of a contraction without an m loop, and columns of one without n
    columns: int = 1
    padded: Fraction = Fraction(1)  # what is computed, by what there is to compute
    aligned: bool = True

    def operand_bytes(self, i: int) -> int:
        """Of the tile of an operand, padding included."""
        beside = (self.rows, self.columns)[i]
        bare = {e.dim for e in self.g.maps[i]}
        dims = [n for run, n in self.taken.items() if set(run) & bare]
        for e in self.g.maps[i]:
            if e.dim is None:  # a window slides over this dim
                dims.append(1 + sum(abs(s) * (self._extent(d) - 1) for d, s in e.terms))
        return tile_bytes((*dims, beside), self.g.dtypes[i])

    def operand_rows(self, i: int) -> int:
        """Rows of the tile of an operand: all dims but the last of more than one element."""
        dims = zip(self.g.maps[i], self.g.shapes[i], strict=True)
        large, columns = [e for e, size in dims if size > 1], 1
        if large and large[-1].dim is not None:
            columns = next((n for run, n in self.taken.items() if large[-1].dim in run), 1)
        elif large:
            columns = 1 + sum(abs(s) * (self._extent(d) - 1) for d, s in large[-1].terms)
        return self.operand_bytes(i) * 8 // DTYPES[self.g.dtypes[i]][0] // columns

    def block(self, i: int) -> tuple[int, ...]:
        """Extents of an operand's dims that a step of a grid reads."""
        return tuple(
            1 + sum(abs(s) * (self._extent(d) - 1) for d, s in e.terms) for e in self.g.maps[i]
        )

    @property
    def result_block(self) -> tuple[int, ...]:
        """Extents of the result's dims that a step of a grid writes."""
        return tuple(self._extent(d) for d in range(self.g.rank))

    def steps(self, loops: Iterable[int]) -> int:
        """How many blocks a grid has along these loops."""
        return math.prod(cdiv(self.g.sizes[d], self._extent(d)) for d in loops)

    def _extent(self, loop: int) -> int:
        return self.taken.get((loop,), 1)

    @property
    def result_rows(self) -> int:
        """Of the result's tile those that only the first operand has."""
        return math.prod(n for run, n in self.taken.items() if _role(self.g, run[0]) == "m") * (
            self.rows
        )

    @property
    def result_tile(self) -> tuple[int, ...]:
        mine = [n for run, n in self.taken.items() if run[0] < self.g.rank]
        return (*mine, self.rows, self.columns)


def reduction_workgroup(g: Generic) -> Workgroup:
    """One result."""
    return Workgroup(g, {(d,): 1 if d < g.rank else s for d, s in enumerate(g.sizes)})


def packed_workgroup(g: Generic) -> Workgroup:
    """The tile a rule packed by; of a longer block of k a piece."""
    inner = sorted(inner_loops(g))
    depths = [d for d in inner if d >= g.rank]  # two of them are one k tile, cut twice
    depth = g.tile[-1] if len(depths) == 1 else max(g.sizes)
    return Workgroup(g, {(d,): g.sizes[d] if d < g.rank else min(depth, g.sizes[d]) for d in inner})


def workgroup(g: Generic, pipeline: Pipeline, padding: Padding | None = None) -> Workgroup | None:
    """Of an unpacked contraction; None if the pipeline does not take it.

    padding: of memory, to whose rows and lanes the blocks of a grid are aligned.
    """
    if not all(_conditions(g, pipeline)):
        return None
    best = None
    for unit in pipeline.units(g.dtypes, g.precision):
        found = _by(g, pipeline, unit)
        if found is None or (pipeline.walk == GRID and padding and not _fits(found, padding)):
            continue
        is_better = best is not None and (found.aligned, -found.padded) > (
            best.aligned,
            -best.padded,
        )
        if best is None or is_better:
            best = found
    return best


def _by(g: Generic, pipeline: Pipeline, unit: Unit) -> Workgroup | None:
    """By one intrinsic."""
    runs = _runs(g) if pipeline.collapse else [(d,) for d in g.executed if g.sizes[d] > 1]
    taken, padded, aligned = dict.fromkeys(runs, 1), Fraction(1), True
    lone = {"m": 1, "n": 1, "k": 1}
    for role in lone:
        mine = [run for run in runs if _role(g, run[0]) == role]
        sizes = [math.prod(g.sizes[d] for d in run) for run in mine] or [1]
        within = sizes[-1:] if pipeline.cut == "innermost" else sizes
        options = pipeline.extents(role, unit, DTYPES[g.dtypes[0]][0])
        at, extent = _fitting(within, options)
        if not extent and pipeline.unaligned == "padded":
            at, extent = _least_padding(within, options)
        if not extent and pipeline.unaligned != "whole":
            return None
        if extent:
            padded *= Fraction(cdiv(within[at], extent) * extent, within[at])
            if mine:
                taken[mine[at - len(within)]] = extent
            else:
                lone[role] = extent
        elif mine:
            aligned = False
            taken |= dict(zip(mine, sizes, strict=True))
    return Workgroup(g, taken, lone["m"], lone["n"], padded, aligned)


def _fits(found: Workgroup, padding: Padding) -> bool:
    """Whether the last extents of all blocks are whole, or multiples of a row and of the lanes."""
    g = found.g
    pairs = [(found.result_block, g.result_shape)]
    pairs += [(found.block(i), shape) for i, shape in enumerate(g.shapes)]
    for block, whole in pairs:
        last = [block[-1] % padding.lanes, block[-1] - whole[-1]] if block else [0]
        row = [block[-2] % padding.rows, block[-2] - whole[-2]] if len(block) > 1 else [0]
        if all(last) or all(row):
            return False
    return True


def _fitting(sizes: Sequence[int], options: Sequence[int]) -> tuple[int, int]:
    """The innermost loop that an option divides, and the first that does; extent 0 if none."""
    for at in reversed(range(len(sizes))):
        for e in options:
            if sizes[at] % e == 0:
                return at, e
    return 0, 0


def _least_padding(sizes: Sequence[int], options: Sequence[int]) -> tuple[int, int]:
    best = Fraction(0)
    found = 0, 0
    for at in reversed(range(len(sizes))):
        for e in options:
            share = Fraction(sizes[at], cdiv(sizes[at], e) * e)
            if share > best:
                best, found = share, (at, e)
    return found


def _role(g: Generic, loop: int) -> str:
    if loop >= g.rank:
        return "k"
    lhs, rhs = (loop in map_loops(m) for m in g.maps)
    return {(True, False): "m", (False, True): "n"}.get((lhs, rhs), "batch")


def _conditions(g: Generic, pipeline: Pipeline) -> Iterator[bool]:
    """Extents of all loops of a role together, and element types."""
    extents = {"m": 1, "n": 1, "k": 1, "batch": 1}
    for d, size in enumerate(g.sizes):
        extents[_role(g, d)] *= size
    known: dict[str, int | str] = {"lhs": g.dtypes[0], "rhs": g.dtypes[1]}
    known |= extents | {"acc": g.yields[0].dtype}
    return (COMPARE[c.op](known[c.left], c.right) for c in pipeline.when)


def _runs(g: Generic) -> list[Run]:
    """Loops above 1; neighbours, in this order, in the result and every operand are one."""
    rows = [[d for d in range(g.rank) if g.sizes[d] > 1]]
    slid = set[int]()
    for m, shape in zip(g.maps, g.shapes, strict=True):
        row = []
        for e, size in zip(m, shape, strict=True):
            is_whole = e.dim is not None and g.sizes[e.dim] == size
            slid |= set() if is_whole else {d for d, _ in e.terms}
            if size > 1:  # a dim that is not a whole loop parts its neighbours
                row.append(e.dim if is_whole and e.dim is not None else -1)
        rows.append(row)
    runs: list[Run] = []
    for d in (d for d, s in enumerate(g.sizes) if s > 1):
        alike = (r for r in runs if (r[-1] < g.rank) == (d < g.rank) and not slid & {r[-1], d})
        before = [r for r in alike if all(_follows(row, r[-1], d) for row in rows)]
        runs = [(*r, d) if r in before else r for r in runs] + ([] if before else [(d,)])
    return runs


def _follows(row: Sequence[int], first: int, second: int) -> bool:
    """Whether both stand there as neighbours, or neither does."""
    if first not in row and second not in row:
        return True
    at = row.index(first) + 1 if first in row else len(row)
    return at < len(row) and row[at] == second and row.count(first) == row.count(second) == 1


def is_unpacked_contraction(g: Generic) -> bool:
    return not g.tile and contraction_roles(g) is not None
