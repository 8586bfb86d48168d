"""Program → Equalities: products of several values with one weight are parts of one product.

x w and y w are rows of concat(x, y) w, element by element the same sums: the weight is read once.
Any value that is larger than what it is multiplied with stands for a weight.
As a rule this feeds itself, as what it makes is a product with the weight again (319,613 e-nodes of
a program of three ops). So it is stated once per weight before the search. The other side of TASO's
merged products (Jia et al., SOSP 2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eqsat.model.equalities import Equalities
from eqsat.model.generic import Generic
from eqsat.model.program import Builder, Node, Program
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.moves import concat_of, slice_of

RULE = "stack-inputs"
_DOC = "products with one weight are parts of a product with what they read side by side"
MOST_STACKED = 8  # values side by side: rules are compiled once per number of operands


@dataclass(frozen=True)
class _OfWeight:
    """A contraction of a value with a weight; `rows` is the loop that only the value has."""

    node: int
    side: int  # which operand is the value
    value: int
    weight: int
    rows: int
    axis: int  # the dim of the value that `rows` walks along

    def key(self, n: Node) -> tuple[object, ...]:
        """Equal for products that can be parts of one: alike but for their rows."""
        g = n.attr
        assert isinstance(g, Generic)
        sizes = tuple(0 if d == self.rows else s for d, s in enumerate(g.sizes))
        same = (g.rank, g.maps, g.yields, g.dtypes, g.precision)
        return (self.weight, self.side, self.rows, sizes, *same)


def shared_weights(program: Program, first: int) -> Equalities | None:
    """What products of several values with one weight are equal to; numbered from `first` on.

    None if no weight is read by two products of which neither needs the other.
    """
    groups: dict[tuple[object, ...], list[_OfWeight]] = {}
    for i, n in enumerate(program.nodes):
        p = _product(program, i, n)
        if p is not None:
            groups.setdefault(p.key(n), []).append(p)
    b = Builder(program.name)
    b.nodes += program.nodes
    equal: list[tuple[int, int]] = []
    for group in groups.values():
        for some in _independent(program, group) if len(group) > 1 else ():
            equal += _stacked(b, program, some)
    if not equal:
        return None
    return Equalities.beside(RULE, _DOC, b.nodes, len(program.nodes), first, equal)


def _product(program: Program, i: int, n: Node) -> _OfWeight | None:
    g = n.attr
    if not isinstance(g, Generic) or g.tile or contraction_roles(g) is None or 0 in g.sizes:
        return None
    if len(n.operands) != 2 or len(set(n.operands)) != 2:
        return None
    at = _shared(program, n)
    if at is None:
        return None
    used = [d for m in g.maps for e in m for d, _ in e.terms]
    for axis, e in enumerate(g.maps[1 - at]):
        d = e.dim
        is_free = d is not None and d < g.rank and used.count(d) == 1
        if d is not None and is_free and g.shapes[1 - at][axis] == g.sizes[d]:
            return _OfWeight(i, 1 - at, n.operands[1 - at], n.operands[at], d, axis)
    return None


def _shared(program: Program, n: Node) -> int | None:
    """Which operand may be worth reading once: the weight, or else the larger one."""
    weights = [k for k, o in enumerate(n.operands) if program.nodes[o].op == "weight"]
    if len(weights) == 1:
        return weights[0]
    a, b = (math.prod(program.nodes[o].type.shape) for o in n.operands)
    at = int(b > a)
    return None if a == b or _is_part(program, n.operands[1 - at]) else at


def _is_part(program: Program, node: int) -> bool:
    """Whether this is a weight or a slice, seen through views: `likeparts` puts those together.

    Put together here they would be packed each by itself: 2 to the power of their number forms.
    """
    while program.nodes[node].op in ("reshape", "transpose"):
        (node,) = program.nodes[node].operands
    return program.nodes[node].op in ("weight", "slice")


def _independent(program: Program, group: Iterable[_OfWeight]) -> Iterator[list[_OfWeight]]:
    """Products of different values, none computed from another one; `MOST_STACKED` at a time."""
    found: list[_OfWeight] = []
    behind: set[int] = set()  # what needs one of them
    start = 0
    for p in group:
        for i in range(start, p.node):
            if not behind.isdisjoint(program.nodes[i].operands):
                behind.add(i)
        start = p.node
        if p.value in behind or any(p.value == q.value for q in found):
            continue
        found.append(p)
        behind.add(p.node)
    for k in range(0, len(found) - 1, MOST_STACKED):
        yield found[k : k + MOST_STACKED]


def _stacked(b: Builder, program: Program, some: list[_OfWeight]) -> list[tuple[int, int]]:
    """Write the product of all these values; each part of it and the product that it is."""
    if len(some) < 2:
        return []
    p, g = some[0], program.nodes[some[0].node].attr
    assert isinstance(g, Generic)
    join = concat_of([b.type(q.value).shape for q in some], p.axis)
    values = b.add("concat", tuple(q.value for q in some), join)
    sizes, shapes = list(g.sizes), list(g.shapes)
    sizes[p.rows], shapes[p.side] = join.shape[p.axis], join.shape
    whole = canonical_generic(
        sizes, range(g.rank), g.maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )
    operands = (values, p.weight) if p.side == 0 else (p.weight, values)
    product = b.add("generic", operands, whole)
    equal, start = [], 0
    for q in some:
        end = start + b.type(q.value).shape[p.axis]
        low, high = [0] * g.rank, list(whole.result_shape)
        low[p.rows], high[p.rows] = start, end
        cut = slice_of(whole.result_shape, low, high, [1] * g.rank)
        equal.append((b.add("slice", (product,), cut), q.node))
        start = end
    return equal
