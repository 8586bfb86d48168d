"""Condition: what a tile, kernel or pipeline requires of a contraction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Condition:
    """`left op right`, e.g. `m <= 8` or `lhs == f32`.

    left: a loop extent (m, n, k, batch; of a convolution c, k, batch, and of a kernel for one also
    window and places) or an element type (lhs, rhs, acc).
    """

    left: str
    op: str  # == != < <= > >=
    right: int | str
