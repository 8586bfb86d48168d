"""A kernel whose nest the check cannot decide, held against its dispatch's ops on random numbers.

Such nests are rare: bounds that tie loops in two ways over more points than are enumerated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.execute.compare import distance, misshapen, size
from eqsat.execute.dispatchwise import local_program
from eqsat.execute.draw import random_inputs
from eqsat.execute.openlanes import open_elements
from eqsat.execute.rounding import error_limit
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import is_float

Sides = tuple[Callable[..., Any], Callable[..., Any]]


def disagreement(schedule: Schedule, number: int, sides: Sides) -> str:
    """How a kernel (the first side) differs from its dispatch's ops, "" if as rounding does."""
    import jax

    d = schedule.dispatches[number]
    local, lanes = local_program(schedule, d), open_elements(schedule.program)
    reads, limit = random_inputs(local, np.random.default_rng(0)), 2 * error_limit(local)
    with jax.ensure_compile_time_eval():
        results = [[np.asarray(x) for x in jax.jit(f)(*reads)] for f in sides]
    for w, got, want in zip(d.writes, *results, strict=True):
        if why := misshapen(got, want) if got.shape != want.shape else "":
            return f"%{w}{why}"
        away = np.where(lanes[w], 0.0, distance(got, want)) if w in lanes else distance(got, want)
        allowed = limit * size(want) if is_float(schedule.program.nodes[w].type.dtype) else 0.0
        if (worst := float(away.max(initial=0.0))) > allowed:
            return f"%{w} differs by {worst:.2g} from what its ops give"
    return ""
