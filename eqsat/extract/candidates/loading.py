"""What weights take while they are packed, as rows for the solver.

Weights are packed in the order of the program. All originals are there at first. Each layout that
is kept is made in one pass, in the turn of the last weight it is made from; an original goes after
the last turn that needs it, unless it is kept itself.
"""

from __future__ import annotations

from eqsat.extract.candidates.life import sources_of
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.choice.columns import KeptRow
from eqsat.model.target import DROPPED, HELD

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
    found: dict[str, tuple[KeptRow, ...]] = {}
    if "resident" in pool.asked:
        found["resident"] = (_resident(pool),)
    if "load_peak" in pool.asked:
        drops = pool.legality.target.originals == DROPPED
        found["load_peak"] = _turns(pool) if drops else (_resident(pool),)
    return found


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
    kept = sorted(pool.resident)
    last = {b: max(turn[w] for w in sources[b]) for b in kept}
    made = [b for b in kept if sources[b] != {b}]
    rows = []
    for t in sorted({last[b] for b in made}) or [len(turn)]:
        terms: list[Term] = []
        for w in turn:
            needed = (w, *(b for b in made if w in sources[b] and last[b] >= t))
            terms.append((pool.space.nbytes(w), needed))
        terms += [(pool.space.nbytes(b), (b,)) for b in made if last[b] <= t]
        rows.append(_row(terms, always))
    return tuple(dict.fromkeys(rows))


def _row(terms: list[Term], always: frozenset[int]) -> KeptRow:
    fixed = [n for n, any_of in terms if not always.isdisjoint(any_of)]
    return KeptRow(sum(fixed), tuple(t for t in terms if always.isdisjoint(t[1])))
