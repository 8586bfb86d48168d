"""A reduced problem → CP-SAT: the proof that an answer is the best, or that there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.extract.sat import FEASIBLE, INFEASIBLE, OPTIMAL, CpModel, CpSolver
from eqsat.extract.shard.presolve import ChoiceGraph, Network
from eqsat.model.deadline import Stop
from eqsat.model.portfolio import set_limits
from eqsat.model.sharding import FORBIDDEN


@dataclass(frozen=True)
class ExactResult:
    """status: optimal | infeasible | feasible | unknown; `bound` of every allowed choice."""

    status: str
    choice: np.ndarray | None = None
    bound: int | None = None


class ExactModel:
    """Variables and constraints; `cost` and `peak` are what may be minimised."""

    def __init__(self, small: ChoiceGraph, net: Network):
        self.model = CpModel()
        self.chosen = [[self.model.new_bool_var("") for _ in c] for c in small.costs]
        self.terms: list[tuple[Any, int]] = []
        self.constant = 0
        for literals, costs in zip(self.chosen, small.costs, strict=True):  # (S1) one strategy each
            self.model.add_exactly_one(literals)
            self.terms += zip(literals, costs.tolist(), strict=True)
        for (i, j), matrix in small.edges.items():
            self._add_edge(self.chosen[i], self.chosen[j], matrix)
        self.peak = self.model.new_int_var(0, net.limit, "")
        self._add_usages(net)
        sizes = abs(self.constant) + sum(abs(c) for _, c in self.terms)
        most_used = int(net.pieces[4].sum()) + int(net.base.max(initial=0))
        self.is_exact = max(sizes, most_used) < 2**52  # so are the solver's integers

    @property
    def cost(self) -> Any:
        return sum(c * x for x, c in self.terms) + self.constant

    def _add_edge(self, first: list[Any], second: list[Any], matrix: np.ndarray) -> None:
        """Strategies of equal costs are one line of the matrix, with the sum of their variables."""
        rows, row_of = np.unique(matrix, axis=0, return_inverse=True)
        lines, column_of = np.unique(rows, axis=1, return_inverse=True)
        by_row = _sums(first, row_of, len(lines))
        by_column = _sums(second, column_of, len(lines[0]))
        allowed = lines < FORBIDDEN
        least = int(lines[allowed].min())
        self.constant += least
        if (lines[allowed] == least).all():
            self._allow(by_row, by_column, allowed)
            return
        # (S2) a variable per pair of lines, whose sums are those of the lines: on a tree this
        # relaxation is exact
        pairs = np.full(lines.shape, None)
        for r, c in np.argwhere(allowed).tolist():
            pairs[r, c] = self.model.new_bool_var("")
            if lines[r, c] > least:
                self.terms.append((pairs[r, c], int(lines[r, c]) - least))
        for variable, line, ok in zip(
            by_row + by_column, [*pairs, *pairs.T], [*allowed, *allowed.T], strict=True
        ):
            self.model.add(sum(line[ok]) == variable)

    def _allow(self, rows: list[Any], columns: list[Any], allowed: np.ndarray) -> None:
        """(S2) of pairs that cost the same: a line needs one of those that it is allowed with."""
        for variable, line in zip(rows, allowed, strict=True):
            others = sum(c for c, ok in zip(columns, line, strict=True) if ok)
            if allowed[:, line].sum() == line.sum():
                self.model.add(variable == others)
            else:
                self.model.add(variable <= others)

    def _add_usages(self, net: Network) -> None:
        """(S3) what each step uses is at most the peak, each distinct row once."""
        start, lower, upper, at, usages = (x.tolist() for x in net.pieces)
        rows: list[list[tuple[int, int, int]]] = [[] for _ in range(len(net.base))]
        for i in range(len(self.chosen)):
            for p in range(start[i], start[i + 1]):
                piece_usages = usages[at[p] : at[p + 1]]
                entries = [(i, s, u) for s, u in enumerate(piece_usages) if u]
                for t in range(lower[p], upper[p]):
                    rows[t] += entries
        distinct = {(base, *row) for base, row in zip(net.base.tolist(), rows, strict=True)}
        for base, *row in sorted(distinct):
            used = sum(u * self.chosen[i][s] for i, s, u in row)
            self.model.add(used + base <= self.peak)

    def minimised(
        self, objective: Any, seconds: float, seed: int, stop: Stop, hint: np.ndarray | None
    ) -> ExactResult:
        """Search until it is proven, or for so long."""
        self.model.minimize(objective)
        for literals, strategy in zip(
            self.chosen, [] if hint is None else hint.tolist(), strict=False
        ):
            for s, x in enumerate(literals):
                self.model.add_hint(x, s == strategy)
        solver = CpSolver()
        set_limits(solver.parameters, seconds, seed)
        solver.parameters.num_workers = 1  # the relaxation is exact, or nearly: one worker proves
        solver.parameters.cp_model_probing_level = 0
        with stop.calls(solver.stop_search):
            status = solver.solve(self.model)
        if status == INFEASIBLE:
            return ExactResult("infeasible")
        if status not in (OPTIMAL, FEASIBLE):
            return ExactResult("unknown")
        word = "optimal" if status == OPTIMAL else "feasible"
        values = [
            [solver.boolean_value(x) for x in literals].index(True) for literals in self.chosen
        ]
        bound = int(np.ceil(solver.best_objective_bound - 1e-6))
        return ExactResult(word, np.array(values, np.int64), bound)


def _sums(variables: list[Any], line_of: np.ndarray, lines: int) -> list[Any]:
    """Per line of a matrix the sum of the variables of its strategies."""
    sums: list[Any] = [0] * lines
    for x, line in zip(variables, line_of.ravel().tolist(), strict=True):
        sums[line] += x
    return sums
