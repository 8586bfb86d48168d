"""Arguments and results that may lie in any order of their dims, as equalities of a program.

An argument of free order is the transpose of that argument in another order, whichever one is
asked for; a result is. Stated beside the rules, everything a rule can do to a transpose is what
becomes of the freedom: ops read the argument in that order, or lose the transpose in front of them.
In the e-graph all orders of an argument are there at once, which is more than a caller can pass:
`in_orders` leaves those of one choice. All at once say which choice is likely to be the best, and
bound nothing: a value that is an argument is read where it lies, never made in what reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat.model.egraph import EGraph, ENode
from eqsat.model.equalities import Equalities
from eqsat.model.generic import Generic
from eqsat.model.layout import Border, Layout, layout_in
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Node, Program
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.movement.lists import inverse

RULE = "free-order"
_DOC = "an argument or result whose order is free is its own transpose in another one"
MOST_ORDERS = 4  # of one argument or result, besides the plain one

Perm = tuple[int, ...]
FreeOrders = Mapping[Border, tuple[Perm, ...]]  # plain ones are not listed


@dataclass(frozen=True)
class _Spot:
    """Where a border is in a program: node `at` is its tensor without dims of extent 1.

    shape: of the border; dims: those of its dims that are not of extent 1, all where `at` is the
    border itself.
    """

    at: int
    shape: Perm
    dims: Perm

    def whole(self, perm: Perm) -> Perm:
        """An order of `dims` as one of the border; dims of extent 1 are outermost."""
        ones = [d for d in range(len(self.shape)) if d not in self.dims]
        return (*ones, *(self.dims[p] for p in perm))

    def bare_order(self, order: Perm) -> Perm:
        """Undo `whole`."""
        return tuple(self.dims.index(d) for d in order if d in self.dims)


def _spot(program: Program, border: Border) -> _Spot:
    if border.kind == "input":
        node = program.inputs[border.number]
        views = [i for i, n in enumerate(program.nodes) if n.operands == (node,)]
        inner = [i for i in views if program.nodes[i].op == "reshape"]
    else:
        node = program.results[border.number]
        inner = list(program.nodes[node].operands) if program.nodes[node].op == "reshape" else []
    shape = program.nodes[node].type.shape
    dims = tuple(d for d, size in enumerate(shape) if size != 1)
    bare = tuple(shape[d] for d in dims)
    bare_nodes = [i for i in inner if program.nodes[i].type.shape == bare]
    if bare_nodes and len(dims) < len(shape):
        return _Spot(bare_nodes[0], shape, dims)
    return _Spot(node, shape, tuple(range(len(shape))))


# ---- which orders are worth a look ---------------------------------------------------------------
def likely_orders(program: Program, egraph: EGraph, border: Border) -> tuple[Perm, ...]:
    """Orders in which some op of the e-graph would read an argument, or make a result, row by row.

    Those of transposes first, then those that follow from the loops of ops; at most MOST_ORDERS.
    """
    spot = _spot(program, border)
    eclass = egraph.values[spot.at]
    ways = _read_in if border.kind == "input" else _made_in
    perms = dict.fromkeys(ways(egraph, eclass))
    rank = len(spot.dims)
    plain = tuple(range(len(spot.shape)))
    orders = dict.fromkeys(spot.whole(p) for p in perms if len(p) == rank)
    return tuple(o for o in orders if o != plain)[:MOST_ORDERS] if rank > 1 else ()


def _read_in(egraph: EGraph, eclass: int) -> Iterator[Perm]:
    readers = [n for n in egraph.nodes if eclass in n.children]
    for n in readers:
        if isinstance(n.attr, Transpose):
            yield n.attr.perm
    for n in readers:
        if isinstance(n.attr, Generic):
            for operand, child in enumerate(n.children):
                if child == eclass:
                    yield from _by_loops(n.attr, operand)


def _made_in(egraph: EGraph, eclass: int) -> Iterator[Perm]:
    makers = [egraph.nodes[i] for i in egraph.classes[eclass]]
    for n in makers:
        if isinstance(n.attr, Transpose):
            yield inverse(n.attr.perm)
    for n in makers:
        g = n.attr
        roles = contraction_roles(g) if isinstance(g, Generic) else None
        if isinstance(g, Generic) and roles is not None:  # rows of m, or of n
            others = tuple(d for d in range(g.rank) if d not in roles.batch + roles.n)
            yield (*roles.batch, *roles.n, *others)
    yield from _read_in(egraph, eclass)  # a state is read in the call that makes it


def _by_loops(g: Generic, operand: int) -> Iterator[Perm]:
    """Orders of an operand's dims: by its loops, and with reduced ones outermost or innermost."""
    loops = [[d for d, _ in e.terms] for e in g.maps[operand]]
    if not all(loops):
        return
    roles = contraction_roles(g)
    dims = range(len(loops))
    if roles is not None:
        batch, reduced = set(roles.batch), set(g.reductions)

        def key(d: int, last: bool) -> tuple[int, int]:
            first = loops[d][0]
            is_sum = first in reduced and len(loops[d]) == 1
            rank = 0 if first in batch else 1 + int(is_sum is last)
            return rank, first

        yield tuple(sorted(dims, key=lambda d: key(d, True)))
        yield tuple(sorted(dims, key=lambda d: key(d, False)))
    yield tuple(sorted(dims, key=lambda d: loops[d]))


