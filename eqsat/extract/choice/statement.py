"""One question about a choice as variables and rows, for the LP and for CP-SAT, and a CP-SAT solve.

Further variables are literals (0 or 1) and amounts (bytes in units). A literal that stands for
"one of these is chosen" is as small as its rows let it be, so its value follows from the columns.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.extract.blocks import TWO
from eqsat.extract.choice.blockrows import summed_over_blocks
from eqsat.extract.choice.columns import Columns, unit_of
from eqsat.extract.choice.rows import RowList, RowTable, alike_rows, choice_rows, cliques_of
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.deadline import (
    LEAST_SECONDS,
    OutOfTime,
    Stop,
    limited,
    seconds_left,
    set_workers,
    tick,
)
from eqsat.model.sets import by_key

Terms = list[tuple[int, int]]  # (variable, coefficient)
EXACT = 2.0**53  # whole numbers up to here are held in floating point


class Statement:
    """Variables 0 to n - 1 are the columns, then the levels of `rows`, then all others.

    is_summed: of equal blocks the sums (`blockrows`), for a bound that holds for all of them.
    `upper` is what a variable is at most; those of `amounts` are no literals. `weighed` rows
    Σ coefficient · variable <= most have whole coefficients of any size.
    """

    def __init__(self, choice: Columns, *, is_summed: bool = False):
        self.choice, self.is_summed = choice, is_summed and choice.facts.blocks is not None
        rows, owned, most = choice_rows(choice)
        ones = np.ones(len(choice), dtype=np.int64)
        if self.is_summed:
            table, upper = summed_over_blocks(choice, rows, owned, np.concatenate([ones, most]))
            self._base, self.upper = table, upper.tolist()
        else:
            self._base = RowTable.stacked([r.table for r in rows])
            self.upper = [*ones.tolist(), *most.tolist()]
        self.levels = len(self.upper)
        self.rows = RowList()
        self.amounts: set[int] = set()
        self.weighed: list[tuple[Terms, int]] = []
        self._any: dict[bytes, int] = {}
        self._amount_of: dict[str, tuple[int, int]] = {}
        if not self.is_summed:
            self._more()

    def of(self, choice: Columns) -> Statement:
        """A copy for the same columns with other prices; nothing that is added to one of
        both is in the other one."""
        copied = copy.copy(self)
        copied.choice, copied.upper, copied.rows = (
            choice,
            list(self.upper),
            copy.deepcopy(self.rows),
        )
        copied.amounts, copied.weighed = set(self.amounts), list(self.weighed)
        copied._any, copied._amount_of = dict(self._any), dict(self._amount_of)
        return copied

    def _more(self) -> None:
        """Rows (6) to (8)."""
        choice = self.choice
        for some, most in choice.barred:
            self.rows.add(-math.inf, most, some)
        for one, other in alike_rows(choice):
            self.rows.add(0, 0, one, other)
        for b in choice.either.tolist():
            written = self.any_of(choice.writers[b])
            for j in choice.keepers[b].tolist():
                self.rows.add(-math.inf, 1, [j, written])
        if choice.forced is not None:
            self._forced()

    def _forced(self) -> None:
        """(8) One of the forced columns is chosen and serves a root.

        Without the second half it would be added where it is not needed, and its price would be
        that of useless work. A buffer has one writer, which comes before all its readers, so
        following "somebody reads it" from the forced column ends at a root. Of columns that write
        a buffer in common one is chosen at most: so not each of them is at most as large as what
        reads it, but all together, which makes the relaxation tight.
        """
        choice, is_root = self.choice, self.choice.facts.is_root
        assert choice.forced is not None
        columns_of = enumerate(choice.writes.tuples)
        together = by_key((w, j) for j, w in columns_of if not is_root[list(w)].any())
        for buffers, columns in together.items():
            self.rows.add(-math.inf, 0, columns, self._readers(buffers))
        ways, served = list[int](), dict[tuple[int, ...], list[int]]()
        for j, buffers in choice.forced:
            if is_root[list(buffers)].any():
                ways.append(j)
            else:
                served.setdefault(buffers, []).append(j)
        for buffers, columns in served.items():
            way = self.literal()
            self.rows.add(-math.inf, 0, [way], columns)
            self.rows.add(-math.inf, 0, [way], self._readers(buffers))
            ways.append(way)
        self.some(ways)

    def _readers(self, buffers: tuple[int, ...]) -> list[int]:
        """Columns that read one of these."""
        return np.unique(self.choice.readers.take(np.array(buffers)).index).tolist()

    # ---- literals ------------------------------------------------------------------------------
    def literal(self) -> int:
        self.upper.append(1)
        return len(self.upper) - 1

    def some(self, literals: Iterable[int], negated: Sequence[int] = ()) -> None:
        """One of these is true, or one of those is false."""
        self.rows.add(1 - len(negated), math.inf, literals, negated)

    def any_of(self, columns: Ints) -> int:
        """A literal that is true if one of these columns is chosen."""
        if len(columns) == 1:
            return int(columns[0])
        key = columns.tobytes()
        if key not in self._any:
            tick()
            self._any[key] = literal = self.literal()
            for clique in cliques_of(self.choice, columns):
                self.rows.add(-math.inf, 0, clique, [literal])
        return self._any[key]

    # ---- amounts -------------------------------------------------------------------------------
    def amount(self, name: str, most: int, unit: int) -> int:
        """A number of units, for a goal that is no sum over columns."""
        literal = self.literal()
        self.upper[literal] = most // unit
        self.amounts.add(literal)
        self._amount_of[name] = literal, unit
        return literal

    def bound(self, terms: Terms, base: int, most: int, unit: int) -> None:
        """base + Σ size · literal <= the amount `most`, which counts in units."""
        scaled = [(v, size // unit) for v, size in terms if size]
        self.weighed.append(([*scaled, (most, -1)], -(base // unit)))

    def bound_weights(self, goal: str, cap: int | None) -> None:
        """The bytes of weights at each moment of loading, as a goal."""
        rows = self.choice.facts.weight_rows[goal]
        unit, most = unit_of(rows), max(r.most for r in rows)
        largest = self.amount(goal, most if cap is None else min(cap, most), unit)
        for row in rows:
            terms: Terms = []
            for nbytes, any_of in row.terms:
                keepers = np.unique(self.choice.keepers.take(np.array(any_of)).index)
                if len(keepers):
                    terms.append((self.any_of(keepers), nbytes))
            self.bound(terms, row.base, largest, unit)

    def kept_weights(self) -> Terms:
        """A literal and bytes of every weight that columns keep in memory."""
        choice = self.choice
        buffers = np.flatnonzero((choice.keepers.counts > 0) & (choice.facts.kept_bytes > 0))
        nbytes = choice.facts.kept_bytes
        return [(self.any_of(choice.keepers[b]), int(nbytes[b])) for b in buffers.tolist()]

    def terms(self, goal: str) -> Terms:
        """A goal in the variables: each of a sum, or units of an amount."""
        if goal in self._amount_of:
            return [self._amount_of[goal]]
        adds = self.choice.coefficients(goal)
        if self.is_summed:  # what it adds in one of the blocks in which it is there
            blocks = self.choice.facts.blocks
            assert blocks is not None
            adds = adds // np.where(self.choice.last == TWO, blocks.count, 1)
        return [(i, a) for i, a in enumerate(adds.tolist()) if a]

    def cap(self, goal: str, limit: int) -> None:
        """Goal <= limit."""
        terms = self.terms(goal)
        unit = math.gcd(*(c for _, c in terms)) or 1
        self.weighed.append(([(v, c // unit) for v, c in terms], limit // unit))

    def objective(self, weights: Mapping[str, int]) -> tuple[Terms, int]:
        """Σ weight · goal, divided by the unit that comes with it."""
        added: dict[int, int] = {}
        for goal, weight in weights.items():
            for v, c in self.terms(goal):
                added[v] = added.get(v, 0) + weight * c
        unit = math.gcd(*added.values()) or 1
        return [(v, c // unit) for v, c in added.items()], unit

    # ---- as arrays -----------------------------------------------------------------------------
    @cached_property
    def table(self) -> RowTable:
        """All rows but those that are weighed."""
        return RowTable.stacked([self._base, self.rows.table()])

    def smallest(self, columns: Sequence[int]) -> dict[int, int]:
        """The literals' values if these columns are chosen: as small as rows let them be.

        Of those literals that rows say to be as large as something.
        """
        size, table = len(self.upper), self.table
        values = [0.0] * size
        for i in columns:
            values[i] = 1.0
        values_of = dict.fromkeys(range(len(self.choice)), 0) | dict.fromkeys(columns, 1)
        owned = (table.value < 0) & np.isfinite(table.high)[table.terms.rows]
        owned &= table.terms.index >= len(self.choice)
        rows_of = Ragged.grouped(table.terms.index[owned], table.terms.rows[owned], size).tuples
        terms, value = table.terms.tuples, table.value.tolist()
        start, high = table.terms.start.tolist(), table.high.tolist()
        for v in range(len(self.choice), size):
            if v in self.amounts or not rows_of[v]:
                continue
            for r in rows_of[v]:
                rest = sum(
                    c * values[u]
                    for c, u in zip(value[start[r] : start[r + 1]], terms[r], strict=True)
                    if u != v
                )
                values[v] = max(values[v], rest - high[r])
            values_of[v] = int(values[v])
        return values_of


@dataclass(frozen=True)
class Solution:
    """The outcome of a solve; `bound` is of the objective."""

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
    statement: Statement,
    weights: Mapping[str, int],
    effort: Effort,
    hint: Sequence[int] | None = None,
) -> Solution:
    """Minimise a weighted sum of goals.

    The columns are deterministic unless the clock, or a request, stopped the solve. OutOfTime if
    the deadline it is under leaves no time for a solve.
    """
    from eqsat.extract import sat

    terms, unit = statement.objective(weights)
    model, variables = _model(statement)
    model.minimize(sum(c * variables[v] for v, c in terms))
    if hint is not None:
        for v, value in statement.smallest(hint).items():
            model.add_hint(variables[v], value)
    solver = sat.CpSolver()
    if seconds_left() < LEAST_SECONDS:
        raise OutOfTime
    seconds = min(max(effort.seconds, LEAST_SECONDS), seconds_left())
    set_workers(solver.parameters)
    with limited(solver, seconds, effort.seed, effort.stop, effort.work):
        status = solver.solve(model)
    if status == sat.INFEASIBLE:
        return Solution("infeasible")
    least = solver.best_objective_bound
    # what rounding may have lost of a bound that is told in floating point
    bound = max(math.ceil(least - max(1e-6, abs(least) * 2.0**-50)), 0) * unit
    if status not in (sat.OPTIMAL, sat.FEASIBLE):
        return Solution("unknown", bound=bound)
    columns = variables[: len(statement.choice)]
    chosen = tuple(i for i, v in enumerate(columns) if solver.boolean_value(v))
    if status == sat.OPTIMAL and solver.objective_value < EXACT:
        bound = round(solver.objective_value) * unit
    elif status == sat.OPTIMAL and weights.keys() <= set(statement.choice.facts.linear):
        bound = sum(w * statement.choice.total(g, chosen) for g, w in weights.items())
    return Solution("optimal" if status == sat.OPTIMAL else "feasible", chosen, bound)


def _model(statement: Statement) -> tuple[Any, list[Any]]:
    """The model without an objective, and its variables."""
    from eqsat.extract import sat  # loads OR-Tools

    model = sat.CpModel()
    variables = [
        model.new_int_var(0, int(most), "")
        if v in statement.amounts or most > 1
        else model.new_bool_var("")
        for v, most in enumerate(statement.upper)
    ]
    negated: dict[int, Any] = {}

    def opposite(v: int) -> Any:
        if v not in negated:
            negated[v] = variables[v].negated()
        return negated[v]

    many = np.array(statement.upper) > 1
    table = statement.table
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
    for terms, most in statement.weighed:
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
