"""The linear relaxation of a problem: which options no answer within a cap can hold.

Reduced-cost fixing: an option whose reduced cost lifts the relaxation's bound above the cap is in
no answer that keeps the cap. The relaxation of these problems is nearly tight (`docs/decisions.md`)
so this takes away most options before CP-SAT sees them, and all but ties for a second goal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.extract.problem import ExtractionProblem

TOLERANCE = 1e-6  # of the cap: far above the LP's own tolerance


@dataclass(frozen=True)
class Relaxation:
    """Bound and reduced costs of the LP that minimises one linear goal."""

    bound: float
    reduced: tuple[float, ...]  # per option

    def within(self, cap: int) -> tuple[int, ...]:
        """Options that answers with a goal of at most `cap` may hold."""
        limit = cap + TOLERANCE * max(cap, 1)
        return tuple(i for i, r in enumerate(self.reduced) if self.bound + max(r, 0.0) <= limit)


def cliques(problem: ExtractionProblem, readers: Iterable[int]) -> list[list[int]]:
    """Readers that exclude each other, by the exclusive number most of them share."""
    readers = list(readers)
    count: dict[int, int] = {}
    for h in readers:
        for n in problem.options[h].exclusive:
            count[n] = count.get(n, 0) + 1
    found: dict[int, list[int]] = {}
    for h in readers:
        held = problem.options[h].exclusive
        key = max(held, key=lambda n: (count[n], -n), default=None)
        found.setdefault(-1 - h if key is None else key, []).append(h)
    return list(found.values())


def availability(problem: ExtractionProblem) -> list[tuple[list[int], list[int]]]:
    """(writers, readers) per buffer: readers at the same steps have the same earlier writers."""
    options = problem.options
    found = []
    for b, readers in problem.readers.items():
        writers = problem.writers.get(b, [])
        steps = [options[w].step for w in writers]  # ascending, so earlier writers are a prefix
        by_count: dict[int, list[int]] = {}
        for h in readers:
            by_count.setdefault(bisect_left(steps, options[h].step), []).append(h)
        found += [(writers[:n], group) for n, group in by_count.items()]
    return found


def exclusions(problem: ExtractionProblem) -> list[list[int]]:
    """Sets of options of which at most one is chosen."""
    holders: dict[int, list[int]] = {}
    for i, o in enumerate(problem.options):
        for n in o.exclusive:
            holders.setdefault(n, []).append(i)
    roots = set(problem.roots)
    writers = [w for b, w in problem.writers.items() if b not in roots]
    return [group for group in (*holders.values(), *writers) if len(group) > 1]


def relaxation(problem: ExtractionProblem, goal: str) -> Relaxation | None:
    """Solve the LP for a goal that is a sum over the options; None if it has no solution."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP")
    assert solver, "GLOP is part of ortools"
    costs = problem.coefficients(goal)
    unit = max(costs, default=1) or 1
    x = [solver.NumVar(0, 1, "") for _ in costs]
    objective = solver.Objective()
    for v, c in zip(x, costs, strict=True):
        objective.SetCoefficient(v, c / unit)
    objective.SetMinimization()

    def row(low: float, high: float, plus: list[object], minus: list[object]) -> None:
        constraint = solver.Constraint(low, high)
        for v in plus:
            constraint.SetCoefficient(v, 1.0)
        for v in minus:
            constraint.SetCoefficient(v, -1.0)

    infinity = solver.infinity()
    for r in problem.roots:
        row(1, 1, [x[i] for i in problem.writers.get(r, [])], [])
    for cover in problem.covers:
        row(1, infinity, [x[i] for i in cover], [])
    for group in exclusions(problem):
        row(-infinity, 1, [x[i] for i in group], [])
    for writers, readers in availability(problem):
        available = solver.NumVar(0, 1, "")
        row(-infinity, 0, [available], [x[i] for i in writers])
        for clique in cliques(problem, readers):
            row(-infinity, 0, [x[h] for h in clique], [available])
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    reduced = tuple(v.reduced_cost() * unit for v in x)
    return Relaxation(objective.Value() * unit, reduced)
