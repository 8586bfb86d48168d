"""Lifetimes → Placement: the offset of every buffer in one arena, proven where possible.

firstfit.py makes plain integers and places by heuristics, depthfirst.py searches in machine code,
search.py knows their order. The placement checks itself.
"""

from eqsat.extract.place.search import place

__all__ = ["place"]
