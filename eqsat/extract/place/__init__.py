"""Lifetimes → Placement: where every buffer lies in one arena, proven where it can be.

problem.py makes plain integers, firstfit.py places by heuristics, depthfirst.py (the only home of
numba) searches, search.py knows their order, check.py checks every answer.
"""

from eqsat.extract.place.search import place

__all__ = ["place"]
