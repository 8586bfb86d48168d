"""Lifetimes → Placement: the offset of every buffer in one arena, proven where possible.

search.py makes plain integers, places by first fit and knows the order of searches; depthfirst.py
searches in machine code. The placement checks itself.
"""

from eqsat.extract.place.search import place

__all__ = ["place"]
