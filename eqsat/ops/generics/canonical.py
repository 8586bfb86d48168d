"""Loops, maps and bodies as a caller found them → the one canonical `Generic` and its node.

Equal generics must be equal records, so that a hash-consed program and the e-graph see them as
one. The form is stated in `model.generic.Generic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import WeakSet

from eqsat.model.affine import Affine, Map, affine, dim, map_loops
from eqsat.model.attr import Shape
from eqsat.model.expr import BottomUp, Expr, TextOrder, arg, rebuilt
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.scalar import FUNCTIONS

Operand = tuple[int, Map]  # a node of the builder, and how the loops index it


def compose_maps(inner: Map, outer: Sequence[Affine]) -> Map:
    """Put `outer[i]` in place of dim i of every expression of `inner`.

    compose((d0 + 2*d1,), [d3, d1]) = (2*d1 + d3,)
    """
    return _composed(inner, tuple(outer))


@lru_cache(maxsize=10_000)
def _composed(inner: Map, outer: Map) -> Map:
    return tuple(_substitute(e, outer) for e in inner)


def _substitute(e: Affine, outer: Sequence[Affine]) -> Affine:
    terms: list[tuple[int, int]] = []
    constant = e.constant
    for d, stride in e.terms:
        constant += stride * outer[d].constant
        terms += [(loop, stride * s) for loop, s in outer[d].terms]
    return affine(terms, constant)


@lru_cache(maxsize=100)
def identity(rank: int) -> Map:
    """The map d0 … d(rank-1)."""
    return tuple(dim(i) for i in range(rank))


def anywhere(m: Map) -> Map:
    """A map for an operand that is not read: element 0."""
    return tuple(Affine(()) for _ in m)


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
    nest = _nest(tuple(sizes), tuple(result_loops), tuple(maps), tuple(map(tuple, shapes)))
    bodies = [canonical_body(y.body) for y in yields]
    return nest.generic(bodies, yields, tile, tuple(dtypes), precision)


def without_operand(g: Generic, i: int, bodies: Sequence[Expr], precision: str) -> Generic:
    """The generic without operand i, with a body per result, none of which reads it."""
    others = [j for j in range(len(g.maps)) if j != i]
    new = {j: arg(n) for n, j in enumerate(others)}
    yields = [replace(y, body=b.substitute(new)) for y, b in zip(g.yields, bodies, strict=True)]
    return canonical_generic(
        g.sizes, range(g.rank), [g.maps[j] for j in others], [g.shapes[j] for j in others], yields,
        g.tile, [g.dtypes[j] for j in others], precision=precision,
    )  # fmt: skip


@dataclass(frozen=True)
class _LoopNest:
    """A canonical loop nest without its bodies: programs repeat few of them."""

    sizes: Shape
    rank: int
    maps: tuple[Map, ...]
    shapes: tuple[Shape, ...]

    def generic(
        self,
        bodies: Sequence[Expr],
        yields: Sequence[Yield],
        tile: tuple[int, ...],
        dtypes: tuple[str, ...],
        precision: str,
    ) -> Generic:
        """With these canonical bodies; types and combines are those of `yields`."""
        reduces = len(self.sizes) > self.rank
        combined = tuple(
            Yield(b, y.dtype, y.combine if reduces else "")
            for b, y in zip(bodies, yields, strict=True)
        )
        return Generic(
            self.sizes, self.rank, self.maps, self.shapes, combined, tile, dtypes, precision
        )


@lru_cache(maxsize=10_000)
def _nest(
    sizes: Shape, result_loops: tuple[int, ...], maps: tuple[Map, ...], shapes: tuple[Shape, ...]
) -> _LoopNest:
    plain = [tuple(_without_units(e, sizes) for e in m) for m in maps]
    order = _loop_order(sizes, result_loops, plain)
    new = {d: i for i, d in enumerate(order)}
    renamed = tuple(tuple(e.rename(new) for e in m) for m in plain)
    return _LoopNest(tuple(sizes[d] for d in order), len(result_loops), renamed, shapes)


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


# bodies grow out of canonical parts when programs are read and merged: these are not walked again
_canonical: WeakSet[Expr] = WeakSet()


def canonical_body(e: Expr) -> Expr:
    """The body with the arguments of commutative functions in order, constants last."""
    if e in _canonical or not e.args:
        return e
    order = TextOrder()

    def parts(e: Expr) -> tuple[Expr, ...]:
        return () if e in _canonical else e.args

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        return _ordered(e, args, order) if args else e

    if not any([a.args for a in e.args]):  # as most bodies that are read: nothing to walk
        return _ordered(e, e.args, order)
    return BottomUp(step, parts)(e)


def _ordered(e: Expr, args: Sequence[Expr], order: TextOrder) -> Expr:
    """The function of these canonical arguments."""
    function = FUNCTIONS.get(e.fn)

    def position(e: Expr) -> tuple[bool, tuple[int, ...], Any]:
        return not e.operands(), e.operands(), order.key(e)

    if function is not None and function.commutative:
        args = sorted(args, key=position)
    result = rebuilt(e, args)
    _canonical.add(result)
    return result


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
    nodes = [n for n, _ in operands]
    nest = planned_nest(
        tuple(sizes),
        tuple(result_loops),
        tuple([m for _, m in operands]),
        tuple([builder.type(n) for n in nodes]),
        order_of(nodes),
        tuple(yields),
        precision,
    )
    return nest.node(builder, nodes)


def order_of(nodes: Sequence[int]) -> tuple[int, ...]:
    """The place of each of these nodes among them: which are equal, and which is the earlier."""
    distinct = sorted(set(nodes))
    return tuple([distinct.index(n) for n in nodes])


@dataclass(frozen=True)
class PlannedNest:
    """Canonical generic of a loop nest on any operands of these types in this order."""

    attr: Generic
    operands: tuple[int, ...]  # the operands that are left
    is_copy: bool  # of a whole operand

    def node(self, builder: Builder, nodes: Sequence[int]) -> int:
        """The node of the nest on these operands."""
        if self.is_copy:
            return nodes[self.operands[0]]
        return builder.add("generic", tuple([nodes[i] for i in self.operands]), self.attr)


@lru_cache(maxsize=5_000)  # equal ops of a program share one record: made and verified once
def planned_nest(
    sizes: Shape,
    result_loops: tuple[int, ...],
    maps: tuple[Map, ...],
    types: tuple[TensorType, ...],
    order: tuple[int, ...],
    yields: tuple[Yield, ...],
    precision: str,
) -> PlannedNest:
    """A loop nest over operands of these types; order: that of their nodes, see `order_of`."""
    used = tuple(sorted({o for y in yields for o in y.body.operands()}))
    plans = _plans(sizes, result_loops, maps, types, order, used, _is_swappable(yields))
    variants = [(_generic(plan, yields, precision), plan) for plan in plans]
    # of two nests that nothing else tells apart the bodies decide
    by_text = TextOrder().key
    attr, plan = (
        variants[0] if len(variants) == 1 else min(variants, key=lambda m: by_text(m[0].body))
    )
    return PlannedNest(attr, plan.operands, _is_copy([types[i] for i in plan.operands], attr))


@dataclass(frozen=True)
class _OperandPlan:
    """Operands of a loop nest in canonical order: which are left, and what each is then."""

    nest: _LoopNest
    dtypes: tuple[str, ...]
    operands: tuple[int, ...]
    new: tuple[tuple[int, Expr], ...]  # operand as given → as it is called in the bodies


@lru_cache(maxsize=10_000)
def _plans(
    sizes: Shape,
    result_loops: tuple[int, ...],
    maps: tuple[Map, ...],
    types: tuple[TensorType, ...],
    nodes: tuple[int, ...],
    used: tuple[int, ...],
    is_swappable: bool,
) -> tuple[_OperandPlan, ...]:
    """The plan for operands that bodies use, or two that are equally good; nodes: their order."""
    first: dict[tuple[int, Map], int] = {}
    for i in used:
        first.setdefault((nodes[i], maps[i]), i)
    distinct = tuple(first.values())

    def plan(distinct: tuple[int, ...]) -> _OperandPlan:
        place = {(nodes[i], maps[i]): k for k, i in enumerate(distinct)}
        new = tuple((i, arg(place[nodes[i], maps[i]])) for i in used)
        shapes = tuple(types[i].shape for i in distinct)
        nest = _nest(sizes, result_loops, tuple(maps[i] for i in distinct), shapes)
        return _OperandPlan(nest, tuple(types[i].dtype for i in distinct), distinct, new)

    def order(p: _OperandPlan) -> tuple[object, ...]:
        # the operand of the earlier result dims first, so that m loops come before n loops
        loops = tuple(tuple(sorted(map_loops(m))) for m in p.nest.maps)
        terms = tuple(tuple((e.terms, e.constant) for e in m) for m in p.nest.maps)
        return loops, terms, tuple(nodes[i] for i in p.operands)

    plans = (
        [plan(distinct), plan(distinct[::-1])]
        if is_swappable and len(distinct) == 2
        else [plan(distinct)]
    )
    best = min(map(order, plans))
    return tuple(p for p in plans if order(p) == best)


def _generic(plan: _OperandPlan, yields: Sequence[Yield], precision: str) -> Generic:
    new = dict(plan.new)
    bodies = [canonical_body(y.body.substitute(new)) for y in yields]
    return plan.nest.generic(bodies, yields, (), plan.dtypes, precision)


def _is_swappable(yields: Sequence[Yield]) -> bool:
    """Whether the body stays what it is if its two operands change places in it."""
    if len(yields) != 1:
        return False
    function = FUNCTIONS.get(yields[0].body.fn)
    return function is not None and function.commutative


def _is_copy(types: Sequence[TensorType], attr: Generic) -> bool:
    if len(types) != 1 or len(attr.yields) != 1 or attr.body != arg(0):
        return False
    source = types[0]
    return (
        attr.maps[0] == identity(attr.rank)
        and len(attr.sizes) == attr.rank
        and source.shape == attr.result_shape
        and source.dtype == attr.yields[0].dtype
    )
