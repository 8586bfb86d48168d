"""EGraph × Target × goals → Selection, proven by CP-SAT (the only home of ortools)."""

from eqsat.extract.check import check
from eqsat.extract.reprice import reprice
from eqsat.extract.search import extract

__all__ = ["check", "extract", "reprice"]
