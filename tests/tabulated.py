"""The table of every option of every candidate and copy, for the tests that compare with it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.tabulate import PART, read_by_any, tabulated_of
from eqsat.extract.candidates.variants import Variants


def tabulated(variants: Variants, *, size: int = PART) -> Iterator[OptionTable]:
    """In the order of the candidates, of at most so many at once."""
    every = CandidateTable(variants.candidates, variants.copies)
    numbers = np.arange(len(every))
    yield from tabulated_of(variants, every, numbers, read_by_any(variants, every), size=size)
