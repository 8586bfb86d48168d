"""Bounds that hold for every candidate there could be: nothing is enumerated for them.

They are far below what a search proves, and stand where there was no time for more.
"""

from __future__ import annotations

import math
from contextlib import suppress

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.cover import derivations
from eqsat.extract.candidates.pool import Pool
from eqsat.model.control import Control
from eqsat.model.deadline import OutOfTime, tick

ROUNDING = 1e-9  # of a sum of picoseconds in floating point


def floors(pool: Pool, costs: Costs) -> dict[str, int]:
    """Per goal a proven lower bound, whatever the dispatches, layouts and order.

    Memory holds all arguments and results, and the weights that are read whatever is chosen. Time
    is at least the arithmetic of all values that every derivation computes, each by its cheapest
    op, and at least the time to write the results down.
    """
    space, target = pool.space, costs.target
    roots = [r for r in space.roots if r not in space.inputs]
    memory = space.input_bytes + sum(space.nbytes(r) for r in roots)
    with suppress(OutOfTime):
        memory += _weight_bytes(pool)
    made = [r for r in roots if r not in pool.held]
    if not made:
        return {"time": 0, "memory": memory, "dispatches": 0}
    try:
        compute = _compute_ps(pool, costs)
    except OutOfTime:
        compute = 0.0
    machines = [t for _, t in target.devices] or [target]
    written = sum(min(Costs(space, m).class_ps[r] for m in machines) for r in made)
    launch = min(m.launch_ps for m in machines)
    time_ps = max(math.floor(compute * (1 - ROUNDING)), written) + launch
    if any(isinstance(n.attr, Control) or n.op == "transfer" for n in space.egraph.nodes):
        time_ps = 0  # these have prices of their own, without traffic or launch
    return {"time": time_ps, "memory": memory, "dispatches": 1}


def _weight_bytes(pool: Pool) -> int:
    """Bytes of weights that are kept at the least, results not counted.

    Every op that computes a needed value reads some, each in its smallest layout. What may be
    shared is counted once: of needed values that could read the same, only the one with most.
    """
    if pool.legality.target.devices:
        return 0
    least, ways = _least_layouts(pool), derivations(pool)
    most: list[tuple[set[int], int]] = []  # weights that may be read, bytes; disjoint sets
    for v in pool.needed:
        tick()
        own = {w for reads in ways[v] for w in reads if w in least}
        nbytes = min(sum(least.get(w, 0) for w in reads) for reads in ways[v])
        for other in [o for o in most if not own.isdisjoint(o[0])]:
            most.remove(other)
            own, nbytes = own | other[0], max(nbytes, other[1])
        most.append((own, nbytes))
    return sum(nbytes for _, nbytes in most)


def _least_layouts(pool: Pool) -> dict[int, int]:
    """Per value that is there from the start, and that no run computes: its smallest layout."""
    space, found = pool.space, dict[int, int]()
    for b in pool.resident:
        v = space.value[b]
        found[v] = min(found.get(v, space.nbytes(b)), space.nbytes(b))
    made = {
        space.value[b]
        for b, producers in pool.producers.items()
        if b not in pool.held and any(space.kinds[p] != "conversion" for p in producers)
    }
    shown = {space.value[b] for b in (*space.roots, *pool.fills, *pool.constants)}
    return {v: n for v, n in found.items() if v not in made | shown}


def _compute_ps(pool: Pool, costs: Costs) -> float:
    """Arithmetic of the needed values, each by the cheapest op that computes it."""
    space = pool.space
    needed = set(pool.needed)
    least: dict[int, float] = {}
    for p in {p for producers in pool.producers.values() for p in producers}:
        computed = space.computes((p,))
        if computed.isdisjoint(needed):
            continue
        own = costs.of((p,))
        share = own.target.calls * own.least_ps(p, own.iterations[p]) / len(computed)
        for v in computed:
            least[v] = min(share, least.get(v, share))
    return sum(least.get(v, 0.0) for v in needed)
