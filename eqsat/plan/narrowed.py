"""Values that memory keeps in a narrower type, as nothing reads more of them.

A contraction that rounds its operands reads the same from a value that was rounded before. So
XLA:TPU keeps f32 as bf16 where only contractions of precision `default` read it, if it is a product
or follows from one whose elements are each read once: not where a gate reads them twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from eqsat.model.attr import Attr
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.expr import walk_all
from eqsat.model.generic import Generic
from eqsat.model.ops import CONVERSIONS, SAME_BYTES
from eqsat.model.padding import Padding
from eqsat.ops.contractions.roles import kind

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
