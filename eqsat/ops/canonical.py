"""Loops, maps and bodies as a caller found them → the one canonical `Generic` and its node.

Equal generics must be equal records, so that a hash-consed program and the e-graph see them as
one. The form is stated in `model.generic.Generic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from eqsat.model.affine import Affine, Map, affine, dim, loops_of
from eqsat.model.attr import Shape
from eqsat.model.bodytext import TextOrder
from eqsat.model.expr import BottomUp, Expr, arg, rebuilt
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder
from eqsat.ops.scalar import FUNCTIONS

Operand = tuple[int, Map]  # a node of the builder, and how the loops index it


def compose(inner: Map, outer: Sequence[Affine]) -> Map:
    """Put `outer[i]` in place of dim i of every expression of `inner`.

    compose((d0 + 2*d1,), [d3, d1]) = (2*d1 + d3,)
    """
    return tuple(_substitute(e, outer) for e in inner)


def _substitute(e: Affine, outer: Sequence[Affine]) -> Affine:
    terms: list[tuple[int, int]] = []
    constant = e.constant
    for d, stride in e.terms:
        constant += stride * outer[d].constant
        terms += [(loop, stride * s) for loop, s in outer[d].terms]
    return affine(terms, constant)


def identity(rank: int) -> Map:
    """The map d0 … d(rank-1)."""
    return tuple(dim(i) for i in range(rank))


def canonical_generic(
    sizes: Sequence[int],
    result_loops: Sequence[int],
    maps: Sequence[Map],
    shapes: Sequence[Shape],
    yields: Sequence[Yield],
    tile: tuple[int, ...] = (),
    dtypes: Sequence[str] = (),
    *,
    precision: str,
) -> Generic:
    """The canonical record of this loop nest; operands keep their order.

    precision: that of the contraction it is made of, NONE if it is made of none.

    Loops are renumbered: result dims first, then reductions as the operands first use them.
    Loops of extent 1 vanish from sums such as `d0 + d3`, and altogether if no operand names them.
    """
    plain = [tuple(_without_units(e, sizes) for e in m) for m in maps]
    order = _loop_order(sizes, result_loops, plain)
    new = {d: i for i, d in enumerate(order)}
    reduces = len(order) > len(result_loops)
    return Generic(
        tuple(sizes[d] for d in order),
        len(result_loops),
        tuple(tuple(e.rename(new) for e in m) for m in plain),
        tuple(tuple(s) for s in shapes),
        tuple(_canonical_yield(y, reduces) for y in yields),
        tile,
        tuple(dtypes),
        precision,
    )


def _without_units(e: Affine, sizes: Sequence[int]) -> Affine:
    if e.dim is not None:
        return e
    terms = tuple(t for t in e.terms if sizes[t[0]] != 1)
    if not terms and e.terms and e.constant == 0:
        return dim(e.terms[0][0])
    return Affine(terms, e.constant)


def _loop_order(sizes: Sequence[int], result_loops: Sequence[int], maps: list[Map]) -> list[int]:
    order = list(result_loops)
    for m in maps:
        for e in m:
            # within one sum the loop numbers of the caller must not decide
            terms = sorted(e.terms, key=lambda t: (abs(t[1]), sizes[t[0]], t))
            order += [d for d, _ in terms if d not in order]
    rest = [d for d in range(len(sizes)) if d not in order and sizes[d] != 1]
    return order + sorted(rest, key=lambda d: sizes[d])


def _canonical_yield(y: Yield, reduces: bool) -> Yield:
    return Yield(canonical_body(y.body), y.dtype, y.combine if reduces else "")


# bodies grow out of canonical parts when programs are read and merged: these are not walked again
_canonical: WeakSet[Expr] = WeakSet()


def canonical_body(e: Expr) -> Expr:
    """The body with the arguments of commutative functions in order, constants last."""
    order = TextOrder()

    def position(e: Expr) -> tuple[bool, tuple[int, ...], Any]:
        return not e.operands(), e.operands(), order.key(e)

    def parts(e: Expr) -> tuple[Expr, ...]:
        return () if e in _canonical else e.args

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        if not args:
            return e
        known = FUNCTIONS.get(e.fn)
        if known is not None and known.commutative:
            args = sorted(args, key=position)
        found = rebuilt(e, args)
        _canonical.add(found)
        return found

    return BottomUp(step, parts)(e)


def generic_node(
    builder: Builder,
    sizes: Sequence[int],
    result_loops: Sequence[int],
    operands: Sequence[Operand],
    yields: Sequence[Yield],
    *,
    precision: str,
) -> int:
    """The node of this loop nest in `builder`; bodies number the operands as given.

    Equal operands are merged, unread ones dropped, the two sides of a commutative body put in
    order, and a plain copy of a whole operand is that operand.
    """
    kept, bodies = _merge(operands, yields)
    best = _build(builder, sizes, result_loops, kept, bodies, precision)
    if _is_swappable(bodies, len(kept)):
        swapped = [_swapped(y) for y in bodies]
        other = _build(builder, sizes, result_loops, kept[::-1], swapped, precision)
        best = min(best, other, key=_operand_order)
    nodes, attr = best
    if _is_copy(builder, nodes, attr):
        return nodes[0]
    return builder.add("generic", nodes, attr)


def _merge(
    operands: Sequence[Operand], yields: Sequence[Yield]
) -> tuple[list[Operand], list[Yield]]:
    used = sorted({o for y in yields for o in y.body.operands()})
    kept = list(dict.fromkeys(operands[i] for i in used))
    new = {i: arg(kept.index(operands[i])) for i in used}
    return kept, [replace(y, body=y.body.substitute(new)) for y in yields]


def _swapped(y: Yield) -> Yield:
    """The yield with operands 0 and 1 exchanged in its body."""
    return replace(y, body=y.body.substitute({0: arg(1), 1: arg(0)}))


def _is_swappable(yields: list[Yield], operands: int) -> bool:
    if operands != 2 or len(yields) != 1:
        return False
    body = yields[0].body
    known = FUNCTIONS.get(body.fn)
    return known is not None and known.commutative


def _build(
    builder: Builder,
    sizes: Sequence[int],
    result_loops: Sequence[int],
    operands: Sequence[Operand],
    yields: Sequence[Yield],
    precision: str,
) -> tuple[tuple[int, ...], Generic]:
    shapes = [builder.type(n).shape for n, _ in operands]
    maps = [m for _, m in operands]
    dtypes = [builder.type(n).dtype for n, _ in operands]
    attr = canonical_generic(
        sizes, result_loops, maps, shapes, yields, (), dtypes, precision=precision
    )
    return tuple(n for n, _ in operands), attr


def _operand_order(candidate: tuple[tuple[int, ...], Generic]) -> tuple[object, ...]:
    nodes, attr = candidate
    # the operand of the earlier result dims first, so that m loops come before n loops
    loops = tuple(tuple(sorted(loops_of(m))) for m in attr.maps)
    maps = tuple(tuple((e.terms, e.constant) for e in m) for m in attr.maps)
    return loops, maps, nodes, TextOrder().key(attr.body)


def _is_copy(builder: Builder, nodes: tuple[int, ...], attr: Generic) -> bool:
    if len(nodes) != 1 or len(attr.yields) != 1 or attr.body != arg(0):
        return False
    source = builder.type(nodes[0])
    return (
        attr.maps[0] == identity(attr.rank)
        and len(attr.sizes) == attr.rank
        and source.shape == attr.result_shape
        and source.dtype == attr.yields[0].dtype
    )
