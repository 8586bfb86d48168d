"""Lifetimes → Placement: the offset of every buffer in one arena, proven where possible.

problem.py makes plain integers, firstfit.py places by heuristics, depthfirst.py (the only home of
numba) searches, search.py knows their order, check.py checks every answer.
"""

from eqsat.extract.place.search import place

__all__ = ["place"]
