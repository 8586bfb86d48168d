"""The linear relaxation of a problem: a bound no answer passes, and which options can be left out.

Reduced-cost fixing: an option whose reduced cost lifts the relaxation's bound above the cap is in
no answer that keeps the cap. The relaxation of sums over dispatches is tight or nearly so
(`docs/decisions.md`): its own options often are the answer, and its bound the proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.extract.solve.constraints import Terms, state_choice, state_kept, state_peak
from eqsat.extract.solve.kept import unit_of
from eqsat.extract.solve.lp import LinearProgram, RowList, Solved, solve_linear
from eqsat.extract.solve.problem import ExtractionProblem

MEMORY = "memory"
SUPPORT = 1e-6  # options the relaxation chooses by less are not part of its answer
ROUNDING = 2.0**-50  # of a bound and a reduced cost, which are told in floating point


@dataclass(frozen=True)
class Relaxation:
    """What no answer beats, per option what choosing it adds at least, and what the LP chose."""

    least: float  # no answer is worth less
    reduced: tuple[float, ...]
    support: tuple[int, ...]
    unit: int  # every answer's worth is a multiple of it

    @property
    def bound(self) -> int:
        """The least an answer can be worth, as it is a multiple of `unit`."""
        return max(math.ceil(self.least / self.unit) * self.unit, 0)

    def within(self, cap: int) -> tuple[int, ...]:
        """Options that answers worth at most `cap` may hold."""
        most = cap + ROUNDING * (abs(cap) + abs(self.least))
        return tuple(i for i, r in enumerate(self.reduced) if self.least + r <= most)


def relaxation(
    problem: ExtractionProblem,
    weights: Mapping[str, int],
    caps: Mapping[str, int] | None = None,
) -> Relaxation | None:
    """Minimise Σ weight · goal under caps; None if even the relaxation has no solution.

    If the deadline it is under ends the LP solver, the bound is the trivial one; OutOfTime if there
    is no time to state it.
    """
    caps = caps or {}
    linear = {g: w for g, w in weights.items() if g in problem.linear}
    to = _Relaxed(len(problem.options))
    state_choice(problem, to)
    if problem.forced is not None:
        to.some(sorted({i for i, _ in problem.forced}))
    objective = dict(enumerate(problem.worths(linear)))
    if MEMORY in weights or MEMORY in caps:
        unit = problem.byte_unit
        peak = to.amount(caps.get(MEMORY, problem.most_bytes) // unit)
        state_peak(problem, to, peak, unit)
        objective[peak] = weights.get(MEMORY, 0) * unit
    for name, rows in problem.kept.items():
        if name in weights or name in caps:
            unit, most = unit_of(rows), max(r.most for r in rows)
            largest = to.amount(min(caps.get(name, most), most) // unit)
            state_kept(problem, rows, to, largest, unit)
            objective[largest] = weights.get(name, 0) * unit
    for name, cap in caps.items():
        if name in problem.linear:
            to.rows.weigh(-math.inf, cap, enumerate(map(float, problem.coefficients(name))))
    unit = math.gcd(*objective.values()) or 1
    goal, upper = np.zeros(len(to.upper)), np.array(to.upper)
    goal[list(objective)] = np.array(list(objective.values()), dtype=float) / unit
    is_plain = not caps and linear == weights
    program = LinearProgram(goal, to.rows.table(), np.zeros(len(upper)), upper, is_plain)
    return relaxation_of(solve_linear(program), len(problem.options), unit)


def relaxation_of(solved: Solved | None, options: int, unit: int) -> Relaxation | None:
    """What an LP says of options, its first variables, that are worth multiples of the unit."""
    if solved is None:
        return None
    reduced = (solved.reduced[:options] * unit).tolist()
    support = np.flatnonzero(solved.values[:options] > SUPPORT).tolist()
    return Relaxation(solved.least * unit, tuple(reduced), tuple(support), unit)


class _Relaxed:
    """Constraints as rows over variables between 0 and `upper`; a literal is a variable."""

    def __init__(self, options: int):
        self.x = range(options)
        self.upper = [1.0] * options
        self.rows = RowList()

    def amount(self, most: float) -> int:
        """A variable of its own."""
        self.upper.append(most)
        return len(self.upper) - 1

    def exactly_one(self, literals: Sequence[int]) -> None:
        self.rows.add(1, 1, literals)

    def some(self, literals: Sequence[int]) -> None:
        self.rows.add(1, math.inf, literals)

    def at_most(self, literals: Sequence[int], most: int) -> None:
        self.rows.add(-math.inf, most, literals)

    def as_many(self, ones: Sequence[int], others: Sequence[int]) -> None:
        self.rows.add(0, 0, ones, others)

    def only_with(self, clique: Sequence[int], literal: int) -> None:
        self.rows.add(-math.inf, 0, clique, [literal])

    def only_if_any(self, literals: Sequence[int]) -> int:
        found = self.amount(1.0)
        self.rows.add(-math.inf, 0, [found], literals)
        return found

    def true_if_any(self, cliques: Sequence[Sequence[int]], later: int | None = None) -> int:
        found = self.amount(1.0)
        for clique in cliques if later is None else ([later], *cliques):
            self.only_with(clique, found)
        return found

    def both(self, one: int, clique: Sequence[int]) -> int:
        found = self.amount(1.0)
        self.rows.add(-math.inf, 1, [one, *clique], [found])
        return found

    def bound(self, terms: Terms, base: int, most: int, unit: int) -> None:
        own = [(v, size / unit) for size, v in terms]
        self.rows.weigh(-math.inf, -base / unit, [(most, -1.0), *own])
