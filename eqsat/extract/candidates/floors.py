"""Bounds that hold for every candidate there could be: nothing is enumerated for them.

They are far below what a search proves, and stand where there was no time for more.
"""

from __future__ import annotations

import math

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.cover import needed_values
from eqsat.extract.candidates.pool import Pool
from eqsat.model.control import Control
from eqsat.model.deadline import OutOfTime

ROUNDING = 1e-9  # of a sum of picoseconds in floating point


def floors(pool: Pool, costs: Costs) -> dict[str, int]:
    """Per goal a value that no answer is below, whatever its dispatches, layouts and order.

    Memory holds all arguments and results. Time is at least the arithmetic of all values that every
    derivation computes, each by its cheapest op, and at least the time to write the results down.
    """
    space, target = pool.space, costs.target
    roots = [r for r in space.roots if r not in space.inputs]
    memory = space.input_bytes + sum(space.nbytes(r) for r in roots)
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


def _compute_ps(pool: Pool, costs: Costs) -> float:
    """Arithmetic of the needed values, each by the cheapest op that computes it."""
    space = pool.space
    needed = set(needed_values(pool))
    least: dict[int, float] = {}
    for p in {p for producers in pool.producers.values() for p in producers}:
        computed = space.computes((p,))
        if computed.isdisjoint(needed):
            continue
        own = costs.of((p,))
        share = own.compute_ps(p, own.iterations[p]) / len(computed)
        for v in computed:
            least[v] = min(share, least.get(v, share))
    return sum(least.get(v, 0.0) for v in needed)
