"""The extraction problem as a CP-SAT model: it only iterates over the problem's integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eqsat.extract.portfolio import LEAST_SECONDS, set_limits, set_workers
from eqsat.extract.solve.kept import KeptBytes
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.extract.solve.supply import exclusions, levels
from eqsat.extract.solve.used import forced_rows
from eqsat.model.deadline import OutOfTime, seconds_left, tick
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


class Model:
    """Variables and constraints of one problem; goals are added on request."""

    def __init__(self, problem: ExtractionProblem):
        from eqsat.extract import sat  # loads OR-Tools

        self.problem = problem
        self.model = sat.CpModel()
        self.x = [self.model.new_bool_var(f"x{i}") for i in range(len(problem.options))]
        self._derived: list[tuple[Any, list[list[Any]]]] = []  # a literal: all of (any of …)
        self._roots()
        self._exclusive()
        self._available()
        self._once()
        for among, most in problem.barred:
            self.model.add(sum(self.x[i] for i in among) <= most)
        if problem.forced is not None:
            forced_rows(self)

    def _roots(self) -> None:
        # (C1) every root is written, once
        for r in self.problem.roots:
            self.model.add_exactly_one([self.x[i] for i in self.problem.writers.get(r, [])])
        # (C2) every needed value is computed: Σ x ≥ 1
        for cover in self.problem.covers:
            self.model.add_bool_or([self.x[i] for i in cover])

    def _exclusive(self) -> None:
        # (C3) what may not be cloned is computed once, no buffer is written twice: Σ x ≤ 1
        for group in exclusions(self.problem):
            tick()
            self.model.add_at_most_one([self.x[i] for i in group])

    def _available(self) -> None:
        # (C4) a read was written before: Σ x[claim] ≤ A, A ≤ Σ x[writers] + A[before]
        known: list[Any] = []
        for level in levels(self.problem):
            tick()
            literals = [self.x[i] for i in level.writers]
            literals += [] if level.before is None else [known[level.before]]
            known.append(literals[0] if len(literals) == 1 else self.only_if_any(literals))
            for claim in level.claims:
                self.model.add_at_most_one([*(self.x[i] for i in claim), known[-1].negated()])

    def _once(self) -> None:
        # (C7) what is there from the start is not written: Σ x[writers] ≤ 1 - x[reader]
        for b in sorted(self.problem.either):
            writers = [self.x[i] for i in self.problem.writers[b]]
            written = writers[0] if len(writers) == 1 else self.at_least_any(writers)
            for i, o in enumerate(self.problem.options):
                if b in o.resident:
                    self.model.add_at_most_one([self.x[i], written])

    def only_if_any(self, literals: list[Any]) -> Any:
        """A literal that may be true only if one of these is."""
        a = self._literal([literals])
        self.model.add_bool_or([*literals, a.negated()])
        return a

    def only_if_both(self, one: Any, other: Any) -> Any:
        """A literal that may be true only if both of these are."""
        a = self._literal([[one], [other]])
        self.model.add_implication(a, one)
        self.model.add_implication(a, other)
        return a

    def true_if_any(self, literals: list[Any]) -> Any:
        """A literal that whoever asks for it makes true if one of these is."""
        return self._literal([literals])

    def at_least_any(self, literals: list[Any]) -> Any:
        """A literal that is true if one of these is."""
        a = self._literal([literals])
        for v in literals:
            self.model.add_implication(v, a)
        return a

    def both(self, one: Any, others: list[Any]) -> Any:
        """A literal that is true if `one` is and one of the others, which exclude each other."""
        a = self._literal([[one], others])
        self.model.add(a >= one + sum(others) - 1)
        return a

    def _literal(self, means: list[list[Any]]) -> Any:
        a = self.model.new_bool_var("")
        self._derived.append((a, means))
        return a

    def linear(self, goal: str) -> list[tuple[int, Any]]:
        """Terms of a goal that is a sum over the chosen options."""
        return list(zip(self.problem.coefficients(goal), self.x, strict=True))

    @cached_property
    def memory(self) -> tuple[Any, int]:
        """(variable, unit): peak bytes / unit, at least every row's live bytes."""
        from eqsat.extract.solve.rows import memory_rows

        unit = self.problem.byte_unit
        low, high = self.problem.fixed_bytes, self.problem.most_bytes
        peak = self.model.new_int_var(low // unit, high // unit, "peak")
        memory_rows(self, peak, unit)
        return peak, unit

    @cached_property
    def _kept(self) -> dict[str, tuple[list[Any], KeptBytes]]:
        """Per goal about bytes of weights that was asked for: its rows."""
        return {}

    def kept(self, goal: str) -> tuple[list[Any], KeptBytes]:
        """The rows of a goal about bytes of weights, in its units, and what they are made from."""
        from eqsat.extract.solve.rows import any_chosen

        if goal not in self._kept:
            bytes_of = KeptBytes(self.problem, self.problem.kept[goal])
            self._kept[goal] = bytes_of.sums(self, any_chosen), bytes_of
        return self._kept[goal]

    def cap(self, goal: str, limit: int) -> None:
        """Goal ≤ limit."""
        if goal in self.problem.kept:
            sums, bytes_of = self.kept(goal)
            for s in sums:
                self.model.add(s <= limit // bytes_of.unit)
            return
        if goal == "memory":
            peak, unit = self.memory
            self.model.add(peak <= limit // unit)
            return
        terms = self.linear(goal)
        unit = _unit(terms)
        self.model.add(sum(w // unit * v for w, v in terms) <= limit // unit)

    def minimise(self, weights: dict[str, int]) -> int:
        """Set the objective; the result is the unit its value has to be multiplied by."""
        terms: list[tuple[int, Any]] = []
        for goal, weight in weights.items():
            if goal == "memory":
                peak, size = self.memory
                terms.append((weight * size, peak))
            elif goal in self.problem.kept:
                sums, of = self.kept(goal)
                most = self.model.new_int_var(of.least // of.unit, of.most // of.unit, goal)
                for s in sums:
                    self.model.add(s <= most)
                terms.append((weight * of.unit, most))
            else:
                terms += [(weight * w, v) for w, v in self.linear(goal)]
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

    The answer is deterministic unless the clock, or somebody, stopped the solve. OutOfTime if the
    deadline it is under leaves no time for a solve.
    """
    from eqsat.extract import sat

    model = Model(problem)
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
    """Tells whoever listens what each new answer is worth; None if none of them is a real one.

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
