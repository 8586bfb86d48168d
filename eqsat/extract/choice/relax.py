"""The linear relaxation of a choice: a bound no answer passes, and which columns can be left out.

Reduced-cost fixing: a column whose reduced cost lifts the relaxation's bound above the cap is in no
answer that keeps the cap. The relaxation of sums is tight or nearly so (decision 26): its
own columns often are the answer, and its bound the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Columns
from eqsat.extract.choice.lp import LinearProgram, solve_linear
from eqsat.extract.choice.statement import Statement
from eqsat.extract.choice.table import RowTable
from eqsat.extract.ragged import Ints, Ragged

Bytes = Callable[[Statement], None]  # adds the rows of the goal `memory`


@dataclass(frozen=True)
class Relaxation:
    """What no answer beats, per column what choosing it adds at least, and what the LP chose."""

    least: float  # no answer is worth less
    reduced: np.ndarray
    support: Ints
    unit: int  # every answer's worth is a multiple of it

    @property
    def bound(self) -> int:
        """The least an answer can be worth, as it is a multiple of `unit`."""
        return max(math.ceil(self.least / self.unit) * self.unit, 0)

    def within(self, cap: int) -> Ints:
        """Columns that answers worth at most `cap` may hold."""
        # a bound and a reduced cost are told in floating point
        most = cap + 2.0**-50 * (abs(cap) + abs(self.least))
        return np.flatnonzero(self.least + self.reduced <= most)

    def plus(self, more: int) -> Relaxation:
        """The same if something else adds so much at least."""
        return replace(self, least=self.least + more, unit=1) if more else self

    def forcing(self, columns: Ints) -> Relaxation:
        """The bound with the cheapest of these in, on top of any other one.

        Every chosen column adds at least its reduced cost to the bound; so does a forced one.
        """
        least = float(self.reduced[columns].min(initial=np.inf)) if len(columns) else 0.0
        reduced = self.reduced.copy()
        reduced[columns] -= least
        return replace(self, least=self.least + least, reduced=reduced)


def relaxation(
    choice: Columns,
    weights: Mapping[str, int],
    caps: Mapping[str, int] | None = None,
    memory: Bytes | None = None,
    told: Statement | None = None,
) -> Relaxation | None:
    """Minimise Σ weight · goal under caps; None if even the relaxation has no solution.

    memory: states that goal, where it is among the weights or caps. told: the choice as it is,
    which takes longer to state than to solve; it becomes the question. If the deadline it is under
    ends the LP solver, the bound is the trivial one; OutOfTime if there is no time to state it.
    """
    caps = dict(caps or {})
    asked, linear = {**weights, **caps}, choice.facts.linear
    told = told or Statement(choice, is_summed=asked.keys() <= set(linear))
    for goal in asked:
        if goal in choice.facts.kept:
            told.kept(goal, caps.get(goal))
    if MEMORY in asked:
        assert memory is not None
        memory(told)
    for goal, cap in caps.items():
        told.cap(goal, cap)
    terms, unit = told.objective(weights)
    size = len(told.upper)
    goal = np.zeros(size)
    goal[[v for v, _ in terms]] = [c for _, c in terms]
    rows = RowTable.stacked([told.table, _scaled(told)]) if told.weighed else told.table
    upper = np.array(told.upper, dtype=float)
    program = LinearProgram(goal, rows, np.zeros(size), upper, not told.weighed)
    solved = solve_linear(program)
    if solved is None:
        return None
    count = len(choice)
    # columns the relaxation chooses by less are not part of its answer
    support = np.flatnonzero(solved.values[:count] > 1e-6)
    return Relaxation(solved.least * unit, solved.reduced[:count] * unit, support, unit)


def _scaled(told: Statement) -> RowTable:
    """The weighed rows, scaled to the size of the others."""
    high, counts, index, value = [], [], list[int](), list[float]()
    for terms, most in told.weighed:
        size = float(max((abs(c) for _, c in terms), default=1)) or 1.0
        high.append(most / size)
        counts.append(len(terms))
        index += [v for v, _ in terms]
        value += [c / size for _, c in terms]
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    rows = Ragged(start, np.array(index, dtype=np.int64))
    low = np.full(len(high), -math.inf)
    return RowTable(low, np.array(high), rows, np.array(value))
