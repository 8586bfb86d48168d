"""Legality of a dispatch's pipeline: does it take the dispatch, fit, and take that long?

What a workgroup of a GPU computes of a contraction: docs/accelerators.md. Part of `schedule.legal`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eqsat.model.affine import map_loops
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.generic import Generic
from eqsat.model.pipelines import GRID, Condition, Padding, Pipeline, Unit
from eqsat.model.schedule import Dispatch
from eqsat.model.target import Target
from eqsat.model.tensor import DTYPES, cdiv
from eqsat.ops.contractions.roles import contraction_roles, inner_loops
from eqsat.ops.targets.tiles import COMPARE
from eqsat.plan.price import tile_bytes

# ---- workgroups ----------------------------------------------------------------------------------
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
        return math.prod(
            n for run, n in self.taken.items() if role_of_loop(self.g, run[0]) == "m"
        ) * (self.rows)

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
    if unmet_conditions(g, pipeline):
        return None
    best = None
    for unit in pipeline.units(g.dtypes, g.precision):
        candidate = cut_by(g, pipeline, unit)
        if candidate is None or (
            pipeline.walk == GRID and padding and not is_aligned_grid(candidate, padding)
        ):
            continue
        is_better = best is not None and (candidate.aligned, -candidate.padded) > (
            best.aligned,
            -best.padded,
        )
        if best is None or is_better:
            best = candidate
    return best


def cut_by(g: Generic, pipeline: Pipeline, unit: Unit) -> Workgroup | None:
    """By one intrinsic."""
    runs = loop_runs(g) if pipeline.collapse else [(d,) for d in g.executed if g.sizes[d] > 1]
    taken, padded, aligned = dict.fromkeys(runs, 1), Fraction(1), True
    lone = {"m": 1, "n": 1, "k": 1}
    for role in lone:
        mine = [run for run in runs if role_of_loop(g, run[0]) == role]
        sizes = [math.prod(g.sizes[d] for d in run) for run in mine] or [1]
        within, options = cut_choices(g, pipeline, unit, role, sizes)
        at, extent = fitting_extent(within, options)
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


def cut_choices(
    g: Generic, pipeline: Pipeline, unit: Unit, role: str, sizes: Sequence[int]
) -> tuple[Sequence[int], tuple[int, ...]]:
    """Loops of a role that may be cut, by their sizes, and the extents that one may be cut into."""
    within = sizes[-1:] if pipeline.cut == "innermost" else sizes
    return within, pipeline.extents(role, unit, DTYPES[g.dtypes[0]][0])


def is_aligned_grid(cut: Workgroup, padding: Padding) -> bool:
    """Whether the last extents of all blocks are whole, or multiples of a row and of the lanes."""
    g = cut.g
    pairs = [(cut.result_block, g.result_shape)]
    pairs += [(cut.block(i), shape) for i, shape in enumerate(g.shapes)]
    for block, whole in pairs:
        last = [block[-1] % padding.lanes, block[-1] - whole[-1]] if block else [0]
        row = [block[-2] % padding.rows, block[-2] - whole[-2]] if len(block) > 1 else [0]
        if all(last) or all(row):
            return False
    return True


def fitting_extent(sizes: Sequence[int], options: Sequence[int]) -> tuple[int, int]:
    """The innermost loop that an option divides, and the first that does; extent 0 if none."""
    for at in reversed(range(len(sizes))):
        for e in options:
            if sizes[at] % e == 0:
                return at, e
    return 0, 0


def _least_padding(sizes: Sequence[int], options: Sequence[int]) -> tuple[int, int]:
    best = Fraction(0)
    choice = 0, 0
    for at in reversed(range(len(sizes))):
        for e in options:
            share = Fraction(sizes[at], cdiv(sizes[at], e) * e)
            if share > best:
                best, choice = share, (at, e)
    return choice


def role_of_loop(g: Generic, loop: int) -> str:
    if loop >= g.rank:
        return "k"
    lhs, rhs = (loop in map_loops(m) for m in g.maps)
    return {(True, False): "m", (False, True): "n"}.get((lhs, rhs), "batch")


def condition_facts(g: Generic) -> dict[str, int | str]:
    """What `when` asks about: extents of all loops of a role together, and element types."""
    extents = {"m": 1, "n": 1, "k": 1, "batch": 1}
    for d, size in enumerate(g.sizes):
        extents[role_of_loop(g, d)] *= size
    facts: dict[str, int | str] = {"lhs": g.dtypes[0], "rhs": g.dtypes[1]}
    return facts | extents | {"acc": g.yields[0].dtype}


def unmet_conditions(g: Generic, pipeline: Pipeline) -> list[Condition]:
    """Of the pipeline's `when` those that do not hold."""
    facts = condition_facts(g)
    return [c for c in pipeline.when if not COMPARE[c.op](facts[c.left], c.right)]


def loop_runs(g: Generic) -> list[Run]:
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


