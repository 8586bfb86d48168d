"""The linear relaxation of a choice: a bound no answer passes, and which columns can be left out.

Reduced-cost fixing: a column whose reduced cost lifts the relaxation's bound above the cap is in no
answer that keeps the cap. The relaxation of sums is tight or nearly so (decision 26): its
own columns often are the answer, and its bound the proof. The LP is solved by GLOP; the bound is
computed again from its multipliers, and holds whatever it did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer, Columns
from eqsat.extract.choice.rows import RowTable
from eqsat.extract.choice.statement import EXACT, Statement
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.deadline import ending, seconds_left, tick

Bytes = Callable[[Statement], None]  # adds the rows of the goal `memory`
OPEN = 1 << 62  # more than any goal is worth
Caps = Mapping[str, int]


@dataclass(frozen=True)
class Relaxation:
    """A relaxation: its bound, per column what choosing it adds at least, and what the LP chose."""

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
        """The relaxation if something else adds so much at least."""
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
    statement: Statement | None = None,
) -> Relaxation | None:
    """Minimise Σ weight · goal under caps; None if even the relaxation has no solution.

    memory: states that goal, where it is among the weights or caps. statement: the choice as it is,
    which takes longer to state than to solve; it becomes the question. If the deadline it is under
    ends the LP solver, the bound is the trivial one; OutOfTime if there is no time to state it.
    """
    caps = dict(caps or {})
    asked, linear = {**weights, **caps}, choice.facts.linear
    statement = statement or Statement(choice, is_summed=asked.keys() <= set(linear))
    for goal in asked:
        if goal in choice.facts.weight_rows:
            statement.bound_weights(goal, caps.get(goal))
    if MEMORY in asked:
        assert memory is not None
        memory(statement)
    for goal, cap in caps.items():
        statement.cap(goal, cap)
    terms, unit = statement.objective(weights)
    size = len(statement.upper)
    goal = np.zeros(size)
    goal[[v for v, _ in terms]] = [c for _, c in terms]
    rows = (
        RowTable.stacked([statement.table, _scaled(statement)])
        if statement.weighed
        else statement.table
    )
    upper = np.array(statement.upper, dtype=float)
    program = LinearProgram(goal, rows, np.zeros(size), upper, not statement.weighed)
    solved = solve_linear(program)
    if solved is None:
        return None
    count = len(choice)
    # columns the relaxation chooses by less are not part of its answer
    support = np.flatnonzero(solved.values[:count] > 1e-6)
    return Relaxation(solved.least * unit, solved.reduced[:count] * unit, support, unit)


def _scaled(statement: Statement) -> RowTable:
    """The weighed rows, scaled to the size of the others.

    Each with a little room: where a cap is just what its goal is at least, the simplex has none for
    what it rounds, and ends without an answer.
    """
    high, counts, index, value = [], [], list[int](), list[float]()
    for terms, most in statement.weighed:
        size = float(max((abs(c) for _, c in terms), default=1)) or 1.0
        high.append((most + ROOM * abs(most)) / size)
        counts.append(len(terms))
        index += [v for v, _ in terms]
        value += [c / size for _, c in terms]
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    rows = Ragged(start, np.array(index, dtype=np.int64))
    low = np.full(len(high), -math.inf)
    return RowTable(low, np.array(high), rows, np.array(value))


# ---- what a question comes to --------------------------------------------------------------------
@dataclass(frozen=True)
class Least:
    """The least value of an objective in any order: `bound`, and what it is from (`proof`).

    status: optimal (`best` is worth no more) | infeasible (no answer keeps the caps, proven) | gap
    (all was searched) | why the search ended before. `places`: columns that answers within the caps
    hold that are worth at most `most`; `relaxed` is of these.
    """

    status: str
    bound: int = 0
    proof: str = "search"
    best: Answer | None = None
    places: Ints | None = None
    relaxed: Relaxation | None = None
    most: int = OPEN

    def within(self, cap: int) -> Ints | None:
        """Columns that answers worth at most so much hold; None: nothing is known."""
        if self.places is None or cap > self.most:
            return None
        return self.places if self.relaxed is None else self.places[self.relaxed.within(cap)]


@dataclass(frozen=True)
class Remainder:
    """The columns left under some caps, with their relaxation."""

    places: Ints  # in the numbers of the whole choice
    choice: Columns
    relaxed: Relaxation
    most: int = OPEN  # what answers are worth that these columns hold

    @property
    def bound(self) -> int:
        return self.relaxed.bound


# ---- linear programs as arrays -------------------------------------------------------------------
DENOMINATOR = 60  # duals of 0/±1 rows are small fractions of the costs
STEPS = 1_000, 20  # of the dual simplex, and per row and variable: it may go round for ever
ROOM = 1e-10  # of a cap; bounds lose ten times as much to rounding (`_bound`)


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
    with ending(solver.interrupt_solve, seconds_left()):
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
    plain = _bound(program, matrix, duals, values, 1)
    if not program.is_plain:
        return plain
    exact = _bound(program, matrix, (duals * DENOMINATOR).round(), values, DENOMINATOR)
    return plain if math.ceil(plain.least) > math.ceil(exact.least) else exact


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
