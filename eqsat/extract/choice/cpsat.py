"""A statement's rows in CP-SAT, and what a solve comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.extract.choice.relax import EXACT
from eqsat.extract.choice.statement import Statement
from eqsat.model.deadline import (
    LEAST_SECONDS,
    OutOfTime,
    Stop,
    seconds_left,
    set_limits,
    set_workers,
)


@dataclass(frozen=True)
class Solution:
    """What a solve found; `bound` is of the objective."""

    status: str  # optimal | feasible | infeasible | unknown
    columns: tuple[int, ...] = ()
    bound: int = 0


@dataclass(frozen=True)
class Effort:
    """When a solve ends without a proof; `work` is CP-SAT's deterministic time."""

    seconds: float
    seed: int
    work: float | None = None
    stop: Stop | None = None  # who may end it from another thread


def solve(
    told: Statement,
    weights: Mapping[str, int],
    effort: Effort,
    hint: Sequence[int] | None = None,
) -> Solution:
    """Minimise a weighted sum of goals.

    The columns are deterministic unless the clock, or a request, stopped the solve. OutOfTime if
    the deadline it is under leaves no time for a solve.
    """
    from eqsat.extract import sat

    terms, unit = told.objective(weights)
    model, variables = _model(told)
    model.minimize(sum(c * variables[v] for v, c in terms))
    if hint is not None:
        for v, value in told.smallest(hint).items():
            model.add_hint(variables[v], value)
    solver = sat.CpSolver()
    if seconds_left() < LEAST_SECONDS:
        raise OutOfTime
    seconds = min(max(effort.seconds, LEAST_SECONDS), seconds_left())
    set_limits(solver.parameters, seconds, effort.seed, effort.work)
    set_workers(solver.parameters)
    with effort.stop.calls(solver.stop_search) if effort.stop else nullcontext():
        status = solver.solve(model)
    if status == sat.INFEASIBLE:
        return Solution("infeasible")
    least = solver.best_objective_bound
    # what rounding may have lost of a bound that is told in floating point
    bound = max(math.ceil(least - max(1e-6, abs(least) * 2.0**-50)), 0) * unit
    if status not in (sat.OPTIMAL, sat.FEASIBLE):
        return Solution("unknown", bound=bound)
    columns = variables[: len(told.choice)]
    chosen = tuple(i for i, v in enumerate(columns) if solver.boolean_value(v))
    if status == sat.OPTIMAL and solver.objective_value < EXACT:
        bound = round(solver.objective_value) * unit
    elif status == sat.OPTIMAL and weights.keys() <= set(told.choice.facts.linear):
        bound = sum(w * told.choice.total(g, chosen) for g, w in weights.items())
    return Solution("optimal" if status == sat.OPTIMAL else "feasible", chosen, bound)


def _model(told: Statement) -> tuple[Any, list[Any]]:
    """The model without an objective, and its variables."""
    from eqsat.extract import sat  # loads OR-Tools

    model = sat.CpModel()
    variables = [
        model.new_int_var(0, int(most), "")
        if v in told.amounts or most > 1
        else model.new_bool_var("")
        for v, most in enumerate(told.upper)
    ]
    negated: dict[int, Any] = {}

    def opposite(v: int) -> Any:
        if v not in negated:
            negated[v] = variables[v].negated()
        return negated[v]

    many = np.array(told.upper) > 1
    table = told.table
    ends, index = table.terms.start.tolist(), table.terms.index.tolist()
    value, counts = table.value.tolist(), many[table.terms.index]
    for n, (low, high) in enumerate(zip(table.low.tolist(), table.high.tolist(), strict=True)):
        span = range(ends[n], ends[n + 1])
        plus = [index[k] for k in span if value[k] > 0]
        minus = [index[k] for k in span if value[k] < 0]
        if counts[ends[n] : ends[n + 1]].any():
            total = sum(variables[v] for v in plus) - sum(variables[v] for v in minus)
            _between(model, total, low, high)
            continue
        literals = [*(variables[v] for v in plus), *map(opposite, minus)]
        _add(model, literals, low + len(minus), high + len(minus))
    for terms, most in told.weighed:
        model.add(sum(c * variables[v] for v, c in terms) <= most)
    return model, variables


def _between(model: Any, total: Any, low: float, high: float) -> None:
    if low == high:
        model.add(total == round(low))
        return
    if not math.isinf(low):
        model.add(total >= round(low))
    if not math.isinf(high):
        model.add(total <= round(high))


def _add(model: Any, literals: list[Any], low: float, high: float) -> None:
    """low <= how many of these are true <= high."""
    if low == high == 1:
        model.add_exactly_one(literals)
    elif high == 1 and low <= 0:
        model.add_at_most_one(literals)
    elif low == 1 and high >= len(literals):
        model.add_bool_or(literals)
    elif low <= 0 and high == len(literals) - 1:
        model.add_bool_or([v.negated() for v in literals])
    else:
        _between(model, sum(literals), low, high)
