"""Reductions in two steps as reductions in one: exact where the order of its steps decides nothing.

Maxima, minima, conjunctions, disjunctions, and sums and products of integers, which wrap, may be
taken in any order. Sums of floats may not: for these there is a rule that is marked `inexact`.
"""

from __future__ import annotations

from dataclasses import replace

from eqsat.model.affine import dim
from eqsat.model.expr import arg
from eqsat.model.generic import Generic
from eqsat.model.precision import NONE
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.model.tensor import is_float
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps

ORDERLESS = ("max", "min", "and", "or")  # of any element type


def without_nested_reductions(program: Program) -> Program:
    """The program with exact reductions of reductions as one, if nothing else reads the first."""
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        found = _joined(b, n, operands) if len(operands) == 1 else None
        alone = found is not None and program.uses[n.operands[0]] == 1
        new[i] = b.add("generic", *found) if alone and found else b.move(n, operands)
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _joined(
    b: Builder, n: Node, operands: tuple[int, ...]
) -> tuple[tuple[int, ...], Generic] | None:
    inner = b.nodes[operands[0]]
    if not isinstance(n.attr, Generic) or not isinstance(inner.attr, Generic):
        return None
    found = join_reductions(n.attr, inner.attr)
    return None if found is None else (inner.operands, found)


def join_reductions(g: Generic, e: Generic) -> Generic | None:
    """g reduces what e has reduced in the same way: both loops in one, if that is exact."""
    found = join_sums(g, e)
    is_exact = g.combine in ORDERLESS or not is_float(g.yields[0].dtype)
    return found if found is not None and is_exact else None


def join_sums(g: Generic, e: Generic) -> Generic | None:
    """The same, up to the order of the steps."""
    if any(len(x.yields) != 1 or x.tile or x.rank == len(x.sizes) for x in (g, e)):
        return None
    outer, inner = g.yields[0], e.yields[0]
    loops = [a.dim for a in g.maps[0]] if len(g.maps) == 1 else [None]
    is_whole = None not in loops and len(set(loops)) == len(loops) and g.shapes[0] == tuple(
        g.sizes[d] for d in loops if d is not None
    )  # fmt: skip
    same = outer.body == arg(0) and (outer.combine, outer.dtype) == (inner.combine, inner.dtype)
    if not is_whole or not same or contraction_roles(e) is not None:
        return None
    sizes = (*g.sizes, *(e.sizes[d] for d in e.reductions))
    at = [*g.maps[0], *(dim(len(g.sizes) + k) for k in range(len(e.reductions)))]
    maps = [compose_maps(m, at) for m in e.maps]
    return canonical_generic(
        sizes, range(g.rank), maps, e.shapes, [replace(inner)], (), e.dtypes, precision=NONE
    )


FUNCTIONS = attr_functions(join_sums)
