"""Program → Equalities: products that are alike but for one operand are parts of one product.

x w and y w are rows of concat(x, y) w, and x a, x b, … are columns of x concat(a, b, …), element by
element the same sums: what they share is read once. After TASO's merged products (Jia et al., SOSP
2019). Ops on parts of one value are `horizontal_fusion`.

As a rule the first feeds itself, as what it makes is a product with the weight again (319,613
e-nodes of a program of three ops); of the second, rules (`algebra/merge`) take pairs and triples,
n² and n³ of n weights. So both are stated once, before the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from eqsat.model.affine import Affine, Map
from eqsat.model.attr import Shape
from eqsat.model.equalities import Equalities
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.program import Builder, Node, Program
from eqsat.ops.algebra.siblings import OneOfSiblings, sibling, stacked_siblings
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import canonical_generic, generic_node
from eqsat.ops.movement.moves import concat_of, slice_of

OF_VALUES, OF_WEIGHTS = "stack-inputs", "stack-weights"
_DOCS = {
    OF_VALUES: "products with one weight are parts of a product with what they read side by side",
    OF_WEIGHTS: "products of one value with many weights are parts of a product with the weights"
    " side by side",
}
MOST_AT_ONCE = 8  # side by side: rules are compiled once per number of operands
FEWEST_WEIGHTS = 4  # fewer are for rules, which also see what other rules made
# numbers of a weight per number of its product; of 128 rows and weights of 256 x 256 two products
# took 346 us and one that is cut up again 363 (decision 150)
FEW_ROWS = 16

Product = tuple[int, OneOfSiblings]  # its node


@dataclass(frozen=True)
class _Part:
    """Where a product lies in that of all weights: dim d of it is dim `dims[d]` there, from
    `start[d]` on."""

    whole: int
    dims: tuple[int, ...]
    start: tuple[int, ...]

    def read(self, m: Map) -> Map:
        """The whole, as a reader of that product reads it."""
        index = {
            w: Affine(e.terms, e.constant + s)
            for w, e, s in zip(self.dims, m, self.start, strict=True)
        }
        return tuple(index[w] for w in sorted(index))


def _slice(b: Builder, part: _Part, shape: Shape) -> int:
    low, high = [0] * len(shape), [0] * len(shape)
    for w, start, size in zip(part.dims, part.start, shape, strict=True):
        low[w], high[w] = start, start + size
    move = slice_of(b.type(part.whole).shape, low, high, [1] * len(shape))
    cut = b.add("slice", (part.whole,), move)
    return _turned(b, cut, part.dims if sorted(part.dims) != list(part.dims) else None)


def _turned(b: Builder, node: int, perm: tuple[int, ...] | None) -> int:
    if perm is None:
        return node
    return b.add("transpose", (node,), Transpose(b.type(node).shape, perm))


# ---- values of one weight ------------------------------------------------------------------------
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
    """Equalities of products of several values with one weight; numbered from `first` on.

    None if no weight is read by two products of which neither needs the other.
    """
    groups: dict[tuple[object, ...], list[_OfWeight]] = {}
    for i, n in enumerate(program.nodes):
        p = _of_weight(program, i, n)
        if p is not None:
            groups.setdefault(p.key(n), []).append(p)
    b = Builder(program.name)
    b.nodes += program.nodes
    equal: list[tuple[int, int]] = []
    for group in groups.values():
        for some in _independent(program, group) if len(group) > 1 else ():
            equal += _rows(b, program, some)
    if not equal:
        return None
    return Equalities.beside(OF_VALUES, _DOCS[OF_VALUES], b.nodes, len(program.nodes), first, equal)


def _of_weight(program: Program, i: int, n: Node) -> _OfWeight | None:
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
    """Whether this is a weight or a slice, seen through views, which `horizontal_fusion` fuses.

    Put together here they would be packed each by itself: 2 to the power of their number forms.
    """
    while program.nodes[node].op in ("reshape", "transpose"):
        (node,) = program.nodes[node].operands
    return program.nodes[node].op in ("weight", "slice")


def _independent(program: Program, group: Iterable[_OfWeight]) -> Iterator[list[_OfWeight]]:
    """Products of different values, none computed from another one; `MOST_AT_ONCE` at a time."""
    chosen: list[_OfWeight] = []
    behind: set[int] = set()  # what needs one of them
    start = 0
    for p in group:
        for i in range(start, p.node):
            if not behind.isdisjoint(program.nodes[i].operands):
                behind.add(i)
        start = p.node
        if p.value in behind or any(p.value == q.value for q in chosen):
            continue
        chosen.append(p)
        behind.add(p.node)
    for k in range(0, len(chosen) - 1, MOST_AT_ONCE):
        yield chosen[k : k + MOST_AT_ONCE]


def _rows(b: Builder, program: Program, some: list[_OfWeight]) -> Iterator[tuple[int, int]]:
    """Write the product of all these values; each part of it and the product that it is."""
    if len(some) < 2:
        return
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
    product, start = b.add("generic", operands, whole), 0
    for q in some:
        starts = tuple(start if d == p.rows else 0 for d in range(g.rank))
        yield _slice(b, _Part(product, tuple(range(g.rank)), starts), b.type(q.node).shape), q.node
        start += b.type(q.value).shape[p.axis]


# ---- weights of one value ------------------------------------------------------------------------
def weights_of_one(
    program: Program, first: int, place: Callable[[int], Hashable] = lambda node: None
) -> Equalities | None:
    """Equalities of products of one value with many weights; numbered from `first` on.

    place: of a node; only products of one place are put together. None if there are no such.
    """
    b = Builder(program.name)
    b.nodes += program.nodes
    parts: dict[int, _Part] = {}
    for group in _groups(program, place):
        for some in _at_once(group):
            parts |= _columns(b, some)
    if not parts:
        return None
    equal = [*_readers(b, program, parts)]
    count = len(program.nodes)
    equalities = Equalities.beside(OF_WEIGHTS, _DOCS[OF_WEIGHTS], b.nodes, count, first, equal)
    return replace(equalities, is_open=False)


def _groups(program: Program, place: Callable[[int], Hashable]) -> Iterator[list[Product]]:
    """Products that may be parts of one, in the order of the program."""
    groups: dict[Hashable, list[Product]] = {}
    for i, n in enumerate(program.nodes):
        product = _product(program, i)
        if product is not None:
            value, p = product
            groups.setdefault((value, place(i), _key(p), n.types[0].dtype), []).append((i, p))
    return (g for g in groups.values() if len(g) >= FEWEST_WEIGHTS)


def _product(program: Program, node: int) -> tuple[int, OneOfSiblings] | None:
    """The value that is multiplied and the product, if one operand alone is a weight and large."""
    n = program.nodes[node]
    if not isinstance(n.attr, Generic) or len(n.operands) != 2:
        return None
    weights = [k for k, o in enumerate(n.operands) if program.nodes[o].op == "weight"]
    if len(weights) != 1:
        return None
    (side,) = weights
    leaf = program.nodes[n.operands[side]].attr
    if not isinstance(leaf, Leaf) or leaf.layout is not None:
        return None
    if math.prod(leaf.type.shape) < FEW_ROWS * math.prod(n.types[0].shape):
        return None
    p = sibling(n.attr, leaf, side)
    return None if p is None else (n.operands[1 - side], p)


def _key(p: OneOfSiblings) -> Hashable:
    """Equal for products that can be parts of one: alike but for one extent of the weight."""
    sizes = p.sizes[: p.rank] if len(p.n) == 1 else p.sizes
    same = (p.x, p.x_shape, p.parallel, len(p.n), sizes, tuple(sorted(p.w)))
    return (*same, p.body, p.dtypes, p.precision)


def _at_once(group: Sequence[Product]) -> Iterator[Sequence[Product]]:
    """As few parts as `MOST_AT_ONCE` allows, alike in length; a weight once."""
    once = list({p.leaf: (i, p) for i, p in group}.values())
    count = -(-len(once) // MOST_AT_ONCE)
    ends = [len(once) * k // count for k in range(count + 1)]
    for low, high in pairwise(ends):
        yield once[low:high]


def _columns(b: Builder, some: Sequence[Product]) -> dict[int, _Part]:
    """Write the product with all these weights; which part of it each of them is."""
    whole = stacked_siblings([p for _, p in some])
    if whole is None:
        return {}
    nodes = [some[i][0] for i in whole.order]
    weights = []
    for i, perm in zip(nodes, whole.weight_perms, strict=True):
        (weight,) = (o for o in b.nodes[i].operands if b.nodes[o].op == "weight")
        weights.append(_turned(b, weight, perm))
    (value,) = (o for o in b.nodes[nodes[0]].operands if b.nodes[o].op != "weight")
    stack = b.add("concat", tuple(weights), whole.concat)
    product = b.add("generic", (value, stack), whole.sig)
    parts = {}
    for i, cut, perm in zip(nodes, whole.slices, whole.perms, strict=True):
        dims = perm or tuple(range(len(cut.shape)))
        parts[i] = _Part(product, dims, tuple(cut.args[0][d] for d in dims))
    return parts


def _readers(b: Builder, program: Program, parts: Mapping[int, _Part]) -> Iterator[tuple[int, int]]:
    """Ops on parts as ops on the whole, and parts that others read as slices of it.

    An op without a sum reads where it needs to: no slice is one more choice of the search.
    """
    cut = {r for r in program.results if r in parts}
    for i, n in enumerate(program.nodes):
        reads = [o for o in n.operands if o in parts]
        if not reads:
            continue
        g = n.attr
        if isinstance(g, Generic) and g.is_elementwise and not g.tile and len(g.yields) == 1:
            seen = [
                (parts[o].whole, parts[o].read(m)) if o in parts else (o, m)
                for o, m in zip(n.operands, g.maps, strict=True)
            ]
            loops = range(g.rank)
            yield generic_node(b, g.sizes, loops, seen, g.yields, precision=g.precision), i
        else:
            cut.update(reads)
    for i in sorted(cut):
        yield _slice(b, parts[i], b.type(i).shape), i
