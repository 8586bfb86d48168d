"""Storage of values that is less than their own: in place of an argument, or in a narrower type.

Donation writes a result where an argument lies, as nothing reads that any more. A state of which
one row is new, as a cache of keys and values, is then neither copied nor read: where the value is
the argument's own element, nothing is written. The next state may have the bytes of the one before
unless something else reads that, or its caller has it as a result; a reader that comes first does
not mind.

A contraction that rounds its operands reads the same from a value that was rounded before. So
XLA:TPU keeps f32 as bf16 where only contractions of precision `default` read it, if it is a product
or follows from one whose elements are each read once: not where a gate reads them twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from eqsat.model.attr import Attr
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.expr import Expr, walk_all
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf, is_donated
from eqsat.model.nest import Access, Nest, NoNest, Store
from eqsat.model.ops import CONVERSIONS, LEAVES, SAME_BYTES
from eqsat.model.pipelines import Padding
from eqsat.ops.contractions.roles import kind
from eqsat.ops.generics.canonical import identity
from eqsat.ops.meaning.programs import is_iota
from eqsat.plan.stages import accesses_read, needed


def in_place(nest: Nest, argument: int, result: int) -> Nest:
    """The nest with this result in the bytes of this argument.

    Raises NoNest if an element could be read after another point has written it.
    """
    stores = [s for s in nest.stores if s.access.buffer == result]
    if len(stores) != 1 or argument not in nest.reads:
        raise NoNest("the result is written in pieces, or without reading the argument")
    (store,) = stores
    if any(s.combine for s in nest.stages):
        raise NoNest("a reduction reads elements that other points may have written")
    if store.bounds or store.access.bounds or store.access.lookups:
        raise NoNest("the result has elements that are written in another way")
    if any(set(s.loops) != set(store.loops) for s in nest.stores):
        raise NoNest("results run over other loops")
    upstream = set(needed(nest, [store.stage]))
    for i, s in enumerate(nest.stages):
        for a in accesses_read(s.arguments):
            if argument in _looked_up(a):
                raise NoNest("the argument is what something is looked up by")
            if a.buffer == argument and (i not in upstream or not _is_at(a, store.access)):
                raise NoNest("elements of the argument are read where others are written")
    others = (s.stage for s in nest.stores if s is not store)
    if any(_reads(nest, i, argument) for i in needed(nest, others)):
        raise NoNest("another result reads the argument")
    stores = [replace(s, in_place=argument) if s is store else s for s in nest.stores]
    return replace(nest, stores=tuple(stores))


def unchanged_in_place(nest: Nest, arguments: Collection[int]) -> frozenset[int]:
    """Of donated arguments and the results in their place, those whose elements stay as they are
    but where a condition holds. How often it does is not known before a call, nor priced."""
    unchanged: set[int] = set()
    for argument in arguments:
        for result in (r for r in nest.writes if r not in unchanged):
            with suppress(NoNest):
                stores = in_place(nest, argument, result).stores
                if any(s.in_place >= 0 and update_of(nest, s) for s in stores):
                    unchanged |= {argument, result}
                    break
    return frozenset(unchanged)


def update_of(nest: Nest, store: Store) -> tuple[Expr, Expr, bool] | None:
    """(condition, value, the value is where the condition holds) of a store in place; elsewhere
    the element stays as it is. None if every element is written."""
    stage = nest.stages[store.stage]
    if store.in_place < 0 or stage.body.fn != "select" or stage.bounds:
        return None
    condition, one, other = stage.body.args
    for value, old, holds in ((one, other, True), (other, one, False)):
        a = stage.arguments[old.value] if old.fn == "arg" else None
        if isinstance(a, Access) and a.buffer == store.in_place and a.dtype == stage.dtype:
            return condition, value, holds
    return None


def _is_at(a: Access, written: Access) -> bool:
    same = a.strides == written.strides and a.base == written.base and a.dtype == written.dtype
    return same and not a.bounds and not a.lookups


def _looked_up(a: Access) -> set[int]:
    return {b for x in a.indices for b in x.buffers()}


def _reads(nest: Nest, stage: int, argument: int) -> bool:
    return any(a.buffer == argument for a in accesses_read(nest.stages[stage].arguments))


# ---- values whose bytes may be had ---------------------------------------------------------------
def line_buffers(egraph: EGraph, buffer: Sequence[int]) -> frozenset[int]:
    """Buffers of weights that hold 0, 1, …"""
    leaves = ((n.eclass, n.attr) for n in egraph.nodes if n.op == "weight")
    return frozenset(buffer[c] for c, leaf in leaves if isinstance(leaf, Leaf) and is_iota(leaf))


def update_nodes(egraph: EGraph) -> list[tuple[int, int]]:
    """Nodes that choose between a value and what is new of it, and that value.

    Whether by position is not asked: the condition may be a value of its own.
    """
    updates = []
    for i, n in enumerate(egraph.nodes):
        g = n.attr
        if not isinstance(g, Generic) or len(g.yields) != 1 or g.body.fn != "select":
            continue
        fallback = g.body.args[2]
        if fallback.fn == "arg" and g.maps[fallback.value] == identity(g.rank):
            old = n.children[fallback.value]
            if egraph.types[old] == egraph.types[n.eclass] and not g.reductions:
                updates.append((i, old))
    return updates


def dying_buffers(egraph: EGraph, buffer: Sequence[int], lines: frozenset[int]) -> frozenset[int]:
    """Buffers of donated arguments and of computed values that an update surely may overwrite: all
    else that reads them is needed for it."""
    updates = update_nodes(egraph) if lines else []
    if not updates:
        return frozenset()
    graph = _Reads(egraph, buffer)
    fixed = {buffer[n.eclass] for n in egraph.nodes if n.op in LEAVES and not is_donated(n.attr)}
    fixed |= {buffer[r] for r in egraph.roots}
    dying: dict[int, bool] = {}
    for i, old in updates:
        b = buffer[old]
        if b not in fixed and dying.get(b, True):
            dying[b] = graph.is_last(egraph.nodes[i], b)
    return frozenset(b for b, is_last in dying.items() if is_last)


class _Reads:
    """Which ops of an input program read which buffers."""

    def __init__(self, egraph: EGraph, buffer: Sequence[int]):
        self.buffer = buffer
        self.readers: dict[int, list[ENode]] = {}
        self.makers: dict[int, list[ENode]] = {}
        for n in egraph.nodes:
            if n.rule == -1:
                self.makers.setdefault(buffer[n.eclass], []).append(n)
                for c in {buffer[c] for c in n.children}:
                    self.readers.setdefault(c, []).append(n)

    def is_last(self, update: ENode, old: int) -> bool:
        """Whether all that reads a value, or a part of it, is needed for its update."""
        new, needed = self.buffer[update.eclass], self._needed(update)
        return all(b in needed for b in self._computed_from(old) if b != new)

    def _needed(self, node: ENode) -> set[int]:
        needed, left = set[int](), [self.buffer[c] for c in node.children]
        while left:
            b = left.pop()
            if b not in needed:
                needed.add(b)
                left += [self.buffer[c] for n in self.makers.get(b, ()) for c in n.children]
        return needed

    def _computed_from(self, old: int) -> set[int]:
        """Buffers computed from elements of a buffer; moves hand them on."""
        computed, seen, left = set[int](), {old}, [old]
        while left:
            for n in self.readers.get(left.pop(), ()):
                b = self.buffer[n.eclass]
                if kind(n.op, n.attr) not in ("view", "move", "conversion"):
                    computed.add(b)
                elif b not in seen:
                    seen.add(b)
                    left.append(b)
        return computed


LOOKED_THROUGH = frozenset({*CONVERSIONS, *SAME_BYTES, "slice"})


def narrowed_types(egraph: EGraph, padding: Padding, weights: Collection[int]) -> dict[int, str]:
    """Per class whose every reader is such a contraction: the type in which it is kept.

    Conversions and views are looked through: what they make of the value is read likewise. What
    the caller brings or wants is as it is, and so are weights: classes that follow from them.
    """
    readings = dict(padding.narrowed)
    if not readings:
        return {}
    wide = {n.eclass for n in egraph.nodes if n.op == "input"}.union(egraph.roots, weights)
    wide |= set(range(len(egraph.types))) - rounded(egraph)
    shown: list[tuple[int, int]] = []  # what is read, and a class of the same value
    for n in egraph.nodes:
        if n.op in CONVERSIONS or n.op in SAME_BYTES:
            shown += [(c, n.eclass) for c in n.children]
        elif reader_of(n.op, n.attr) not in readings:
            wide.update(c for c in n.children if c != n.eclass)
    size = -1
    while size != len(wide):
        size = len(wide)
        for read, same in shown:
            if not wide.isdisjoint((read, same)):
                wide |= {read, same}
    narrow = {(c, t[0].dtype) for c, t in enumerate(egraph.types) if c not in wide}
    ways = {reading.partition("/")[0]: dtype for reading, dtype in padding.narrowed}
    return {c: ways[dtype] for c, dtype in narrow if dtype in ways}


def rounded(egraph: EGraph) -> set[int]:
    """Classes of which every node is a product, its only reader, or a slice, view or conversion.

    An op behind a product reads each of its elements once.
    """
    behind = products(egraph)
    readers: dict[int, set[int]] = defaultdict(set)
    for n in egraph.nodes:
        for c in n.children:
            if c != n.eclass and n.op not in LOOKED_THROUGH:
                readers[c].add(n.eclass)

    def follows(n: ENode) -> bool:
        return isinstance(n.attr, Generic) and any(
            c in behind and len(readers[c]) == 1 and reads_once(n.attr, i)
            for i, c in enumerate(n.children)
        )

    return _all_nodes(egraph, lambda n, what: what == "elementwise" and follows(n))


def products(egraph: EGraph) -> set[int]:
    """Classes of which every node is a contraction, or a part, view or conversion of such a class.

    Whichever node is chosen, a contraction is behind it: the checker looks for one.
    """
    return _all_nodes(egraph, lambda _n, _what: False)


def _all_nodes(egraph: EGraph, besides: Callable[[ENode, str], bool]) -> set[int]:
    """Classes of which every node is a contraction or one of these, or shows such classes."""
    classes = set(range(len(egraph.types)))
    others: list[ENode] = []
    for n in egraph.nodes:
        if n.op in LOOKED_THROUGH:
            others.append(n)
        elif (what := kind(n.op, n.attr)) != "contraction" and not besides(n, what):
            classes.discard(n.eclass)
    size = -1
    while size != len(classes):
        size = len(classes)
        classes -= {n.eclass for n in others if not classes.issuperset(n.children)}
    return classes


def reads_once(g: Generic, operand: int) -> bool:
    """Whether an operand stands once in what an op computes."""
    bodies = [y.body for y in g.yields]
    read = [*bodies, *(a for e in walk_all(bodies) for a in e.args)]
    return sum(e.fn == "arg" and e.value == operand for e in read) == 1


def reader_of(op: str, attr: Attr) -> str:
    """Type and precision of a contraction of two operands of one type, `f32/default`; else ""."""
    if not isinstance(attr, Generic) or kind(op, attr) != "contraction":
        return ""
    dtype, *others = dict.fromkeys(attr.dtypes)
    return "" if others else f"{dtype}/{attr.precision}"
