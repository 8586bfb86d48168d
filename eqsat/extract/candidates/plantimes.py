"""Times of columns that need a plan, computed where a column may be in the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.candidates.listed import CandidateTable, Listed
from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.linear import Time
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.sources import Sources


def with_plan_times(sources: Sources, choice: Columns, rows: Ints) -> Columns:
    """The same columns with the times of these.

    OverflowError if sums of them are too large for arrays.
    """
    rows = rows[~choice.is_asked[rows]]
    owners, extras = choice.candidate[rows], choice.extras.take(rows)
    time_ps = asked_ps(sources.costs, sources.candidates, owners, extras)
    time_ps = time_ps * sources.space.times_in(choice.last[rows])
    is_short = choice.adds.dtype != object
    # sums in arrays of 64 bits, with some room
    if is_short and int(time_ps.max(initial=0)) * len(sources.space.buffer) >= 2**62:
        raise OverflowError("times of dispatches")
    adds, is_asked = choice.adds.copy(), choice.is_asked.copy()
    is_asked[rows] = True
    for at in (i for i, g in enumerate(sources.goals.values()) if isinstance(g, Time)):
        adds[rows, at] = time_ps
    return replace(choice, adds=adds, is_asked=is_asked)


def asked_ps(
    costs: Costs, candidates: CandidateTable | Listed, owners: Ints, extras: Ragged
) -> Ints:
    """Picoseconds of each candidate's dispatch that also writes `extras`, by its plan."""
    found = np.empty(len(owners), dtype=candidates.prices)
    known: dict[tuple[int, ...], int] = {}
    for i, number in enumerate(owners.tolist()):
        tick()
        key = (number, *extras[i].tolist())
        if key not in known:
            c = candidates[number]
            known[key] = costs.of(c.members).wider_ps(c, key[1:])
        found[i] = known[key]
    return found
