"""E-graph → values whose bytes the next state may have, as nothing reads them once it is there.

A state of which a few elements are new is computed from the one before. Readers of that one that
wait for the new one keep its bytes, and so does the caller of a result; all others can come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat.model.egraph import EGraph, ENode
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.ops import LEAVES
from eqsat.ops.generics.canonical import identity
from eqsat.ops.meaning.iotas import is_iota


def line_buffers(egraph: EGraph, buffer: Sequence[int]) -> frozenset[int]:
    """Buffers of weights that hold 0, 1, …"""
    leaves = ((n.eclass, n.attr) for n in egraph.nodes if n.op == "weight")
    return frozenset(buffer[c] for c, leaf in leaves if isinstance(leaf, Leaf) and is_iota(leaf))


def update_nodes(egraph: EGraph) -> list[tuple[int, int]]:
    """Nodes that choose between a value and what is new of it, and that value.

    Whether by position is not asked: the condition may be a value of its own.
    """
    found = []
    for i, n in enumerate(egraph.nodes):
        g = n.attr
        if not isinstance(g, Generic) or len(g.yields) != 1 or g.body.fn != "select":
            continue
        kept = g.body.args[2]
        if kept.fn == "arg" and g.maps[kept.value] == identity(g.rank):
            old = n.children[kept.value]
            if egraph.types[old] == egraph.types[n.eclass] and not g.reductions:
                found.append((i, old))
    return found


def dying_buffers(egraph: EGraph, buffer: Sequence[int], lines: frozenset[int]) -> frozenset[int]:
    """Buffers of computed values that an update may overwrite."""
    updates = [(egraph.nodes[i], old) for i, old in update_nodes(egraph)] if lines else []
    if not updates:
        return frozenset()
    kept = {buffer[n.eclass] for n in egraph.nodes if n.op in LEAVES}
    kept |= {buffer[r] for r in egraph.roots}
    readers: dict[int, list[ENode]] = {}
    for n in egraph.nodes:
        for c in {buffer[c] for c in n.children} if n.rule == -1 else ():
            readers.setdefault(c, []).append(n)

    def is_read_behind(update: ENode, old: int) -> bool:
        """Whether an op of the input program reads a value, or a part, and its next state."""
        new = buffer[update.eclass]
        behind = {new, *_reached(readers, buffer, new, lambda n: True)}
        parts = [old, *_reached(readers, buffer, old, lambda n: not isinstance(n.attr, Generic))]
        found = (n for p in parts for n in readers.get(p, ()) if buffer[n.eclass] != new)
        return any(buffer[c] in behind for n in found for c in n.children)

    olds = [(n, buffer[old]) for n, old in updates]
    return frozenset(old for n, old in olds if old not in kept and not is_read_behind(n, old))


def _reached(
    readers: Mapping[int, Sequence[ENode]],
    buffer: Sequence[int],
    start: int,
    through: Callable[[ENode], bool],
) -> set[int]:
    """Buffers that are computed from this one by such nodes."""
    found, left = set[int](), [start]
    while left:
        for n in readers.get(left.pop(), ()):
            if buffer[n.eclass] not in found and through(n):
                found.add(buffer[n.eclass])
                left.append(buffer[n.eclass])
    return found
