"""EGraph × Target × goals → Selection, proven by CP-SAT (the only home of ortools)."""

from eqsat.extract.check import check
from eqsat.extract.search import extract, extract_greedily
from eqsat.extract.selected import first_answer, graph_of_program, reprice

__all__ = ["check", "extract", "extract_greedily", "first_answer", "graph_of_program", "reprice"]