# ---- the facts -----------------------------------------------------------------------------------
def free_orders(program: Program, orders: FreeOrders, first: int) -> Equalities | None:
    """Equalities of arguments and results of free order; numbered from `first` on."""
    nodes: list[Node] = []
    equal: list[tuple[int, int]] = []

    def add(op: str, operands: tuple[int, ...], attr: Leaf | Reshape | Transpose) -> int:
        types = [nodes[o - first].types if o >= first else program.nodes[o].types for o in operands]
        nodes.append(Node(op, operands, attr, attr.infer(op, tuple(t[0] for t in types))))
        return first + len(nodes) - 1

    for border, perms in orders.items():
        spot = _spot(program, border)
        bare = program.nodes[spot.at].type.shape
        for order in perms:
            perm = spot.bare_order(order)
            turned = tuple(bare[p] for p in perm)
            if border.kind == "input":
                leaf = program.leaf(program.inputs[border.number])
                value = add("input", (), _lying(leaf, order))
                if len(turned) != len(order):
                    shape = layout_in(order, spot.shape).packed_shape
                    value = add("reshape", (value,), Reshape(shape, turned))
            else:
                value = add("transpose", (spot.at,), Transpose(bare, perm))
            equal.append((add("transpose", (value,), Transpose(turned, inverse(perm))), spot.at))
    if not equal:
        return None
    pairs = tuple(equal)
    return Equalities(RULE, _DOC, first, tuple(nodes), pairs, pairs, is_open=True)


def _lying(leaf: Leaf, order: Perm) -> Leaf:
    layout = layout_in(order, leaf.type.shape)
    return replace(leaf, type=leaf.type.with_shape(layout.packed_shape), layout=layout)


# ---- one order of each ---------------------------------------------------------------------------
def leaf_order(attr: object) -> Perm | None:
    """In which order an argument comes; None: plain, or something else than an argument."""
    held = attr.layout if isinstance(attr, Leaf) else None
    return held.outer if isinstance(held, Layout) and not held.tiles else None


def in_orders(
    egraph: EGraph,
    program: Program,
    inputs: Mapping[Border, frozenset[Perm | None]],
    results: Mapping[Border, Perm],
) -> EGraph | None:
    """The e-graph in which arguments come in these orders only, and results go in these.

    inputs: of every argument whose order is free; None stands for the plain order. The whole is
    None if a result is in no such order there.
    """
    roots = list(egraph.roots)
    for border, order in results.items():
        at = _result_class(egraph, program, border, order)
        if at is None:
            return None
        roots[border.number] = at
    return replace(_without(egraph, _gone(egraph, inputs)), roots=tuple(roots))


def _result_class(egraph: EGraph, program: Program, border: Border, order: Perm) -> int | None:
    spot = _spot(program, border)
    shape = program.nodes[spot.at].type.shape
    # dims of extent 1 are outermost: with or without them it is the same buffer
    node = egraph.find(
        "transpose", Transpose(shape, spot.bare_order(order)), (egraph.values[spot.at],)
    )
    return None if node is None else egraph.nodes[node].eclass


def _gone(egraph: EGraph, inputs: Mapping[Border, frozenset[Perm | None]]) -> set[int]:
    """Leaves in orders that are not among these."""
    gone: set[int] = set()
    for i, n in enumerate(egraph.nodes):
        if n.op == "input" and isinstance(n.attr, Leaf):
            allowed = inputs.get(Border("input", n.attr.index))
            if allowed is not None and leaf_order(n.attr) not in allowed:
                gone.add(i)
    return gone


def _without(egraph: EGraph, gone: set[int]) -> EGraph:
    """The e-graph without these nodes, numbered anew."""
    if not gone:
        return egraph
    number = {-1: -1}
    for i in range(len(egraph.nodes)):
        if i not in gone:
            number[i] = len(number) - 1
    nodes: list[ENode] = []
    for i, n in enumerate(egraph.nodes):
        if i not in gone:
            nodes.append(replace(n, source=number.get(n.source, -1)))
    return replace(egraph, nodes=tuple(nodes))


def used_orders(
    egraph: EGraph, buffer: tuple[int, ...], reads: frozenset[int]
) -> dict[Border, frozenset[Perm | None]]:
    """The orders in which an answer reads its arguments; reads: classes it reads and never makes.

    buffer: per class, that of its bytes.
    """
    read = {buffer[c] for c in reads}
    used: dict[Border, set[Perm | None]] = {}
    for n in egraph.nodes:
        if n.op == "input" and isinstance(n.attr, Leaf) and buffer[n.eclass] in read:
            used.setdefault(Border("input", n.attr.index), set()).add(leaf_order(n.attr))
    return {border: frozenset(orders) for border, orders in used.items()}
