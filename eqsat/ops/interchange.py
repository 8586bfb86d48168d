"""The order in which a chosen generic executes its parallel loops, and who asks for another one.

What comes in is a generic and one that it reads or that reads it; what goes out is the generic in
the order in which both walk the value between them alike. After IREE's GenericOp interchange.
Reductions stay innermost, as there.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.affine import Map
from eqsat.model.generic import Generic
from eqsat.model.program import Builder, Program
from eqsat.model.target import Target
from eqsat.ops.contraction import contraction_roles, tile_dims
from eqsat.ops.lists import is_block_diagonal
from eqsat.ops.vocabulary import AttrFunction


def in_order(g: Generic, order: tuple[int, ...]) -> Generic:
    """The generic with its parallel loops executed in this order."""
    return replace(g, order=() if order == tuple(range(g.rank)) else order)


def executed_map(g: Generic, m: Map) -> Map:
    """A map over canonical loops as one over the loops as they are executed, outermost first."""
    if not g.order:
        return m
    place = {d: i for i, d in enumerate(g.executed)}
    return tuple(e.rename(place) for e in m)


def without_orders(program: Program) -> Program:
    """The program as maths: an order that its author wrote is for the search to decide again."""
    if not any(isinstance(n.attr, Generic) and n.attr.order for n in program.nodes):
        return program
    b = Builder(program.name)
    new: list[int] = []
    for n in program.nodes:
        attr = in_order(n.attr, ()) if isinstance(n.attr, Generic) else n.attr
        new.append(b.add(n.op, tuple(new[o] for o in n.operands), attr))
    return b.build([new[r] for r in program.results], program.symbols)


# ---- who asks for an order -----------------------------------------------------------------------
def as_written(g: Generic, i: int, made: Generic) -> Generic | None:
    """A generic that is no contraction, in the order in which `made` writes its operand i."""
    return None if contraction_roles(g) is not None else _as_written(g, i, made)


def contraction_as_written(g: Generic, i: int, made: Generic) -> Generic | None:
    """The same for a contraction; it must read operand i by all of its loops."""
    return None if contraction_roles(g) is None else _as_written(g, i, made)


def _as_written(g: Generic, i: int, made: Generic) -> Generic | None:
    loops = _walked(g, i, made)
    if loops is None:
        return None
    order = [loops[d] for d in made.executed[: made.rank]]
    return _reordered(g, order[: g.rank]) if order[g.rank :] == list(g.reductions) else None


def as_read(made: Generic, g: Generic, i: int) -> Generic | None:
    """A generic that is no contraction, in the order in which g reads its result as operand i."""
    return None if contraction_roles(made) is not None else _as_read(made, g, i)


def contraction_as_read(made: Generic, g: Generic, i: int) -> Generic | None:
    """The same for a contraction."""
    return None if contraction_roles(made) is None else _as_read(made, g, i)


def _as_read(made: Generic, g: Generic, i: int) -> Generic | None:
    loops = _walked(g, i, made)
    return None if loops is None else _reordered(made, [loops.index(d) for d in g.executed])


def _walked(g: Generic, i: int, made: Generic) -> list[int] | None:
    """The loop of g per dim of operand i, the result of `made`; None unless these are all loops."""
    if made.result_shape != g.shapes[i] or len(made.yields) != 1:
        return None
    loops = [-1 if e.dim is None else e.dim for e in g.maps[i]]
    return loops if sorted(loops) == list(range(len(g.sizes))) else None


def _reordered(g: Generic, order: list[int]) -> Generic | None:
    """A canonical generic in another order; a packed one keeps its tiles in one piece."""
    if g.order or order == list(range(g.rank)):
        return None
    if g.tile and not is_block_diagonal(tuple(order), g.rank - tile_dims(g, None)):
        return None
    return replace(g, order=tuple(order))


def index_relation(target: Target) -> str:
    """The strictest relation any device asks between the loops of a producer and its reader."""
    machines = [t for _, t in target.devices] or [target]
    found = {t.fusion.index_relation for t in machines}
    return next(r for r in ("identity", "permutation", "any") if r in found)


def _any_target() -> str:
    return "identity"


FUNCTIONS: dict[str, AttrFunction] = {
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
