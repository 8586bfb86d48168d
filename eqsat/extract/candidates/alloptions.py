"""The options of all candidates as objects, for problems that are stated option by option."""

from __future__ import annotations

import numpy as np

from eqsat.extract.candidates.dominance import undominated
from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.plantimes import with_plan_times
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.tabulate import read_by_any, tabulated_of
from eqsat.extract.candidates.timetable import Timetable
from eqsat.extract.candidates.variants import Variant, Variants

ALL = "options"  # what `Variants.stated` calls them


def all_options(variants: Variants) -> tuple[Variant, ...]:
    """The options without regard to when they run, each at the begin; found once.

    Without dominated ones, unless these are requested. Prices are of any size, as arrays hold
    Python's own numbers here.
    """
    if variants.options is not None:
        return variants.options
    if ALL not in variants.stated:
        every = CandidateTable(variants.candidates, variants.copies, object)
        numbers, is_read = np.arange(len(every)), read_by_any(variants, every)
        table = OptionTable.stacked(list(tabulated_of(variants, every, numbers, is_read)))
        rows = np.arange(len(table))
        table = with_plan_times(variants, table, rows)
        kept = rows if variants.pool.keeps_all else undominated(table).kept
        variants.stated[ALL] = table.variants(variants.space, kept.tolist())
    return variants.stated[ALL]


def placed(variants: Variants, places: Timetable) -> list[Variant]:
    """Every option at every moment it may run."""
    return [
        Variant(v.candidate, m, *v[2:])
        for v in all_options(variants)
        for m in places.moments(v.candidate, v.reads, v.writes, v.is_conversion)
    ]
