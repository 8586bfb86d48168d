"""The extraction problem as a CP-SAT model: it only iterates over the problem's integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.anyrows import AnyOrderRows
from eqsat.extract.solve.constraints import (
    Terms,
    any_chosen,
    kept_bytes,
    state_choice,
    state_kept,
    state_peak,
)
from eqsat.extract.solve.kept import unit_of
from eqsat.extract.solve.live import claims
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.extract.solve.used import forced_rows
from eqsat.model.deadline import OutOfTime, seconds_left
from eqsat.model.portfolio import LEAST_SECONDS, set_limits, set_workers
from eqsat.model.progress import listener
from eqsat.model.stopping import Stop

if TYPE_CHECKING:
    from eqsat.extract import sat


EXACT = 2.0**53  # the solver counts in whole numbers, but tells them in floating point
ROUNDING = 2.0**-50  # of a bound that is told so


@dataclass(frozen=True)
class Solution:
    """What a solve found; `value` and `bound` are of the objective."""

    status: str  # optimal | feasible | infeasible | unknown
    answer: Answer | None
    value: int
    bound: int


@dataclass(frozen=True)
class Request:
    """Minimise Σ coefficient · goal under hard caps per goal."""

    weights: dict[str, int]
    caps: dict[str, int]
    hint: Answer | None = None
    pairs: bool = False  # see `Objective`


class ChoiceModel:
    """Variables and constraints of one problem; goals are added on request."""

    def __init__(self, problem: ExtractionProblem, pairs: bool = False):
        from eqsat.extract import sat  # loads OR-Tools

        self.problem, self.pairs = problem, pairs
        self.model = sat.CpModel()
        self.x = [self.model.new_bool_var(f"x{i}") for i in range(len(problem.options))]
        self._derived: list[tuple[Any, list[Sequence[Any]]]] = []  # a literal: all of (any of …)
        self._amounts: dict[str, tuple[Any, int]] = {}
        state_choice(problem, self)
        self._once()
        if problem.forced is not None:
            forced_rows(self)

    def _once(self) -> None:
        # (C7) what is there from the start is not written: Σ x[writers] ≤ 1 - x[reader]
        for b in sorted(self.problem.either):
            writers = self.problem.writers[b]
            written = any_chosen(self, claims(self.problem, writers, writers))
            for i, o in enumerate(self.problem.options):
                if b in o.resident:
                    self.model.add_at_most_one([self.x[i], written])

    # ---- see `Constraints` -------------------------------------------------------------------
    def exactly_one(self, literals: Sequence[Any]) -> None:
        self.model.add_exactly_one(literals)

    def some(self, literals: Sequence[Any]) -> None:
        self.model.add_bool_or(literals)

    def at_most(self, literals: Sequence[Any], most: int) -> None:
        if most == 1:
            self.model.add_at_most_one(literals)
        else:
            self.model.add(sum(literals) <= most)

    def as_many(self, ones: Sequence[Any], others: Sequence[Any]) -> None:
        self.model.add(sum(ones) == sum(others))

    def only_with(self, clique: Sequence[Any], literal: Any) -> None:
        self.model.add_at_most_one([*clique, literal.negated()])

    def only_if_any(self, literals: Sequence[Any]) -> Any:
        if len(literals) == 1:
            return literals[0]
        a = self._literal([literals])
        self.model.add_bool_or([*literals, a.negated()])
        return a

    def true_if_any(self, cliques: Sequence[Sequence[Any]], later: Any = None) -> Any:
        literals = {v.index: v for clique in cliques for v in clique}
        if later is None and len(literals) == 1:
            return next(iter(literals.values()))
        after = [] if later is None else [later]
        a = self._literal([[*literals.values(), *after]])
        for v in after:
            self.model.add_implication(v, a)
        for clique in cliques:
            self.only_with(clique, a)
        return a

    def both(self, one: Any, clique: Sequence[Any]) -> Any:
        a = self._literal([[one], clique])
        self.model.add(a >= one + sum(clique) - 1)
        return a

    def bound(self, terms: Terms, base: int, most: Any, unit: int) -> None:
        self.model.add(sum(size // unit * v for size, v in terms) + base // unit <= most)

    # ---- literals and goals ------------------------------------------------------------------
    def only_if_both(self, one: Any, other: Any) -> Any:
        """A literal that may be true only if both of these are."""
        a = self._literal([[one], [other]])
        self.model.add_implication(a, one)
        self.model.add_implication(a, other)
        return a

    def _literal(self, means: list[Sequence[Any]]) -> Any:
        a = self.model.new_bool_var("")
        self._derived.append((a, means))
        return a

    def linear(self, goal: str) -> list[tuple[int, Any]]:
        """Terms of a goal that is a sum over the chosen options."""
        return list(zip(self.problem.coefficients(goal), self.x, strict=True))

    def amount(self, goal: str) -> tuple[Any, int]:
        """(variable, unit) of a goal that is no sum: bytes / unit, at least those of every row."""
        if goal not in self._amounts:
            self._amounts[goal] = self._stated(goal)
        return self._amounts[goal]

    def _stated(self, goal: str) -> tuple[Any, int]:
        problem = self.problem
        if goal in problem.kept:
            rows = problem.kept[goal]
            unit, least, most = unit_of(rows), max(r.base for r in rows), max(r.most for r in rows)
            found = self.model.new_int_var(least // unit, most // unit, goal)
            state_kept(problem, rows, self, found, unit)
            return found, unit
        unit, low, high = problem.byte_unit, problem.fixed_bytes, problem.most_bytes
        peak = self.model.new_int_var(low // unit, high // unit, goal)
        if isinstance(problem, AnyOrder):
            weights = sum(size // unit * v for size, v in kept_bytes(problem, self))
            rows = AnyOrderRows(self, problem, unit, peak - (weights + low // unit))
            rows.add(self.pairs)
        else:
            state_peak(problem, self, peak, unit)
        return peak, unit

    def cap(self, goal: str, limit: int) -> None:
        """Goal ≤ limit."""
        if goal in self.problem.linear:
            terms = self.linear(goal)
            unit = _unit(terms)
            self.model.add(sum(w // unit * v for w, v in terms) <= limit // unit)
        else:
            found, unit = self.amount(goal)
            self.model.add(found <= limit // unit)

    def minimise(self, weights: dict[str, int]) -> int:
        """Set the objective; the result is the unit its value has to be multiplied by."""
        terms: list[tuple[int, Any]] = []
        for goal, weight in weights.items():
            if goal in self.problem.linear:
                terms += [(weight * w, v) for w, v in self.linear(goal)]
            else:
                found, size = self.amount(goal)
                terms.append((weight * size, found))
        unit = _unit(terms)
        self.model.minimize(sum(w // unit * v for w, v in terms))
        return unit

    def hint(self, answer: Answer) -> None:
        """Start from this answer."""
        chosen = set(answer)
        value = {v.index: i in chosen for i, v in enumerate(self.x)}
        for v, means in self._derived:
            value[v.index] = all(any(value[o.index] for o in each) for each in means)
        variables = [*self.x, *(v for v, _ in self._derived)]
        for v in variables:
            self.model.add_hint(v, value[v.index])

    def answer(self, solver: sat.CpSolver) -> Answer:
        return tuple(i for i, v in enumerate(self.x) if solver.boolean_value(v))


def _unit(terms: list[tuple[int, Any]]) -> int:
    """What all coefficients are multiples of: smaller integers are easier on the solver."""
    return math.gcd(*(w for w, _ in terms)) or 1


@dataclass(frozen=True)
class Effort:
    """When a solve ends without a proof; `work` is CP-SAT's deterministic time."""

    seconds: float
    seed: int
    work: float | None = None
    stop: Stop | None = None  # who may end it from another thread


