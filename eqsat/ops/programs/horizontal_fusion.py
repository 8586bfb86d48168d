"""Program → Equalities: ops on all parts of a value, put together or added up, are one op on it.

Heads or experts in a Python loop read slices of one value each, or a weight each, and a concat or a
sum puts together what they give. So that is one op with one more loop: a batched product, or one
with a longer sum. Which of them is faster is for the search to say. After the horizontal fusion of
TASO (Jia et al., SOSP 2019) and vmap of JAX; parts are found as loop rerolling finds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map, dim
from eqsat.model.equalities import Equalities
from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Node, Program
from eqsat.model.tensor import NONE, is_float
from eqsat.ops.algebra.linear import replaced
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node, identity
from eqsat.ops.movement.moves import concat_of, moves_nothing, slice_of

RULE = "parts-at-once"
_DOC = "ops on all parts of a value, put together or added up, are one op on the whole"
MOST_WEIGHTS = 8  # put side by side: rules are compiled once per number of operands
Column = tuple[int, ...]  # the same op of every part


class NotAlike(Exception):
    """These nodes are no parts of one value."""


@dataclass(frozen=True)
class _Stack:
    """A column of parts: a value with the parts along one more dim, or one value for all."""

    node: int
    axis: int | None

    def read(self, m: Map, part: int) -> Operand:
        """Read as one part is read by m, where loop `part` counts the parts."""
        if self.axis is None:
            return self.node, m
        return self.node, (*m[: self.axis], dim(part), *m[self.axis :])


@dataclass(frozen=True)
class SumTerm:
    """Term of a sum: a body over values that are read by the loops of the op that adds."""

    body: Expr
    reads: tuple[Operand, ...]


@dataclass(frozen=True)
class SumOfTerms:
    """A part of a body that adds up terms."""

    whole: Expr
    terms: tuple[SumTerm, ...]
    absorbed: frozenset[int]  # ops whose terms are among these


def like_parts(program: Program, first: int, inexact: bool) -> Equalities | None:
    """Concats and sums of products on parts, and the ops on the whole; numbered from `first` on.

    inexact: sums of floats may be taken in another order. None if there is none.
    """
    b = Builder(program.name)
    b.nodes += program.nodes
    absorbed: set[int] = set()
    equal: list[tuple[int, int]] = []
    for i in range(len(program.nodes) - 1, -1, -1):
        n = program.nodes[i]
        if n.op == "concat":
            equal += [(node, i) for node in _joined(b, n)]
        elif i not in absorbed and (inexact or not is_float(n.types[0].dtype)):
            for s in sums_of(program, n):
                absorbed |= s.absorbed
                equal += [(node, i) for node in _added(b, n, s)]
    count = len(program.nodes)
    return Equalities.beside(RULE, _DOC, b.nodes, count, first, equal) if equal else None


# ---- columns -------------------------------------------------------------------------------------
class _LikeColumns:
    """Writes what columns are, each once; `product` says whether one of them is a product."""

    def __init__(self, b: Builder):
        self.b = b
        self.stacks: dict[Column, _Stack] = {}
        self.has_product = False

    def stack(self, column: Column) -> _Stack:
        """NotAlike if the nodes are neither parts of a value nor one op on such parts."""
        if column not in self.stacks:
            self.stacks[column] = self._stack(column)
        return self.stacks[column]

    def _stack(self, column: Column) -> _Stack:
        if len(set(column)) == 1:
            return _Stack(column[0], None)
        nodes = [self.b.nodes[i] for i in column]
        n = nodes[0]
        if n.op == "weight":
            return self._weights(column)
        if n.op == "slice":
            return _sliced(self.b, nodes)
        self.alike(column)
        if isinstance(n.attr, Generic):
            return _Stack(self.generic(column, range(n.attr.rank), 0), 0)
        inner = self.stack(tuple(m.operands[0] for m in nodes))
        assert inner.axis is not None  # or the nodes were one
        if isinstance(n.attr, Reshape):
            return _reshaped(self.b, inner.node, inner.axis, n.attr, len(column))
        if isinstance(n.attr, Transpose):
            perm = [d + (d >= inner.axis) for d in n.attr.perm]
            turn = Transpose(self.b.type(inner.node).shape, (inner.axis, *perm))
            return _Stack(self.b.add("transpose", (inner.node,), turn), 0)
        raise NotAlike

    def alike(self, column: Column) -> None:
        """NotAlike unless all of them are one op with one result, and no two of them equal."""
        n = self.b.nodes[column[0]]
        if len(set(column)) < len(column) or len(n.types) != 1 or not n.operands:
            raise NotAlike
        if any((m.op, m.attr) != (n.op, n.attr) for m in map(self.b.nodes.__getitem__, column)):
            raise NotAlike

    def generic(self, column: Column, result: Sequence[int], place: int | None) -> int:
        """One generic for a column of generics, with the parts at this place of its result.

        None: added up.
        """
        g = self.b.nodes[column[0]].attr
        if not isinstance(g, Generic) or g.tile or len(g.yields) != 1:
            raise NotAlike
        part = len(g.sizes)
        reads = [self.operand(column, j).read(g.maps[j], part) for j in range(len(g.maps))]
        loops = list(result)
        if place is not None:
            loops.insert(place, part)
        self.has_product |= contraction_roles(g) is not None
        sizes = (*g.sizes, len(column))
        return generic_node(self.b, sizes, loops, reads, g.yields, precision=g.precision)

    def placed(self, column: Column, place: int) -> int:
        """The parts along a dim at this place."""
        self.alike(column)
        rank = len(self.b.type(column[0]).shape)
        if isinstance(self.b.nodes[column[0]].attr, Generic):
            return self.generic(column, range(rank), place)
        stacked = self.stack(column)
        assert stacked.axis is not None  # or there were a part only once
        dims = [d for d in range(rank + 1) if d != stacked.axis]
        perm = (*dims[:place], stacked.axis, *dims[place:])
        if perm == tuple(range(rank + 1)):
            return stacked.node
        turn = Transpose(self.b.type(stacked.node).shape, perm)
        return self.b.add("transpose", (stacked.node,), turn)

    def operand(self, column: Column, j: int) -> _Stack:
        """Operand j of all of these."""
        return self.stack(tuple(self.b.nodes[i].operands[j] for i in column))

    def _weights(self, column: Column) -> _Stack:
        types = {self.b.nodes[i].types for i in column}
        leaves = [self.b.nodes[i].attr for i in column]
        plain = all(isinstance(a, Leaf) and a.layout is None for a in leaves)
        if len(types) > 1 or not plain or len(set(column)) < len(column) > MOST_WEIGHTS:
            raise NotAlike
        shape = self.b.type(column[0]).shape
        split = Reshape(shape, (1, *shape))
        rows = tuple(self.b.add("reshape", (i,), split) for i in column)
        return _Stack(self.b.add("concat", rows, concat_of([split.shape] * len(rows), 0)), 0)


def _sliced(b: Builder, nodes: Sequence[Node]) -> _Stack:
    """Slices of one width that lie side by side, in order."""
    moves = [n.attr for n in nodes if isinstance(n.attr, Move) and n.op == "slice"]
    first = moves[0]
    rest = (first.sources, first.shape, first.args[2])
    same = all((m.sources, m.shape, m.args[2]) == rest for m in moves)
    if len(moves) < len(nodes) or len({n.operands for n in nodes}) > 1 or not same:
        raise NotAlike
    starts = [m.args[0] for m in moves]
    axes = [d for d, s in enumerate(zip(*starts, strict=True)) if len(set(s)) > 1]
    if len(axes) != 1 or first.args[2][axes[0]] != 1:
        raise NotAlike
    (axis,) = axes
    width = first.shape[axis]
    if [s[axis] - starts[0][axis] for s in starts] != [i * width for i in range(len(nodes))]:
        raise NotAlike
    cut = slice_of(first.sources[0], first.args[0], moves[-1].args[1], first.args[2])
    (x,) = nodes[0].operands
    whole = x if moves_nothing(cut) else b.add("slice", (x,), cut)
    split = (*first.shape[:axis], len(nodes), *first.shape[axis:])
    return _Stack(b.add("reshape", (whole,), Reshape(cut.shape, split)), axis)


def _reshaped(b: Builder, node: int, axis: int, part: Reshape, count: int) -> _Stack:
    """A stack whose parts are reshaped, where no group of dims lies across the parts."""
    ahead = math.prod(part.source[:axis])
    places = [p for p in range(len(part.shape) + 1) if math.prod(part.shape[:p]) == ahead]
    if not places:
        raise NotAlike
    at = places[0]
    shape = (*part.shape[:at], count, *part.shape[at:])
    (below,) = b.nodes[node].operands if b.nodes[node].op == "reshape" else (node,)
    source = b.type(below).shape
    return _Stack(
        below if source == shape else b.add("reshape", (below,), Reshape(source, shape)), at
    )


# ---- concats -------------------------------------------------------------------------------------
def _joined(b: Builder, n: Node) -> Iterator[int]:
    """Forms of a concat of products on parts: the products at once, reshaped."""
    assert isinstance(n.attr, Move)
    (axis,) = n.attr.args
    columns = _LikeColumns(b)
    try:
        whole = columns.placed(n.operands, axis)
    except NotAlike:
        return
    if columns.has_product:
        yield b.add("reshape", (whole,), Reshape(b.type(whole).shape, n.type.shape))


# ---- sums ----------------------------------------------------------------------------------------
def _added(b: Builder, n: Node, s: SumOfTerms) -> Iterator[int]:
    """Forms of an elementwise op whose body adds up terms of which some are alike."""
    kinds: dict[tuple[object, ...], list[SumTerm]] = {}
    for t in s.terms:
        attrs = tuple(b.nodes[o].attr if b.nodes[o].op != "slice" else None for o, _ in t.reads)
        kinds.setdefault((t.body, tuple(m for _, m in t.reads), attrs), []).append(t)
    for some in kinds.values():
        if len(some) > 1:
            rest = [t for t in s.terms if t not in some]
            for total in _totals(b, n, _in_order(b, some)):
                yield _with_rest(b, n, s.whole, total, rest)


def _in_order(b: Builder, terms: Sequence[SumTerm]) -> list[SumTerm]:
    """In the order of the slices that they read; as they stand if they read none."""

    def place(t: SumTerm) -> tuple[object, ...]:
        return tuple(_start(b, o) for o, _ in t.reads)

    return sorted(terms, key=place)


def _start(b: Builder, node: int) -> tuple[int, ...]:
    """Where the first slice that a node is computed from begins."""
    waiting = [node]
    for i in waiting:
        n = b.nodes[i]
        if isinstance(n.attr, Move) and n.op == "slice":
            return n.attr.args[0]
        waiting += [o for o in n.operands if o not in waiting] if len(waiting) < 64 else []
    return ()


def _totals(b: Builder, n: Node, terms: Sequence[SumTerm]) -> Iterator[int]:
    """The sum of terms that are alike."""
    columns = _LikeColumns(b)
    reads = list(zip(*([o for o, _ in t.reads] for t in terms), strict=True))
    t, shape = terms[0], n.types[0].shape
    try:
        if t.body == arg(0) and t.reads[0][1] == identity(len(shape)):
            columns.alike(reads[0])
            product = columns.generic(reads[0], range(len(shape)), None)
            if columns.has_product:
                yield product
            return
        part = len(shape)
        stacks = [columns.stack(c) for c in reads]
        if not columns.has_product:
            raise NotAlike
        y = Yield(t.body, n.types[0].dtype, "add")
        ops = [s.read(m, part) for s, (_, m) in zip(stacks, t.reads, strict=True)]
        sizes = (*shape, len(terms))
        yield generic_node(b, sizes, range(len(shape)), ops, [y], precision=NONE)
        yield from _scaled_ahead(columns, n, t, reads)
    except NotAlike:
        return


def _scaled_ahead(c: _LikeColumns, n: Node, t: SumTerm, reads: Sequence[Column]) -> Iterator[int]:
    """Σ s_i (x_i @ w_i) as one product that sums over the parts too, of s_i x_i with w_i.

    Where s_i x_i has fewer elements than the products.
    """
    if t.body.fn != "mul" or len(t.reads) != 2 or any(a.fn != "arg" for a in t.body.args):
        return
    for p in range(2):
        g, m = c.b.nodes[reads[p][0]].attr, t.reads[1 - p][1]
        if not isinstance(g, Generic) or contraction_roles(g) is None:
            continue
        if t.reads[p][1] != identity(g.rank) or {*g.dtypes, n.types[0].dtype} != {
            c.b.type(reads[1 - p][0]).dtype
        }:
            continue
        for side in range(2):
            loops = [e.dim for e in g.maps[side]]
            seen = {d for e in m for d, _ in e.terms}
            is_whole = [g.sizes[d] for d in loops if d is not None] == list(g.shapes[side])
            less = math.prod(g.shapes[side]) < math.prod(g.result_shape)
            if is_whole and less and seen <= set(loops) and len(set(loops)) == len(loops):
                yield _product_of_scaled(c, g, side, reads[p], (reads[1 - p], m))


def _product_of_scaled(
    c: _LikeColumns, g: Generic, side: int, products: Column, scale: tuple[Column, Map]
) -> int:
    part = len(g.sizes)
    loops = [e.terms[0][0] for e in g.maps[side]]
    # the parts stand ahead of what is summed, so that both are summed as one dim
    at = next((k for k, d in enumerate(loops) if d >= g.rank), len(loops))
    order = [*loops[:at], part, *loops[at:]]
    x = c.operand(products, side).read(g.maps[side], part)
    s = c.stack(scale[0]).read(scale[1], part)
    y = Yield(call("mul", arg(0), arg(1)), g.yields[0].dtype)
    sizes = (*g.sizes, len(products))
    new = {d: k for k, d in enumerate(order)}
    reads = [(node, tuple(e.rename(new) for e in m)) for node, m in (x, s)]
    scaled = generic_node(
        c.b, [sizes[d] for d in order], range(len(order)), reads, [y], precision=NONE
    )
    pair: list[Operand] = [(scaled, tuple(map(dim, order)))] * 2
    pair[1 - side] = c.operand(products, 1 - side).read(g.maps[1 - side], part)
    return generic_node(c.b, sizes, range(g.rank), pair, g.yields, precision=g.precision)


def _with_rest(b: Builder, n: Node, whole: Expr, total: int, rest: Sequence[SumTerm]) -> int:
    """The op that adds the other terms to a total of some of them."""
    g = n.attr
    assert isinstance(g, Generic)
    reads: list[Operand] = [*zip(n.operands, g.maps, strict=True), (total, identity(g.rank))]
    sum_ = arg(len(reads) - 1)
    for t in rest:
        new = {j: arg(len(reads) + j) for j in range(len(t.reads))}
        sum_ = call("add", sum_, t.body.substitute(new))
        reads += t.reads
    y = Yield(replaced(g.body, whole, sum_), g.yields[0].dtype)
    return generic_node(b, g.sizes, range(g.rank), reads, [y], precision=NONE)


# ---- the terms of a sum --------------------------------------------------------------------------
def sums_of(program: Program, n: Node) -> Iterator[SumOfTerms]:
    """The sums in the body of an elementwise op, the largest of each; of one value each."""
    g = n.attr
    if not isinstance(g, Generic) or g.tile or len(g.yields) != 1 or not g.is_elementwise:
        return
    added = {a for e in g.body.walk() if e.fn == "add" for a in e.args}
    for e in g.body.walk():
        if e.fn == "add" and e not in added:
            absorbed: set[int] = set()
            terms = tuple(_terms(program, n, e, absorbed))
            yield SumOfTerms(e, terms, frozenset(absorbed))


def _terms(program: Program, n: Node, e: Expr, absorbed: set[int]) -> Iterator[SumTerm]:
    g = n.attr
    assert isinstance(g, Generic)
    waiting = [e]
    while waiting:
        part = waiting.pop(0)
        if part.fn == "add":
            waiting[:0] = part.args
            continue
        used = part.operands()
        reads = tuple((n.operands[j], g.maps[j]) for j in used)
        body = part.substitute({j: arg(k) for k, j in enumerate(used)})
        inner = program.nodes[reads[0][0]] if body == arg(0) else None
        if inner is not None and _is_own(program, n, reads[0], inner):
            absorbed.add(reads[0][0])
            for t in _terms(program, inner, _body(inner), absorbed):
                yield SumTerm(t.body, tuple((o, compose_maps(m, reads[0][1])) for o, m in t.reads))
        else:
            yield SumTerm(body, reads)


def _body(n: Node) -> Expr:
    assert isinstance(n.attr, Generic)
    return n.attr.body


def _is_own(program: Program, n: Node, read: Operand, inner: Node) -> bool:
    """Whether a value is elementwise, of the same type, and read by this op alone, in order."""
    g, h = n.attr, inner.attr
    if not isinstance(g, Generic) or not isinstance(h, Generic) or h.tile or len(h.yields) != 1:
        return False
    is_alike = h.is_elementwise and bool(h.maps) and h.yields[0].dtype == g.yields[0].dtype
    in_order = [e.dim for e in read[1]] == list(range(g.rank))
    return is_alike and in_order and h.sizes == g.sizes and program.uses[read[0]] == 1
