"""What the collectives of a plan save: the best plan that sends nothing in their place."""

from __future__ import annotations

import time
from collections.abc import Sequence

from eqsat.extract.mesh.plan import MeshPlanner
from eqsat.model.meshplan import MeshPlan, Reshard


def prices_without(
    planner: MeshPlanner, plan: MeshPlan, asked: Sequence[Reshard], seconds: float, seed: int
) -> dict[Reshard, MeshPlan | str]:
    """Per conversion the quickest plan in which its value is not sent there.

    A text where there is none: `infeasible` within the memory of a device, or `unknown`.
    """
    deadline = time.monotonic() + seconds
    found: dict[Reshard, MeshPlan | str] = {}
    for number, reshard in enumerate(asked):
        share = (deadline - time.monotonic()) / (len(asked) - number)
        other = planner.without([(reshard.node, reshard.reader)])
        found[reshard] = other.quickest(max(share, 1.0), seed, plan.mesh.memory_bytes)
    return found
