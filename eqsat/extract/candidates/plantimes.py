"""Times of options that need a plan, computed where an option may be in the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.candidates.listed import CandidateTable, Listed
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.ragged import Ints, Ragged
from eqsat.extract.solve.linear import Time
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.candidates.variants import Variants

LARGEST = 2**62  # of a sum in an array of 64 bits, with some room


def with_plan_times(variants: Variants, table: OptionTable, rows: Ints) -> OptionTable:
    """The same options with the times of these.

    OverflowError if sums of them are too large for arrays.
    """
    rows = rows[~table.is_asked[rows]]
    owners, extras = table.candidate[rows], table.extras.take(rows)
    time_ps = asked_ps(variants.costs, table.candidates, owners, extras)
    time_ps = time_ps * variants.space.times_in(table.last[rows])
    is_short = table.candidates.prices is not object
    if is_short and int(time_ps.max(initial=0)) * len(variants.space.buffer) >= LARGEST:
        raise OverflowError("times of dispatches")
    adds, is_asked = table.adds.copy(), table.is_asked.copy()
    is_asked[rows] = True
    for at in (i for i, g in enumerate(variants.goals.values()) if isinstance(g, Time)):
        adds[rows, at] = time_ps
    return replace(table, adds=adds, is_asked=is_asked)


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
