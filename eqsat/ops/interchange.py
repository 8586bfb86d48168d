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
from eqsat.model.movement import Transpose
from eqsat.model.program import Builder, Program
from eqsat.model.target import Target
from eqsat.ops.contraction import contraction_roles, tile_dims
from eqsat.ops.lists import inverse, is_block_diagonal
from eqsat.ops.vocabulary import AttrFunction


def in_order(g: Generic, order: tuple[int, ...]) -> Generic:
    """The generic with its loops executed in this order; () is the canonical one."""
    return replace(g, order=() if order == tuple(range(len(order))) else order)


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
    new: list[int] = []
    for n in program.nodes:
        attr = n.attr
        if isinstance(attr, Generic | Transpose):
            attr = replace(attr, order=())
        new.append(b.add(n.op, tuple(new[o] for o in n.operands), attr))
    return b.build([new[r] for r in program.results], program.symbols)


def turning(t: Transpose, dtype: str) -> Generic:
    """A transpose as a generic in its order."""
    m = tuple(dim(i) for i in inverse(t.perm))
    body = Yield(arg(0), dtype)
    shape = t.result_shape
    return Generic(shape, len(shape), (m,), (t.source,), (body,), (), (dtype,), order=t.order)


def as_it_lies(perm: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order in which a transpose reads its operand as it lies; None if it does so already."""
    return None if list(perm) == sorted(perm) else inverse(perm)


# ---- who asks for an order -----------------------------------------------------------------------
def as_written(g: Generic, i: int, made: Generic) -> Generic | None:
    """A generic that is no contraction, in the order in which `made` writes its operand i."""
    return None if contraction_roles(g) is not None else _as_written(g, i, made)


def contraction_as_written(g: Generic, i: int, made: Generic) -> Generic | None:
    """The same for a contraction; it must read operand i by all of its loops."""
    return None if contraction_roles(g) is None else _as_written(g, i, made)


def _as_written(g: Generic, i: int, made: Generic) -> Generic | None:
    loops, outer = _walked(g, i, made), made.executed[: made.rank]
    if loops is None or any(d >= made.rank for d in outer):
        return None
    return _reordered(g, [loops[d] for d in outer])


def as_read(made: Generic, g: Generic, i: int) -> Generic | None:
    """A generic that is no contraction, in the order in which g reads its result as operand i."""
    return None if contraction_roles(made) is not None else _as_read(made, g, i)


def contraction_as_read(made: Generic, g: Generic, i: int) -> Generic | None:
    """The same for a contraction."""
    return None if contraction_roles(made) is None else _as_read(made, g, i)


def _as_read(made: Generic, g: Generic, i: int) -> Generic | None:
    loops = _walked(g, i, made)
    if loops is None:
        return None
    return _reordered(made, [*(loops.index(d) for d in g.executed), *made.reductions])


def _walked(g: Generic, i: int, made: Generic) -> list[int] | None:
    """The loop of g per dim of operand i, the result of `made`; None unless these are all loops."""
    if made.result_shape != g.shapes[i] or len(made.yields) != 1:
        return None
    loops = [-1 if e.dim is None else e.dim for e in g.maps[i]]
    return loops if sorted(loops) == list(range(len(g.sizes))) else None


def _reordered(g: Generic, order: list[int]) -> Generic | None:
    """A canonical generic in another order; a packed one keeps its tiles in one piece."""
    if g.order or order == sorted(order):
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
    found = {t.fusion.index_relation for t in machines}
    return next(r for r in ("identity", "permutation", "any") if r in found)


def _any_target() -> str:
    return "identity"


FUNCTIONS: dict[str, AttrFunction] = {
    "as_it_lies": AttrFunction(
        ("ints",), "ints", "the order of loops in which a transpose reads in order", as_it_lies
    ),
    "as_written": AttrFunction(
        ("sig", "int", "sig"),
        "sig",
        "no contraction, in the order in which another generic writes operand i",
        as_written,
        orders=True,
    ),
    "contraction_as_written": AttrFunction(
        ("sig", "int", "sig"),
        "sig",
        "a contraction in the order in which another generic writes operand i",
        contraction_as_written,
        orders=True,
    ),
    "as_read": AttrFunction(
        ("sig", "sig", "int"),
        "sig",
        "no contraction, in the order in which another generic reads it as operand i",
        as_read,
        orders=True,
    ),
    "contraction_as_read": AttrFunction(
        ("sig", "sig", "int"),
        "sig",
        "a contraction in the order in which another generic reads it as operand i",
        contraction_as_read,
        orders=True,
    ),
    "target.index_relation": AttrFunction(
        (), "str", "how the target wants loops of producers and readers to relate", _any_target
    ),
}
