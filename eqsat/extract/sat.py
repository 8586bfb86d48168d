"""CP-SAT models and their solver, made from the compiled part of OR-Tools alone.

`ortools.sat.python.cp_model` says the same, and loads pandas for methods that nothing here calls:
more than half of what a small search has to load. The names are those of that module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from ortools.sat.python import cp_model_helper as compiled
from ortools.util.python.sorted_interval_list import Domain

OPTIMAL = compiled.CpSolverStatus.OPTIMAL
FEASIBLE = compiled.CpSolverStatus.FEASIBLE
INFEASIBLE = compiled.CpSolverStatus.INFEASIBLE
BOOLEAN = Domain(0, 1)


class CpModel:
    """Variables, constraints and the objective of a problem, as CP-SAT reads them.

    A literal is a Boolean variable or its `negated()`.
    """

    def __init__(self) -> None:
        self.proto = compiled.CpModelProto()

    def new_bool_var(self, name: str) -> Any:
        """0 or 1."""
        return compiled.IntVar(self.proto).with_name(name).with_domain(BOOLEAN)

    def new_int_var(self, low: int, high: int, name: str) -> Any:
        """low <= variable <= high."""
        return compiled.IntVar(self.proto).with_name(name).with_domain(Domain(low, high))

    def add(self, bounded: Any) -> None:
        """A linear expression within bounds, `2 * x + y <= z`; or what Python knows already."""
        if isinstance(bounded, bool):
            if not bounded:
                self.add_bool_or([])
            return
        linear = self.proto.constraints.add().linear
        linear.vars.extend([v.index for v in bounded.vars])
        linear.coeffs.extend(bounded.coeffs)
        sides = bounded.bounds.flattened_intervals()
        # a side that has no bound stays so
        linear.domain.extend(
            [s if s in (-(2**63), 2**63 - 1) else s - bounded.offset for s in sides]
        )

    def add_bool_or(self, literals: Iterable[Any]) -> None:
        """At least one of the literals."""
        self.proto.constraints.add().bool_or.literals.extend([v.index for v in literals])

    def add_at_most_one(self, literals: Iterable[Any]) -> None:
        """At most one of the literals."""
        self.proto.constraints.add().at_most_one.literals.extend([v.index for v in literals])

    def add_exactly_one(self, literals: Iterable[Any]) -> None:
        """Exactly one of the literals."""
        self.proto.constraints.add().exactly_one.literals.extend([v.index for v in literals])

    def add_implication(self, one: Any, other: Any) -> None:
        """If one literal, then the other."""
        constraint = self.proto.constraints.add()
        constraint.enforcement_literal.append(one.index)
        constraint.bool_and.literals.append(other.index)

    def add_hint(self, variable: Any, value: int) -> None:
        """Where the search may start."""
        self.proto.solution_hint.vars.append(variable.index)
        self.proto.solution_hint.values.append(int(value))

    def minimize(self, expression: Any) -> None:
        """Set the objective: an expression, or the constant that an empty sum is."""
        objective = self.proto.objective
        objective.scaling_factor = 1.0
        if isinstance(expression, int):
            objective.offset = expression
            return
        flat = compiled.FlatIntExpr(expression)
        objective.vars.extend([v.index for v in flat.vars])
        objective.coeffs.extend(flat.coeffs)
        objective.offset = flat.offset


class CpSolver:
    """Solves models; `parameters` say how, and what was found stays until the next solve."""

    def __init__(self) -> None:
        self.parameters: Any = compiled.SatParameters()
        self._lock = threading.Lock()
        self._search: Any = None
        self._response: Any = None

    def solve(self, model: CpModel) -> Any:
        """Solve a model: its status, OPTIMAL for one."""
        search = compiled.SolveWrapper()
        search.set_parameters(self.parameters)
        with self._lock:
            self._search = search
        try:
            self._response = search.solve(model.proto)
        finally:
            with self._lock:
                self._search = None
        return self._response.status

    def stop_search(self) -> None:
        """End the solve that is under way, from another thread."""
        with self._lock:
            if self._search is not None:
                self._search.stop_search()

    def boolean_value(self, literal: Any) -> bool:
        """A literal in the solution."""
        return compiled.ResponseHelper.boolean_value(self._response, literal)

    @property
    def objective_value(self) -> float:
        return self._response.objective_value

    @property
    def best_objective_bound(self) -> float:
        return self._response.best_objective_bound
