"""Work every answer must do: values it computes, and ops of which it holds one.

Values are AND/OR dominators over logical values. Without a cut per needed value CP-SAT does not
prove layout graphs (decision 26). Where a needed value may be cut out of another one, what
computes it is often next to free, and all the work lies behind; there a cut runs through that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eqsat.extract.candidates.space import MOVING
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool


def derivations(pool: Pool) -> dict[int, list[frozenset[int]]]:
    """Per value: the values each node reads that computes it anew (conversions do not)."""
    space, found = pool.space, dict[int, list[frozenset[int]]]()
    for i, v in _makers(pool):
        reads = frozenset([space.value[o] for o in space.operands[i]])
        found.setdefault(v, []).append(reads)
    return found


def _makers(pool: Pool) -> Iterator[tuple[int, int]]:
    """(node, value it computes anew)."""
    space = pool.space
    for nodes in pool.producers.values():
        for i in nodes:
            if space.kinds[i] in MOVING:
                continue
            reads = {space.value[c] for c in space.egraph.nodes[i].children}
            yield from (
                (i, space.value[c]) for c in space.outputs[i] if space.value[c] not in reads
            )


def necessity(pool: Pool) -> dict[int, int]:
    """Per value that is computed at run time: the values every derivation computes, as bits.

    need(v) = {v} ∪ ⋂ over nodes of v, ⋃ over operands u of need(u): the greatest fixpoint.
    """
    known = {pool.space.value[b] for b in pool.ahead}
    found = pool.derivations
    ways = {v: w for v, w in found.items() if not pool.space.is_source(v) and v not in known}
    return necessary(ways)


def necessary(ways: Mapping[int, Sequence[frozenset[int]]]) -> dict[int, int]:
    """`necessity`, given what each way to compute a value reads."""
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
    total = union(need, frozenset(pool.space.value[r] for r in pool.space.roots))
    return tuple(v for v in sorted(need) if total >> v & 1)


def union(need: dict[int, int], values: Iterable[int]) -> int:
    """What these values need together, as bits."""
    total = 0
    for v in values:
        total |= need.get(v, 0)
    return total


# ---- the ops behind --------------------------------------------------------------------------
LIGHT = ("elementwise", "move")  # kinds that are looked through


def served_values(pool: Pool) -> dict[int, frozenset[int]]:
    """Per node: needed values of which every answer holds this node or another one that is there.

    To compute a value is to hold one of its nodes. A light one of these reads values that are
    computed, too: for one that is not needed by itself its own nodes stand there instead, and so
    on. That ends, as each is computed before what reads it. Values of which nothing was replaced
    are left out: `needed_values` says as much.
    """
    found: dict[int, set[int]] = {}
    below = _replaced(pool)
    for v in pool.needed:
        seen = _behind(below, v)
        nodes = {node for w in seen for node, u in below[w] if u is None}
        for node in nodes if len(seen) > 1 else ():
            found.setdefault(node, set()).add(v)
    return {node: frozenset(values) for node, values in found.items()}


def served_by(pool: Pool, members: Iterable[int], written: Iterable[int]) -> frozenset[int]:
    """Needed values that an option serves: it has a node for them, and they stay or come out.

    Where a dispatch is cut out of a larger product, only what it writes need be computed, at its
    price; so a product of which other values are cut counts for those alone. Every answer has an
    option that serves a needed v: the one that computes v does if the node lies in it. If not, it
    reads a value that stands in place of v. What writes that one is asked in the same way, and so
    on; so the last one writes such a value (`values_behind`), and holds the node.

    written: values that it writes.
    """
    nobody, shown, members = frozenset[int](), frozenset(written), tuple(members)
    computed = pool.space.computes(members)
    held = frozenset().union(*(pool.served.get(m, nobody) for m in members))
    return frozenset(v for v in held if v in computed or not shown.isdisjoint(pool.behind[v]))


def values_behind(pool: Pool) -> dict[int, frozenset[int]]:
    """Per value computed at run time: itself, and those that stand in its place (see above)."""
    below = _replaced(pool)
    return {v: _behind(below, v) for v in below}


Below = Mapping[int, Sequence[tuple[int, int | None]]]


def _behind(below: Below, value: int) -> frozenset[int]:
    tick()
    seen, waiting = {value}, [value]
    while waiting:
        news = {u for _, u in below[waiting.pop()] if u is not None} - seen
        seen |= news
        waiting += sorted(news)
    return frozenset(seen)


def _replaced(pool: Pool) -> dict[int, list[tuple[int, int | None]]]:
    """Per value: its nodes, and what is looked at in place of a light one: a value that it reads.

    That is the first one computed at run time and not needed by itself. None: there is none.
    """
    space, found = pool.space, dict[int, list[tuple[int, int | None]]]()
    ways, needed = necessity(pool).keys(), frozenset(pool.needed)
    for node, v in _makers(pool):
        reads = [space.value[c] for c in space.egraph.nodes[node].children]
        open_ = (u for u in reads if u in ways and u not in needed and u != v)
        below = next(open_, None) if space.kinds[node] in LIGHT else None
        found.setdefault(v, []).append((node, below))
    return found
