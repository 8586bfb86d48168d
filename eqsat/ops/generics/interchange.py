"""The order in which a chosen generic executes its loops, and who asks for another one.

What comes in is a generic and one that it reads or that reads it; what goes out is the generic in
the order in which both walk the value between them alike. After IREE's GenericOp interchange.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.affine import Map, dim
from eqsat.model.attr import loop_order
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Builder, Program
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import contraction_roles, tile_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.access import LaneAccess, access, seen_as
from eqsat.ops.movement.lists import inverse, is_block_diagonal


def executed_map(g: Generic, m: Map) -> Map:
    """A map over canonical loops as one over the loops as they are executed, outermost first."""
    if not g.order:
        return m
    place = {d: i for i, d in enumerate(g.executed)}
    return tuple(e.rename(place) for e in m)


def without_orders(program: Program) -> Program:
    """The program as maths: an order that its author wrote is for the search to decide again."""
    if not any(loop_order(n.attr) for n in program.nodes):
        return program
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        attr = n.attr
        if isinstance(attr, Generic | Transpose):
            attr = replace(attr, order=())
        new[i] = b.add(n.op, tuple(new[o] for o in n.operands), attr)
    return b.build([new[r] for r in program.results], program.symbols)


def turning(t: Transpose, dtype: str) -> Generic:
    """A transpose as a generic in its order."""
    m = tuple(dim(i) for i in inverse(t.perm))
    body = Yield(arg(0), dtype)
    shape = t.result_shape
    return Generic(shape, len(shape), (m,), (t.source,), (body,), (), (dtype,), order=t.order)


# ---- who asks for an order -----------------------------------------------------------------------
def as_written(
    g: Generic, i: int, producer: Generic, view: Reshape | None = None
) -> Generic | None:
    """No contraction, in the order in which another generic writes operand i, or its view."""
    return None if contraction_roles(g) is not None else _as_written(g, i, producer, view)


def contraction_as_written(g: Generic, i: int, producer: Generic) -> Generic | None:
    """A contraction in the order in which another generic writes operand i."""
    return None if contraction_roles(g) is None else _as_written(g, i, producer, None)


def as_read(producer: Generic, g: Generic, i: int, view: Reshape | None = None) -> Generic | None:
    """No contraction, in the order in which another generic reads it, be it behind a view."""
    return None if contraction_roles(producer) is not None else _as_read(producer, g, i, view)


def contraction_as_read(
    producer: Generic, g: Generic, i: int, view: Reshape | None = None
) -> Generic | None:
    """A contraction in the order in which another generic reads it, be it behind a view."""
    return None if contraction_roles(producer) is None else _as_read(producer, g, i, view)


def _as_written(g: Generic, i: int, producer: Generic, view: Reshape | None) -> Generic | None:
    """In step with what `made` writes: its loops come in the order in which the dims name them."""
    seen, dims = _seen(g, i, producer, view), producer.executed[: producer.rank]
    if seen is None or any(d >= producer.rank for d in dims):
        return None
    named = [p.source for d in dims for p in seen.indices[d] if isinstance(p.source, int)]
    units = [d for d in range(len(g.sizes)) if d not in named]
    order = [*units, *dict.fromkeys(named)]
    return _reordered(g, order) if seen.is_in_step(order, dims) else None


def _as_read(producer: Generic, g: Generic, i: int, view: Reshape | None) -> Generic | None:
    """In step with what g reads: the dims come in the order of the loops that index them."""
    seen = _seen(g, i, producer, view)
    if seen is None:
        return None
    place = {d: n for n, d in enumerate(g.executed)}

    def first(dim: int) -> tuple[int, int]:
        part = next(iter(seen.indices[dim]), None)
        if part is None or not isinstance(part.source, int):
            return -1, 0  # of extent 1, or nothing that is in step
        return place[part.source], -part.div

    dims = sorted(range(producer.rank), key=first)
    return (
        _reordered(producer, [*dims, *producer.reductions])
        if seen.is_in_step(g.executed, dims)
        else None
    )


def _seen(g: Generic, i: int, producer: Generic, view: Reshape | None) -> LaneAccess | None:
    """How g reads the result of `made` as operand i, behind a view or not."""
    shown, source = (producer.result_shape,) * 2 if view is None else (view.shape, view.source)
    if len(producer.yields) != 1 or shown != g.shapes[i] or source != producer.result_shape:
        return None
    read = access("generic", g, i, shown)
    return None if read is None else seen_as(read, shown, source)


def _reordered(g: Generic, order: list[int]) -> Generic | None:
    """A canonical generic in another order; a packed one keeps its tiles in one piece."""
    wide = [d for d in order if g.sizes[d] > 1]
    if g.order or wide == sorted(wide):
        return None
    if g.tile and not _keeps_tiles(g, tuple(order)):
        return None
    return replace(g, order=tuple(order))


def _keeps_tiles(g: Generic, order: tuple[int, ...]) -> bool:
    """Whether blocks are walked among blocks and a tile in one piece, reductions innermost."""
    parallel, reduced = order[: g.rank], order[g.rank :]
    blocks = g.rank - tile_dims(g, None)
    return list(reduced) == list(g.reductions) and is_block_diagonal(parallel, blocks)


def index_relation(target: Target) -> str:
    """The strictest relation any device asks between the loops of a producer and its reader."""
    machines = [t for _, t in target.devices] or [target]
    relations = {t.fusion.index_relation for t in machines}
    return next(r for r in ("identity", "permutation", "any") if r in relations)


def _any_target() -> str:
    """How the target wants loops of producers and readers to relate."""
    return "identity"


FUNCTIONS = attr_functions(
    as_written, contraction_as_written, as_read, contraction_as_read, orders=True
) | attr_functions(("target.index_relation", _any_target))
