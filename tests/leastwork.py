"""How much work the cheapest tree of an e-graph takes, for tests of rules that take work away."""

from __future__ import annotations

import math

from eqsat.model.egraph import EGraph
from eqsat.model.generic import Generic


def work_of_op(attr: object) -> int:
    """Iterations of all loops of one op."""
    return math.prod(attr.sizes) if isinstance(attr, Generic) else 0


def cheapest_tree(graph: EGraph) -> int:
    """Iterations of all loops of the cheapest tree of the first root; shared work counts twice."""
    works: dict[int, float] = {}
    changed = True
    while changed:
        changed = False
        for n in graph.nodes:
            work = work_of_op(n.attr) + sum(works.get(c, math.inf) for c in n.children)
            if work < works.get(n.eclass, math.inf):
                works[n.eclass], changed = work, True
    return int(works[graph.roots[0]])
