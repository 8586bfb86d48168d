"""Pairs of programs that compute the same, one with less work; `PAIRS` has them by name."""

from . import chains, loops, merges, moves, networks, reads, structure, sums
from .catalogue import PAIRS, Entry, Pair

THEMES = (sums, chains, moves, reads, structure, merges, networks, loops)

__all__ = ["PAIRS", "THEMES", "Entry", "Pair"]
