"""Program → Program: chains of elementwise ops become single generics before the search.

A producer that one op reads, over the same loops, is computed where it is read: nothing is
computed twice, no value is left in memory, and every dispatch that could be formed before can be
formed after. So the search space shrinks and its optimum stays (docs/decisions.md, 3).
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.affine import Map
from eqsat.model.expr import arg
from eqsat.model.generic import Generic
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.model.tensor import DTYPES
from eqsat.ops.canonical import compose, generic_node
from eqsat.ops.contraction import contraction_roles
from eqsat.ops.squeeze import drop_unit_dims
from eqsat.ops.trips import with_trips

MOST_OPERANDS = 6  # a rule is compiled once per arity and position


def canonical(program: Program) -> Program:
    """The program that is searched: without unit dims, elementwise chains merged, loops counted."""
    return with_trips(merge_elementwise(drop_unit_dims(program)))


def merge_elementwise(program: Program) -> Program:
    """The same program with single-use elementwise producers inside their consumers."""
    merged = _once(program)
    return merged if merged == program else merge_elementwise(merged)


def _once(program: Program) -> Program:
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in enumerate(program.nodes):
        operands = tuple(new[o] for o in n.operands)
        single = tuple(program.uses[o] == 1 for o in n.operands)
        new[i] = (
            _merged(b, n, operands, single) if _is_consumer(n) else b.add(n.op, operands, n.attr)
        )
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _is_consumer(n: Node) -> bool:
    g = n.attr
    return isinstance(g, Generic) and len(g.yields) == 1 and contraction_roles(g) is None


def _merged(b: Builder, n: Node, operands: tuple[int, ...], single: tuple[bool, ...]) -> int:
    g = n.attr
    assert isinstance(g, Generic)
    reads: list[tuple[int, Map]] = []
    bodies = {}
    budget = MOST_OPERANDS - len(operands)
    for j, (o, m) in enumerate(zip(operands, g.maps, strict=True)):
        p = b.nodes[o].attr
        if single[j] and isinstance(p, Generic) and _is_mergeable(p, g, m, budget):
            budget -= len(p.maps) - 1
            at = len(reads)
            reads += [
                (x, compose(inner, m)) for x, inner in zip(b.nodes[o].operands, p.maps, strict=True)
            ]
            bodies[j] = p.body.substitute({q: arg(at + q) for q in range(len(p.maps))})
        else:
            bodies[j] = arg(len(reads))
            reads.append((o, m))
    if len(reads) == len(operands) and all(
        x == o for (x, _), o in zip(reads, operands, strict=True)
    ):
        return b.add(n.op, operands, g)
    y = replace(g.yields[0], body=g.body.substitute(bodies))
    return generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)


def _is_mergeable(p: Generic, g: Generic, m: Map, budget: int) -> bool:
    """p is elementwise over exactly the loops of g and does not shrink what has to be kept."""
    if len(p.yields) != 1 or p.rank != len(p.sizes) or len(p.maps) - 1 > budget or not p.maps:
        return False
    loops = [e.dim for e in m]
    if None in loops or sorted(d for d in loops if d is not None) != list(range(len(g.sizes))):
        return False
    if tuple(g.sizes[d] for d in loops if d is not None) != p.sizes:
        return False
    # a cast to a narrower type stays: its result is the smaller thing to leave in memory
    widest = max(DTYPES[d][0] for d in p.dtypes)
    return DTYPES[p.yields[0].dtype][0] >= widest