# ---- pipelines -----------------------------------------------------------------------------------
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
    """Faults in words; and what a workgroup keeps, in words and bytes of scratch.

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
    taken = [(p, w) for p in asked if (w := all_workgroups(roots, p, target.padding)) is not None]
    if not taken:
        which = f"`{named[0].name}` does" if named else "the pipelines do"
        yield f"{which} not take {names} ({target.place('pipelines')})"
        return
    held = (
        sum(held_bytes(r, w, p, target.padding) for r, w in zip(roots, ws, strict=True))
        for p, ws in taken
    )
    yield f"what a workgroup keeps of {names}", min(held)
    if named:
        least = contraction_ps(roots, taken[0][1], named[0], target)
        if dispatch.time_ps < math.floor(least * (1 - 1e-9)):
            took = f"takes {dispatch.time_ps:,} ps"
            yield f"{took}, `{named[0].name}` needs {least:,.0f} for {names}"


def all_workgroups(
    roots: Sequence[Root], pipeline: Pipeline | None, padding: Padding | None
) -> list[Workgroup] | None:
    """Of every root; None if the pipeline does not take them all."""
    cuts = [_workgroup(r.attr, pipeline, padding) for r in roots]
    taken = [w for w in cuts if w is not None]
    return taken if len(taken) == len(cuts) else None


def _workgroup(g: Generic, pipeline: Pipeline | None, padding: Padding | None) -> Workgroup | None:
    if contraction_roles(g) is None:
        return reduction_workgroup(g)
    if g.tile:
        return packed_workgroup(g)
    return None if pipeline is None else workgroup(g, pipeline, padding)


def _block_bytes(root: Root, cut: Workgroup, stages: int, padding: Padding | None) -> int:
    """Rule 9: blocks that move as often as there are stages, an accumulator, a whole result."""
    g, total = root.attr, 0
    reduced = cut.steps(range(g.rank, len(g.sizes)))

    def size(shape: tuple[int, ...], dtype: str) -> int:
        return tile_bytes(shape, dtype) if padding is None else padding.nbytes(shape, dtype)

    for i, m in enumerate(g.maps):
        times = stages if cut.steps(map_loops(m)) > 1 else 1
        total += times * size(cut.block(i), g.dtypes[i])
    for y in g.yields:
        times = stages if cut.steps(range(g.rank)) > 1 else 1
        total += times * size(cut.result_block, y.dtype)
        total += size(cut.result_block, "f32") if reduced > 1 else 0  # i32 is as large
        whole = root.is_read and not root.is_along
        total += size(g.result_shape, y.dtype) if whole else 0
    return total


def _stage_bytes(cut: Workgroup, pipeline: Pipeline) -> int:
    """Rule 8: stages of the operands' tiles, or what the result passes through if that is more."""
    held = passed = 0
    for i, side in enumerate(("lhs", "rhs")):
        if side in pipeline.promote:
            free = side not in pipeline.from_scratch and pipeline.stages > 1
            tile = cut.operand_bytes(i) + cut.operand_rows(i) * pipeline.row_pad
            held += tile * (pipeline.stages - free)
    rows = min(cut.result_rows, 16 * pipeline.subgroups)
    columns = math.prod(cut.result_tile) // cut.result_rows
    for y in cut.g.yields:
        passed += tile_bytes((rows, columns), y.dtype)
    return max(held, passed)


def held_bytes(
    root: Root, cut: Workgroup, pipeline: Pipeline | None, padding: Padding | None
) -> int:
    """Rules 4 to 6, 8 and 9 of "Pipelines of a GPU"."""
    g, promote = root.attr, ("lhs", "rhs")
    if pipeline is not None and is_unpacked_contraction(g):
        promote = pipeline.promote
        if pipeline.walk == GRID:
            return _block_bytes(root, cut, pipeline.stages, padding)
    held = 0
    if pipeline is not None and is_unpacked_contraction(g) and cut.aligned:
        held = _stage_bytes(cut, pipeline)
    elif cut.aligned and contraction_roles(g) is not None:
        sides = [i for i, s in enumerate(("lhs", "rhs")) if s in promote]
        held = sum(cut.operand_bytes(i) for i in sides)
    in_registers = root.is_along and cut.aligned and "result" not in promote
    if not root.is_read or in_registers:
        return held
    shape = cut.result_tile if root.is_along else g.sizes[: g.rank]
    return held + sum(tile_bytes(tuple(shape), y.dtype) for y in g.yields)


def contraction_ps(
    roots: Sequence[Root], cuts: Sequence[Workgroup], pipeline: Pipeline, target: Target
) -> float:
    """Picoseconds of the contractions alone, padding included; 0 without rates."""
    total = 0.0
    for r, w in zip(roots, cuts, strict=True):
        peak = target.rate(r.attr.dtypes[0], r.attr.precision)
        if peak is None or pipeline.rate is None or not is_unpacked_contraction(r.attr):
            continue
        pipeline_peak = pipeline.peak(r.attr.dtypes[0], r.attr.precision)
        operations = 2 * math.prod(r.attr.sizes) * w.padded
        total += (
            float(operations)
            * PS_PER_SECOND
            / ((peak if pipeline_peak is None else pipeline_peak) * pipeline.rate)
        )
    return total
