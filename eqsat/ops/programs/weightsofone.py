"""Program → Equalities: products of one value with many weights are parts of one product.

Eight gates of a recurrent cell, up-projections of experts: x a, x b, … are columns of
x concat(a, b, …), element by element the same sums. Rules (`algebra/merge`) take pairs and triples;
of n weights these are n² and n³, and none of them is all of them. So more than three are stated
once, beside what rules find, and only where weights are far larger than what is made of them: a
batch of rows gains nothing by the clock. After TASO's merged products (Jia et al., SOSP 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from eqsat.model.affine import Affine, Map
from eqsat.model.attr import Shape
from eqsat.model.equalities import Equalities
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.program import Builder, Program
from eqsat.ops.algebra.siblings import OneOfSiblings, sibling, stacked_siblings
from eqsat.ops.generics.canonical import generic_node
from eqsat.ops.movement.moves import slice_of

RULE = "stack-weights"
_DOC = (
    "products of one value with many weights are parts of a product with the weights side by side"
)
FEWEST_WEIGHTS = 4  # fewer are for rules, which also see what other rules made
MOST_AT_ONCE = 8  # weights side by side, as `stack-inputs` has values
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
        found = {
            w: Affine(e.terms, e.constant + s)
            for w, e, s in zip(self.dims, m, self.start, strict=True)
        }
        return tuple(found[w] for w in sorted(found))


def weights_of_one(
    program: Program, first: int, place: Callable[[int], Hashable] = lambda node: None
) -> Equalities | None:
    """What products of one value with many weights are equal to; numbered from `first` on.

    place: of a node; only products of one place are put together. None if there are no such.
    """
    b = Builder(program.name)
    b.nodes += program.nodes
    parts: dict[int, _Part] = {}
    for group in _groups(program, place):
        for some in _at_once(group):
            parts |= _stacked(b, some)
    if not parts:
        return None
    equal = [*_readers(b, program, parts)]
    count = len(program.nodes)
    return replace(Equalities.beside(RULE, _DOC, b.nodes, count, first, equal), is_open=False)


def _groups(program: Program, place: Callable[[int], Hashable]) -> Iterator[list[Product]]:
    """Products that may be parts of one, in the order of the program."""
    groups: dict[Hashable, list[Product]] = {}
    for i, n in enumerate(program.nodes):
        found = _product(program, i)
        if found is not None:
            value, p = found
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


def _stacked(b: Builder, some: Sequence[Product]) -> dict[int, _Part]:
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
    found = {}
    for i, cut, perm in zip(nodes, whole.slices, whole.perms, strict=True):
        dims = perm or tuple(range(len(cut.shape)))
        found[i] = _Part(product, dims, tuple(cut.args[0][d] for d in dims))
    return found


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


def _slice(b: Builder, part: _Part, shape: Shape) -> int:
    low, high = [0] * len(shape), [0] * len(shape)
    for w, start, size in zip(part.dims, part.start, shape, strict=True):
        low[w], high[w] = start, start + size
    move = slice_of(b.type(part.whole).shape, low, high, [1] * len(shape))
    made = b.add("slice", (part.whole,), move)
    return _turned(b, made, part.dims if sorted(part.dims) != list(part.dims) else None)


def _turned(b: Builder, node: int, perm: tuple[int, ...] | None) -> int:
    if perm is None:
        return node
    return b.add("transpose", (node,), Transpose(b.type(node).shape, perm))
