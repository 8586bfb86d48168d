"""Values that memory keeps in a narrower type, as nothing reads more of them.

A contraction that rounds its operands reads the same from a value that was rounded before. So
XLA:TPU keeps f32 as bf16 where only contractions of precision `default` read it.
"""

from __future__ import annotations

from collections.abc import Collection

from eqsat.model.attr import Attr
from eqsat.model.egraph import EGraph
from eqsat.model.generic import Generic
from eqsat.model.ops import CONVERSIONS, SAME_BYTES
from eqsat.model.padding import Padding
from eqsat.ops.contractions.roles import kind


def narrowed_types(egraph: EGraph, padding: Padding, weights: Collection[int]) -> dict[int, str]:
    """Per class whose every reader is such a contraction: the type in which it is kept.

    Conversions and views are looked through: what they make of the value is read likewise. What
    the caller brings or wants is as it is, and so are weights: classes that follow from them.
    """
    kept = dict(padding.narrowed)
    if not kept:
        return {}
    wide = {n.eclass for n in egraph.nodes if n.op == "input"}.union(egraph.roots, weights)
    shown: list[tuple[int, int]] = []  # what is read, and a class of the same value
    for n in egraph.nodes:
        for c in n.children:
            if n.op in CONVERSIONS or n.op in SAME_BYTES:
                shown.append((c, n.eclass))
            elif n.eclass != c and reader_of(n.op, n.attr) not in kept:
                wide.add(c)
    size = -1
    while size != len(wide):
        size = len(wide)
        for read, same in shown:
            if not wide.isdisjoint((read, same)):
                wide |= {read, same}
    found = {(c, t[0].dtype) for c, t in enumerate(egraph.types) if c not in wide}
    ways = {reading.partition("/")[0]: dtype for reading, dtype in padding.narrowed}
    return {c: ways[dtype] for c, dtype in found if dtype in ways}


def reader_of(op: str, attr: Attr) -> str:
    """Type and precision of a contraction of two operands of one type, `f32/default`; else ""."""
    if not isinstance(attr, Generic) or kind(op, attr) != "contraction":
        return ""
    dtype, *others = dict.fromkeys(attr.dtypes)
    return "" if others else f"{dtype}/{attr.precision}"
