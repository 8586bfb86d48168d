"""Bytes of weights as goals: what stays in memory (`resident`), and the most there is at load.

Both are the largest of some rows, each a sum of bytes over sets of buffers of which one is kept.
They depend on which weights the chosen dispatches read, and on no order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eqsat.extract.solve.live import claims

if TYPE_CHECKING:
    from eqsat.extract.solve.cpsat import Model
    from eqsat.extract.solve.lp import Rows
    from eqsat.extract.solve.problem import ExtractionProblem


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


@dataclass(frozen=True)
class KeptBytes:
    """The rows of a goal over one problem, for the solver and for its relaxation."""

    problem: ExtractionProblem
    rows: tuple[KeptRow, ...]

    @property
    def most(self) -> int:
        return max(r.most for r in self.rows)

    @property
    def least(self) -> int:
        return max(r.base for r in self.rows)

    @cached_property
    def unit(self) -> int:
        """Bytes that all sizes are multiples of."""
        sizes = (n for r in self.rows for n, _ in r.terms)
        return math.gcd(*sizes, *(r.base for r in self.rows)) or 1

    @cached_property
    def readers(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Per set of buffers of a term: the options that keep one of them."""
        by: dict[int, list[int]] = {}
        for i, o in enumerate(self.problem.options):
            for b in o.resident:
                by.setdefault(b, []).append(i)
        sets = dict.fromkeys(any_of for r in self.rows for _, any_of in r.terms)
        return {s: tuple(sorted({i for b in s for i in by.get(b, ())})) for s in sets}

    # ---- the solver's model -------------------------------------------------------------------
    def sums(self, model: Model, any_of: Any) -> list[Any]:
        """Per row: its bytes / unit; `any_of` makes a literal of options."""
        literals = {s: any_of(model, readers) for s, readers in self.readers.items() if readers}
        return [
            r.base // self.unit
            + sum(n // self.unit * literals[s] for n, s in r.terms if s in literals)
            for r in self.rows
        ]

    # ---- its relaxation -----------------------------------------------------------------------
    def relax(self, rows: Rows, upper: list[float], most: int) -> int:
        """Add rows and variables, the last of them the goal / unit; at most `most` bytes."""
        bit: dict[tuple[int, ...], int] = {}
        for s, readers in self.readers.items():
            if readers:
                upper.append(1.0)
                bit[s] = len(upper) - 1
                for claim in claims(self.problem, readers, readers):
                    rows.add(-math.inf, 0, claim, [bit[s]])
        upper.append(min(most, self.most) // self.unit)
        goal = len(upper) - 1
        for r in self.rows:
            terms = [(bit[s], n / self.unit) for n, s in r.terms if s in bit]
            rows.weigh(-math.inf, -r.base / self.unit, _summed([*terms, (goal, -1.0)]))
        return goal


def _summed(terms: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    found: dict[int, float] = {}
    for v, c in terms:
        found[v] = found.get(v, 0.0) + c
    return list(found.items())
