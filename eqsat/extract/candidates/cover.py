"""Values every answer must compute: AND/OR dominators over logical values.

Without a cut per needed value CP-SAT does not prove layout graphs (`docs/decisions.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eqsat.extract.candidates.space import MOVING
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool


def derivations(pool: Pool) -> dict[int, list[frozenset[int]]]:
    """Per value: the values each node reads that computes it anew (conversions do not)."""
    space = pool.space
    found: dict[int, list[frozenset[int]]] = {}
    for nodes in pool.producers.values():
        for i in nodes:
            if space.kinds[i] in MOVING:
                continue
            reads = frozenset(space.value[c] for c in space.egraph.nodes[i].children)
            for c in space.outputs[i]:
                if space.value[c] not in reads:
                    found.setdefault(space.value[c], []).append(reads)
    return found


def necessity(pool: Pool) -> dict[int, int]:
    """Per value that is computed at run time: the values every derivation computes, as bits.

    need(v) = {v} ∪ ⋂ over nodes of v, ⋃ over operands u of need(u): the greatest fixpoint.
    """
    known = {pool.space.value[b] for b in pool.ahead}
    found = derivations(pool)
    ways = {v: w for v, w in found.items() if not pool.space.is_source(v) and v not in known}
    everything = sum(1 << v for v in ways)
    need = dict.fromkeys(ways, everything)
    changed = True
    while changed:
        changed = False
        for v, options in ways.items():
            tick()
            new = everything
            for reads in options:
                new &= union(need, reads)
            new |= 1 << v
            if new != need[v]:
                need[v], changed = new, True
    return need


def needed_values(pool: Pool) -> tuple[int, ...]:
    """Values every derivation of the roots computes at run time, ascending."""
    need = necessity(pool)
    roots = [pool.space.value[r] for r in pool.space.roots if r not in pool.held]
    total = union(need, frozenset(roots))
    return tuple(v for v in sorted(need) if total >> v & 1)


def union(need: dict[int, int], values: Iterable[int]) -> int:
    """What these values need together, as bits."""
    total = 0
    for v in values:
        total |= need.get(v, 0)
    return total
