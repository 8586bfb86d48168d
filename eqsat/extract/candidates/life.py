"""How a weight may live: there from the start, or made from others in every run.

What can be computed from weights alone may be there before the first dispatch (it was stored so, or
is made once at load) or be made at run time, by dispatches of its own or inside of those that read
it. The first is never slower and is the only way where it can be no worse: where a buffer is no
larger than the weights it is made from and nothing else needs these. A product that another one may
be cut out of is nothing else: no answer needs both. And what weights take while they are packed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eqsat.extract.choice.columns import KeptRow
from eqsat.extract.choice.linear import OTHERS
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.selection import GoalRequest
from eqsat.model.target import DROPPED, HELD

if TYPE_CHECKING:
    from eqsat.extract.candidates.pool import Pool
    from eqsat.model.target import Target


CALLER = -1  # who reads results
AGAIN = -2  # who reads a second time what is made from a weight


def found_optional(pool: Pool) -> frozenset[int]:
    """Buffers computed from weights that may be better made at run time; results stay weights."""
    space, target = pool.space, pool.legality.target
    if target.devices and not target.has_parts:
        return frozenset()
    optional = {
        b
        for b in pool.resident - frozenset(space.roots)
        if pool.producers.get(b) and space.nbytes(b) > pool.small_bytes
    }
    if not optional:
        return frozenset()
    if target.originals == HELD and not pool.asked.isdisjoint(OTHERS):
        return frozenset(optional)
    if target.originals == DROPPED and "load_peak" in pool.asked:
        return frozenset(optional)
    sources, users = sources_of(pool), _users(pool)
    return frozenset(
        b
        for b in optional
        if space.nbytes(b) > sum(space.nbytes(s) for s in sources[b])
        or any(len(users[s]) > 1 for s in sources[b])
    )


def small_bytes(target: Target, goals: Sequence[GoalRequest]) -> int:
    """Bytes of what is not worth a dispatch that makes it in every run, where time comes first.

    Reading it from the slowest memory takes no longer than the launch of that dispatch. 0 where
    bytes of weights may decide: they come first or have a budget, or time has a tolerance or a
    weight.
    """
    first = goals[0]
    if (
        first != GoalRequest("time")
        or not dict(target.budget).keys().isdisjoint(OTHERS)
        or not target.memory
    ):
        return 0
    slowest = min(m.bandwidth for m in target.memory)
    return int(target.launch_ps * slowest / PS_PER_SECOND)


def sources_of(pool: Pool) -> dict[int, frozenset[int]]:
    """Per buffer that is computed from weights: the weights it is made from ahead of time."""
    space, sources = pool.space, dict[int, frozenset[int]]()
    for b in pool.ahead:
        for node in pool.ahead_nodes([b]):
            buffer = space.buffer[space.egraph.nodes[node].eclass]
            if buffer in sources:
                continue
            if space.egraph.nodes[node].op == "weight":
                sources[buffer] = frozenset({buffer})
            else:
                below = (sources.get(o, frozenset()) for o in space.operands[node])
                sources[buffer] = frozenset().union(*below)
    return sources


def _users(pool: Pool) -> dict[int, set[int]]:
    """Per weight: the values computed at run time that read something made from it."""
    space = pool.space
    by_value: dict[int, set[int]] = {}
    for b, sources in sources_of(pool).items():
        by_value.setdefault(space.value[b], set()).update(sources)
    users_of: dict[int, set[int]] = {s: set() for s in set().union(*by_value.values())}
    for value in by_value.keys() & {space.value[r] for r in space.roots}:
        for s in by_value[value]:
            users_of[s].add(CALLER)
    twice: dict[tuple[int, int], set[int]] = {}  # value that may be computed twice, weight -> reads
    for node, values in _computing(pool):
        reads = [
            (s, o) for o in set(space.operands[node]) for s in by_value.get(space.value[o], ())
        ]
        counts = Counter(s for s, _ in reads)
        for s, count in counts.items():
            users_of[s].update(values, [AGAIN] if count > 1 else [])
        if pool.legality.of((node,)).is_cloneable(node):
            for s, o in reads:
                twice.setdefault((min(values), s), set()).add(o)
    for (_, s), layouts in twice.items():
        users_of[s].update([AGAIN] if len(layouts) > 1 else [])
    return {s: _at_once(users, pool.behind) for s, users in users_of.items()}


def _at_once(users: set[int], behind: Mapping[int, frozenset[int]]) -> set[int]:
    """Without values that stand in place of another one; of a circle the least stays."""
    nobody = frozenset[int]()
    return {
        u
        for u in users
        if not any(
            u in behind.get(v, nobody) and (v not in behind.get(u, nobody) or v < u)
            for v in users - {u}
        )
    }


def _computing(pool: Pool) -> Iterator[tuple[int, set[int]]]:
    """Nodes that compute values at run time, and these."""
    space = pool.space
    there = {space.value[b] for b in pool.ahead}
    for i, is_op in enumerate(space.is_op):
        values = {space.value[c] for c in space.outputs[i]} - there
        if is_op and space.kinds[i] != "conversion" and values:
            yield i, values


# ---- what weights take while they are packed -----------------------------------------------------
# Weights are packed in the order of the program. All originals are there at first. Each layout that
# is kept is made in one pass, in the turn of the last weight it is made from; an original goes
# after the last turn that needs it, unless it is kept itself.
Term = tuple[int, tuple[int, ...]]


def originals_held(pool: Pool) -> frozenset[int]:
    """Weights that are in memory whatever is chosen, as the caller holds them."""
    if pool.legality.target.originals != HELD:
        return frozenset()
    return frozenset(_originals(pool))


def _originals(pool: Pool) -> list[int]:
    """The buffers of all weights, in the order of the program."""
    space = pool.space
    nodes = space.egraph.nodes
    return list(dict.fromkeys(space.buffer[n.eclass] for n in nodes if n.op == "weight"))


def kept_rows(pool: Pool) -> dict[str, tuple[KeptRow, ...]]:
    """Per goal about bytes of weights that is asked for: the rows of which it is the largest."""
    rows: dict[str, tuple[KeptRow, ...]] = {}
    if "resident" in pool.asked:
        rows["resident"] = (_resident(pool),)
    if "load_peak" in pool.asked:
        drops = pool.legality.target.originals == DROPPED
        rows["load_peak"] = _turns(pool) if drops else (_resident(pool),)
    return rows


def _always(pool: Pool) -> frozenset[int]:
    """Kept whatever is chosen: weights that are results, and those the caller holds."""
    roots = (r for r in pool.space.roots if r in pool.resident)
    return originals_held(pool).union(roots)


def _resident(pool: Pool) -> KeptRow:
    size, always = pool.space.nbytes, _always(pool)
    terms = tuple((size(b), (b,)) for b in sorted(pool.resident - always))
    return KeptRow(sum(map(size, always)), terms)


def _turns(pool: Pool) -> tuple[KeptRow, ...]:
    """A row per weight of which a layout may be kept, and one for the originals alone."""
    sources, always = sources_of(pool), _always(pool)
    turn = {w: n for n, w in enumerate(_originals(pool))}
    resident = sorted(pool.resident)
    last = {b: max(turn[w] for w in sources[b]) for b in resident}
    computed = [b for b in resident if sources[b] != {b}]
    rows = []
    for t in sorted({last[b] for b in computed}) or [len(turn)]:
        terms: list[Term] = []
        for w in turn:
            needed = (w, *(b for b in computed if w in sources[b] and last[b] >= t))
            terms.append((pool.space.nbytes(w), needed))
        terms += [(pool.space.nbytes(b), (b,)) for b in computed if last[b] <= t]
        rows.append(_row(terms, always))
    return tuple(dict.fromkeys(rows))


def _row(terms: list[Term], always: frozenset[int]) -> KeptRow:
    fixed = [n for n, any_of in terms if not always.isdisjoint(any_of)]
    return KeptRow(sum(fixed), tuple(t for t in terms if always.isdisjoint(t[1])))
