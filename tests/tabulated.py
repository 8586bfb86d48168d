"""The table of every option of every candidate, for the tests that compare with it."""

from __future__ import annotations

from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.tabulate import PART, tabulated_of
from eqsat.extract.candidates.sources import Variants


def tabulated(variants: Variants, *, size: int = PART) -> OptionTable:
    """In the order of the candidates, made of so many at once."""
    return tabulated_of(variants, CandidateTable(variants.candidates), size=size)
