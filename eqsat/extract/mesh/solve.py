"""A choice of spreads solved by CP-SAT: the quickest within a limit, or the one that holds least.

(M1) one strategy per node; nodes of a group have one together.
(M2) per edge and pair of lines of its table y: Σ y over a row = the strategies of that row, and the
     same of columns (the local polytope, whose relaxation is exact on trees).
(M3) per step: Σ usages of nodes and pairs ≤ the limit.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.extract.mesh.choice import FORBIDDEN, ChoiceEdge, PairTable, SpreadChoice
from eqsat.model.portfolio import set_limits

GRAIN_PS = 1_000  # of the solver's costs; what is left is added by the checker
GRAIN_BYTES = 64
TIDYING_SECONDS = 10.0  # to find what holds least among the quickest


@dataclass(frozen=True)
class SolvedSpreads:
    """status: optimal | feasible | infeasible | unknown; no answer costs less than `bound`."""

    status: str
    chosen: tuple[int, ...]
    cost: int
    peak: int
    bound: int


class _Model:
    """The CP-SAT model of one choice; its objective is set for each solve."""

    def __init__(self, choice: SpreadChoice, limit: int | None):
        from ortools.sat.python import cp_model

        self.choice, self.cp = choice, cp_model
        self.model = cp_model.CpModel()
        self.group = list(choice.groups) or list(range(len(choice.nodes)))
        self.x: dict[int, list[Any]] = {}
        self.cost: list[Any] = []
        self.usage: list[Counter[int]] = [Counter() for _ in range(choice.steps)]
        self.by_index: dict[int, Any] = {}
        self._nodes()
        self._edges()
        self.peak = self._peak(limit)
        # of choices that cost the same by the grain, none is refined
        self.spent = sum(round(c / GRAIN_PS) * x for x, c in self.cost if c >= GRAIN_PS / 2)

    def _nodes(self) -> None:
        for i, node in enumerate(self.choice.nodes):
            g = self.group[i]
            if g not in self.x:  # (M1)
                self.x[g] = [self.model.new_bool_var("") for _ in node.costs]
                self.model.add_exactly_one(self.x[g])
            for x, cost, usage in zip(self.x[g], node.costs, node.usages, strict=True):
                if cost >= FORBIDDEN:
                    self.model.add(x == 0)
                else:
                    self.cost.append((x, cost))
                    self._use(x, usage, node.lower, node.upper)

    def _use(self, x: Any, usage: int, lower: int, upper: int) -> None:
        if usage:
            self.by_index[x.index] = x
            for t in range(lower, upper):
                self.usage[t][x.index] += usage

    def _edges(self) -> None:
        alike: dict[tuple[int, int, PairTable], list[ChoiceEdge]] = defaultdict(list)
        tables: dict[int, PairTable] = {}
        for e in self.choice.edges:
            table = tables.setdefault(id(e.table), e.table)
            alike[self.group[e.first], self.group[e.second], table].append(e)
        for (a, b, table), edges in alike.items():
            self._edge(self._lines(a, table.rows), self._lines(b, table.columns), table, edges)

    def _lines(self, group: int, lines: Sequence[int]) -> list[list[Any]]:
        found: list[list[Any]] = [[] for _ in range(max(lines, default=-1) + 1)]
        for x, line in zip(self.x[group], lines, strict=True):
            found[line].append(x)
        return found

    def _edge(
        self, rows: list[list[Any]], columns: list[list[Any]], t: PairTable, es: list[ChoiceEdge]
    ) -> None:
        allowed = [
            [c for c, cost in enumerate(line) if cost < FORBIDDEN and columns[c]]
            for line in t.costs
        ]
        if t.is_free:
            self._allow(rows, columns, allowed)
            return
        into: list[list[Any]] = [[] for _ in columns]
        for r, line in enumerate(allowed):  # (M2)
            pairs = [self.model.new_bool_var("") for _ in line]
            self.model.add(sum(pairs) == sum(rows[r]))
            for c, y in zip(line, pairs, strict=True):
                into[c].append(y)
                self.cost.append((y, t.costs[r][c] * len(es)))
                for e in es:
                    self._use(y, t.usages[r][c], e.lower, e.upper)
        for xs, ys in zip(columns, into, strict=True):
            self.model.add(sum(ys) == sum(xs))

    def _allow(
        self, rows: list[list[Any]], columns: list[list[Any]], allowed: list[list[int]]
    ) -> None:
        """Of pairs that cost nothing only which are allowed."""
        for xs, line in zip(rows, allowed, strict=True):
            alone = len(line) == 1 and sum(line[0] in other for other in allowed) == 1
            free = sum(x for c in line for x in columns[c])
            if alone:
                self.model.add(sum(xs) == free)
            elif len(line) < len(columns):
                self.model.add(sum(xs) <= free)
        for c, xs in enumerate(columns):
            if not any(c in line for line in allowed):
                self.model.add(sum(xs) == 0)

    def _peak(self, limit: int | None) -> Any:
        if limit is None:
            limit = sum(max(n.usages, default=0) for n in self.choice.nodes)
            limit += sum(max(map(max, e.table.usages), default=0) for e in self.choice.edges)
            limit += GRAIN_BYTES * (len(self.choice.nodes) + len(self.choice.edges) + 1)
        peak = self.model.new_int_var(0, limit // GRAIN_BYTES, "peak")
        seen: set[tuple[tuple[int, int], ...]] = set()
        for t, step in enumerate(self.usage):  # (M3)
            spare = self.choice.spare // GRAIN_BYTES if t < len(self.usage) - 1 else 0
            terms = tuple(sorted(step.items()))
            if terms and (spare or terms not in seen):
                seen.add(terms)
                scaled = (-(-v // GRAIN_BYTES) * self.by_index[i] for i, v in terms)
                self.model.add(sum(scaled) <= peak + spare)
        return peak

    def solve(
        self, objective: Any, seconds: float, seed: int, hint: Sequence[int]
    ) -> tuple[str, list[int], float]:
        """Status, strategies of all nodes, and bound of the objective."""
        self.model.minimize(objective)
        self.model.clear_hints()
        for g, s in {g: s for g, s in zip(self.group, hint, strict=False)}.items():
            for i, x in enumerate(self.x[g]):
                self.model.add_hint(x, i == s)
        solver = self.cp.CpSolver()
        set_limits(solver.parameters, seconds, seed)
        solver.parameters.num_workers = 1  # the relaxation is exact, or nearly: one worker proves
        solver.parameters.cp_model_probing_level = 0
        status = solver.solve(self.model)
        name = {self.cp.OPTIMAL: "optimal", self.cp.FEASIBLE: "feasible"}.get(status, "unknown")
        if status == self.cp.INFEASIBLE:
            return "infeasible", [], 0.0
        if name == "unknown":
            return name, [], solver.best_objective_bound
        taken = {
            g: next(i for i, x in enumerate(xs) if solver.value(x)) for g, xs in self.x.items()
        }
        return name, [taken[g] for g in self.group], solver.best_objective_bound


class Solver:
    """Answers about one choice, all before one deadline."""

    def __init__(self, choice: SpreadChoice, seconds: float = 60.0, seed: int = 0):
        self.choice, self.seed = choice, seed
        self.deadline = time.monotonic() + seconds

    def quickest(self, limit: int | None = None, hint: Sequence[int] = ()) -> SolvedSpreads:
        """The choice of least time within so many bytes, and of those one that holds least."""
        m = _Model(self.choice, limit)
        objective = m.spent
        status, chosen, bound = m.solve(objective, self._left(), self.seed, hint)
        if status == "optimal":
            m.model.add(objective <= round(bound))
            again = m.solve(m.peak, min(self._left(), TIDYING_SECONDS), self.seed, chosen)
            chosen = again[1] or chosen
        return self._found(status, chosen, bound * GRAIN_PS)

    def leanest(self) -> SolvedSpreads:
        """The choice that holds least, however long it takes; its bound is of bytes."""
        m = _Model(self.choice, None)
        status, chosen, bound = m.solve(m.peak, self._left(), self.seed, ())
        return self._found(status, chosen, bound * GRAIN_BYTES)

    def _left(self) -> float:
        return max(self.deadline - time.monotonic(), 1.0)

    def _found(self, status: str, chosen: Sequence[int], bound: float) -> SolvedSpreads:
        if not chosen:
            return SolvedSpreads(status, (), 0, 0, round(bound))
        cost, peak = self.choice.cost(chosen), self.choice.peak(chosen)
        if cost >= FORBIDDEN:
            raise AssertionError("the model allows what the checker does not")
        return SolvedSpreads(status, tuple(chosen), cost, peak, round(bound))
