"""E-graph → values whose bytes the next state may have, as nothing reads them once it is there.

A state of which a few elements are new is computed from the one before. Whoever else reads that one
keeps its bytes, unless he has to come first; and so does the caller of a result.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.egraph import EGraph, ENode
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf, is_donated
from eqsat.model.ops import LEAVES
from eqsat.ops.contractions.roles import kind
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
    """Buffers of donated arguments and of computed values that an update surely may overwrite: all
    else that reads them is needed for it."""
    updates = update_nodes(egraph) if lines else []
    if not updates:
        return frozenset()
    graph = _Reads(egraph, buffer)
    kept = {buffer[n.eclass] for n in egraph.nodes if n.op in LEAVES and not is_donated(n.attr)}
    kept |= {buffer[r] for r in egraph.roots}
    found: dict[int, bool] = {}
    for i, old in updates:
        b = buffer[old]
        if b not in kept and found.get(b, True):
            found[b] = graph.is_last(egraph.nodes[i], b)
    return frozenset(b for b, is_last in found.items() if is_last)


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
        found, left = set[int](), [self.buffer[c] for c in node.children]
        while left:
            b = left.pop()
            if b not in found:
                found.add(b)
                left += [self.buffer[c] for n in self.makers.get(b, ()) for c in n.children]
        return found

    def _computed_from(self, old: int) -> set[int]:
        """What is computed from elements of a buffer; moves hand them on."""
        found, seen, left = set[int](), {old}, [old]
        while left:
            for n in self.readers.get(left.pop(), ()):
                b = self.buffer[n.eclass]
                if kind(n.op, n.attr) not in ("view", "move", "conversion"):
                    found.add(b)
                elif b not in seen:
                    seen.add(b)
                    left.append(b)
        return found
