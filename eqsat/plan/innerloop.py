"""What a price assumes of a kernel's inner loops, beside what its machine code does in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eqsat.model.dispatch import Plan
from eqsat.model.nest import Nest
from eqsat.plan.contraction import Blocking, Tiling
from eqsat.plan.estimate import at_one_point
from eqsat.plan.passes import Several, parts_of
from eqsat.plan.roles import product_roles_of
from eqsat.plan.rowblocks import RowBlocks
from eqsat.plan.rowroles import row_roles_of

SHOWN_LOOPS = 4  # those of most multiply-adds


@dataclass(frozen=True)
class PricedLoop:
    """Multiply-adds and loads of vectors at one point of a reduction; loads include broadcasts."""

    what: str
    multiply_adds: float
    loads: float


def priced_loops(nest: Nest, plan: Plan) -> Iterator[PricedLoop]:
    """Of every contraction of a plan; none of rows, whose work is priced by additions."""
    if isinstance(plan, Several):
        for part, one in zip(parts_of(nest), plan.parts, strict=True):
            yield from priced_loops(part, one)
    elif isinstance(plan, RowBlocks):
        if row_roles_of(nest).first is not None:
            yield _tile("first", plan.rows, plan.dots or plan.vectors)
        if not plan.streamed:
            yield _tile("last", plan.rows, plan.wide_vectors)
    elif isinstance(plan, Tiling) and plan.dot:
        yield _tile("sums", plan.rows, plan.dot)
    elif isinstance(plan, Tiling):
        sizes = Blocking(nest, plan, product_roles_of(nest))
        width = sizes.width if sizes.panels_along > 1 else sizes.last_width
        across = -(-width // plan.lanes) * plan.wide
        counts = at_one_point(sizes, plan.rows, across)
        yield PricedLoop(f"tile {plan.rows}x{across}", *counts)


def _tile(what: str, rows: int, vectors: int) -> PricedLoop:
    return PricedLoop(f"{what} {rows}x{vectors}", rows * vectors, rows + vectors)


# ---- machine code --------------------------------------------------------------------------------
@dataclass(frozen=True)
class CodeLoop:
    """Instructions of an inner loop; loads and stores of vectors, broadcasts included.

    on_stack: how many of these are of the stack, as where registers do not suffice.
    """

    label: str
    instructions: int
    multiply_adds: int
    loads: int
    stores: int
    on_stack: int
    text: str


@dataclass(frozen=True)
class MachineCode:
    """Code of one dispatch. made_for: the CPU. loops: inner ones, most multiply-adds first."""

    dispatch: int
    name: str
    plan: str
    made_for: str
    text: str
    loops: tuple[CodeLoop, ...]
    priced: tuple[PricedLoop, ...]

    def to_json(self) -> dict[str, Any]:
        loops = [dict(vars(x)) for x in self.loops]
        return vars(self) | {"loops": loops, "priced": [dict(vars(p)) for p in self.priced]}

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Rows of `LOOP_COLUMNS`: loops, each price behind the loop that it is of."""
        shown = self.loops[:SHOWN_LOOPS]
        priced = [(p, *_nearest(p, shown)) for p in self.priced if shown]
        for x in shown:
            counts = (x.instructions, x.multiply_adds, x.loads, x.stores, x.on_stack)
            yield (x.label, *map(str, counts))
            for p, of, points in priced:
                if of is x:
                    what = f"  price of {p.what}, {points} points"
                    yield (
                        what,
                        "",
                        f"{points * p.multiply_adds:g}",
                        f"{points * p.loads:g}",
                        "0",
                        "0",
                    )


LOOP_COLUMNS = ("inner loop", "instructions", "multiply-adds", "loads", "stores", "of the stack")


def _nearest(p: PricedLoop, loops: tuple[CodeLoop, ...]) -> tuple[CodeLoop, int]:
    """The loop that is nearest to a whole number of points, the largest of equal ones; these."""
    points = [max(1, round(x.multiply_adds / p.multiply_adds)) for x in loops]
    away = [abs(n * p.multiply_adds - x.multiply_adds) for n, x in zip(points, loops, strict=True)]
    at = away.index(min(away))
    return loops[at], points[at]
