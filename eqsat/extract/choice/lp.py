"""Linear programs as arrays: solved by GLOP, and a bound that holds whatever it did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.extract.choice.table import RowTable
from eqsat.model.deadline import seconds_left, tick

DENOMINATOR = 60  # duals of 0/±1 rows are small fractions of the costs
STEPS = 1_000, 20  # of the dual simplex, and per row and variable: it may go round for ever
EXACT = 2.0**53  # whole numbers up to here are held in floating point


@dataclass(frozen=True)
class LinearProgram:
    """Minimise objective · x over the rows, with lower <= x <= upper."""

    objective: np.ndarray
    rows: RowTable
    lower: np.ndarray
    upper: np.ndarray
    is_plain: bool  # objective, rows, and what variables are at most are small whole numbers


@dataclass(frozen=True)
class Solved:
    """`least`: no x is worth less. `reduced`: what each variable adds at least when it is 1."""

    least: float
    reduced: np.ndarray
    values: np.ndarray


def solve_linear(program: LinearProgram) -> Solved | None:
    """The optimum by GLOP's dual simplex, with a safe bound; None if there is no solution.

    Where that goes round in a circle, by the primal one. If the deadline it is under ends it: no
    optimum, and the bound is the trivial one.
    """
    from ortools.linear_solver.python import model_builder_helper as helper

    matrix = program.rows.matrix(len(program.objective))
    scale = _scales(program)
    objective = program.objective * scale
    size = float(np.abs(objective).max(initial=0.0)) or 1.0
    lower: Any = program.lower / scale  # the binding's types say less than it takes
    upper: Any = program.upper / scale
    costs: Any = objective / size
    low: Any = program.rows.low
    high: Any = program.rows.high
    model = helper.ModelBuilderHelper()
    scaled = matrix if (scale == 1.0).all() else matrix.multiply(scale).tocsr()
    model.fill_model_from_sparse_data(lower, upper, costs, low, high, scaled)
    steps = STEPS[0] + STEPS[1] * (len(low) + len(costs))
    solver = _solved(model, f"use_dual_simplex: true max_number_of_iterations: {steps}")
    if solver.status() == helper.SolveStatus.NOT_SOLVED and seconds_left() > 0:
        solver = _solved(model, "")
    if solver.status() == helper.SolveStatus.INFEASIBLE:
        return None
    if solver.status() != helper.SolveStatus.OPTIMAL:  # no answer: any multipliers will do
        return _bounded(program, matrix, np.zeros(len(low)), np.zeros(len(costs)))
    duals = np.asarray(solver.dual_values()) * size
    return _bounded(program, matrix, duals, np.asarray(solver.variable_values()) * scale)


def _solved(model: Any, parameters: str) -> Any:
    """GLOP's solver after it solved the model, or was ended by the deadline."""
    from ortools.linear_solver.python import model_builder_helper as helper

    solver = helper.ModelSolverHelper("GLOP")
    solver.set_solver_specific_parameters(parameters)
    tick()
    seconds = seconds_left()
    if seconds < math.inf:
        solver.set_time_limit_in_seconds(max(seconds, 0.05))
    solver.solve(model)
    return solver


def _scales(program: LinearProgram) -> np.ndarray:
    """Per variable: a power of two that it is counted in, so that none is much larger than others.

    Peak bytes are 10^8 units beside options between 0 and 1; of such a program GLOP's dual simplex
    may end without an answer.
    """
    _, digits = np.frexp(np.where(np.isinf(program.upper), 0.0, program.upper))
    # of a variable whose upper bound has more binary digits GLOP loses its way
    return np.exp2(np.maximum(digits - 10, 0))


def _bounded(program: LinearProgram, matrix: Any, duals: np.ndarray, values: np.ndarray) -> Solved:
    """The bound of these multipliers; of plain rows also that of the same as small fractions.

    Fractions lose nothing where the LP is exact, and much where it takes others than these.
    """
    found = _bound(program, matrix, duals, values, 1)
    if not program.is_plain:
        return found
    exact = _bound(program, matrix, (duals * DENOMINATOR).round(), values, DENOMINATOR)
    return found if math.ceil(found.least) > math.ceil(exact.least) else exact


def _bound(
    program: LinearProgram, matrix: Any, duals: np.ndarray, values: np.ndarray, scale: int
) -> Solved:
    """A bound that holds whatever the LP solver did, and reduced costs (Neumaier, Shcherbina 2004).

    Any multipliers of the right sign give one: Σ multiplier · side + Σ min over the box of reduced
    cost · x. These are `scale` times those of the rows.
    """
    low, high = program.rows.low, program.rows.high
    duals = np.where(np.isinf(low), np.minimum(duals, 0.0), duals)
    duals = np.where(np.isinf(high), np.maximum(duals, 0.0), duals)
    sides = np.where(duals > 0, low, high)
    fixed = np.where(duals == 0.0, 0.0, duals * np.where(np.isinf(sides), 0.0, sides))
    reduced = scale * program.objective - matrix.T @ duals
    boxed = np.where(reduced < 0, reduced * program.upper, reduced * program.lower)
    terms = float(np.abs(fixed).sum() + np.abs(boxed).sum())
    # sums of whole numbers are exact below 2^53, others may lose a little
    # what rounding may have lost of the terms that a bound is the sum of
    lost = 0.0 if scale > 1 and terms < EXACT else 1e-9 * terms
    least = math.fsum(fixed.tolist()) + math.fsum(boxed.tolist()) - lost
    return Solved(least / scale, np.maximum(reduced, 0.0) / scale, values)
