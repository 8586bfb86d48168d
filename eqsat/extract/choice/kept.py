"""Bytes of weights as goals: what stays in memory (`resident`), and the most there is at load.

Both are the largest of some rows, each a sum of bytes over sets of buffers of which one is kept.
They depend on which weights the chosen dispatches read, and on no order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class KeptRow:
    """Bytes at one moment of loading: `base`, and those of every term of which a buffer is kept."""

    base: int
    terms: tuple[tuple[int, tuple[int, ...]], ...]

    def value(self, kept: Set[int]) -> int:
        """Bytes if these buffers are kept."""
        return self.base + sum(n for n, any_of in self.terms if not kept.isdisjoint(any_of))

    @property
    def most(self) -> int:
        return self.base + sum(n for n, _ in self.terms)


def unit_of(rows: Sequence[KeptRow]) -> int:
    """Bytes that all sizes are multiples of."""
    sizes = (n for r in rows for n, _ in r.terms)
    return math.gcd(*sizes, *(r.base for r in rows)) or 1
