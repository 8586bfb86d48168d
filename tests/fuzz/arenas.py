"""A schedule on one arena as what is verified: nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.compare import MISMATCH, Verification
from eqsat.execute.verify import verify
from eqsat.model.limits import WORK_LIMIT
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule


def verify_on_arena(
    program: Program,
    schedule: Schedule,
    weights: Mapping[str, Any],
    opaque: Mapping[str, Callable[..., Sequence[Any]]],
    *,
    samples: int = 1,
    seed: int = 0,
    work_limit: float = WORK_LIMIT,
) -> Verification:
    """As `verify`, with the schedule on one arena as what is called."""
    arena = Arena(schedule, opaque)
    try:
        found = verify(
            program, lambda *xs: arena(xs, weights), weights, opaque,
            chosen=schedule.program, samples=samples, seed=seed, work_limit=work_limit,
        )  # fmt: skip
    except ArenaFault as fault:
        reason = f"on one arena: {fault}"
        inf = float("inf")
        found = Verification(False, inf, 0.0, 0, reason, MISMATCH, reason)
    return replace(found, arena=found.outcome, arena_reason=found.reason)