def solve(problem: ExtractionProblem, request: Request, effort: Effort) -> Solution:
    """Minimise a weighted sum of goals.

    The answer is deterministic unless the clock, or a request, stopped the solve. OutOfTime if the
    deadline it is under leaves no time for a solve.
    """
    from eqsat.extract import sat

    model = ChoiceModel(problem, request.pairs)
    for goal, limit in request.caps.items():
        model.cap(goal, limit)
    unit = model.minimise(request.weights)
    if request.hint is not None:
        model.hint(request.hint)
    solver = sat.CpSolver()
    if seconds_left() < LEAST_SECONDS:
        raise OutOfTime
    seconds = min(max(effort.seconds, LEAST_SECONDS), seconds_left())
    set_limits(solver.parameters, seconds, effort.seed, effort.work)
    set_workers(solver.parameters)
    ending = effort.stop.calls(solver.stop_search) if effort.stop else nullcontext()
    with ending:
        status = solver.solve(model.model, _telling(problem, request, unit))
    if status == sat.INFEASIBLE:
        return Solution("infeasible", None, 0, 0)
    least = solver.best_objective_bound
    bound = max(math.ceil(least - max(1e-6, abs(least) * ROUNDING)), 0) * unit
    if status not in (sat.OPTIMAL, sat.FEASIBLE):
        return Solution("unknown", None, 0, bound)
    answer, value = model.answer(solver), round(solver.objective_value) * unit
    if solver.objective_value >= EXACT:
        value = problem.worth(answer, request.weights)
    if status == sat.OPTIMAL:
        return Solution("optimal", answer, value, value)
    return Solution("feasible", answer, value, min(bound, value))


def _telling(
    problem: ExtractionProblem, request: Request, unit: int
) -> Callable[[float], None] | None:
    """Reports the value of each new answer to a listener; None if none of them is a real one.

    An answer is real if it has an order and keeps the budget.
    """
    told = listener()
    if told is None or request.weights != {told.goal: 1} or not problem.is_ordered:
        return None
    if any(request.caps.get(goal, limit + 1) > limit for goal, limit in told.budget.items()):
        return None

    def tell(value: float) -> None:
        if value < EXACT:
            told.found(told.goal, round(value) * unit, None)

    return tell
