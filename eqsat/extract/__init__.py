"""EGraph × Target × goals → Selection, proven by CP-SAT (the only home of ortools)."""

from eqsat.extract.check import check
from eqsat.extract.given import reprice
from eqsat.extract.search import extract, extract_greedily

__all__ = ["check", "extract", "extract_greedily", "reprice"]
