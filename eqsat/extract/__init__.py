"""EGraph × Target × goals → Selection, proven by CP-SAT (the only home of ortools)."""

from eqsat.extract.cheapest import extract_greedily
from eqsat.extract.check import check
from eqsat.extract.reprice import reprice
from eqsat.extract.search import extract

__all__ = ["check", "extract", "extract_greedily", "reprice"]
