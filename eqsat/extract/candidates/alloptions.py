"""The options of all candidates as objects, for problems that are stated option by option."""

from __future__ import annotations

from eqsat.extract.candidates.tabulate import option_table
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
        table = option_table(variants, prices=object)
        variants.stated[ALL] = table.variants(variants.space, range(len(table)))
    return variants.stated[ALL]


def placed(variants: Variants, places: Timetable) -> list[Variant]:
    """Every option at every moment it may run."""
    return [
        Variant(v.candidate, m, *v[2:])
        for v in all_options(variants)
        for m in places.moments(v.candidate, v.reads, v.writes, v.is_conversion)
    ]
