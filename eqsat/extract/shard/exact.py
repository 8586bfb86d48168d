"""Small networks → CP-SAT: the proof that an answer is the best, or that there is none."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from eqsat.extract.shard.network import Network
from eqsat.model.stopping import Stop

LARGEST_SUM = 2**52  # of objective and usages, so that the solver's integers are exact
SEARCHERS = 1


@dataclass(frozen=True)
class ExactResult:
    """status: optimal | infeasible | feasible | unknown; `bound` of every allowed choice."""

    status: str
    choice: np.ndarray | None
    bound: int | None


def fits_solver(net: Network) -> bool:
    """Whether all sums are small enough for exact integers."""
    total = int(np.abs(net.costs).sum()) + int(np.abs(net.graph[4]).sum())
    return max(total, int(net.pieces[4].sum()) + int(net.base.max(initial=0))) < LARGEST_SUM


def solve_exactly(
    net: Network, seconds: float, seed: int, stop: Stop, hint: np.ndarray | None = None
) -> ExactResult:
    """Search until it is proven, or for so long."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    offsets = net.offsets.tolist()
    chosen = [model.new_bool_var(f"s{s}") for s in range(len(net.costs))]
    for a, b in itertools.pairwise(offsets):
        model.add_exactly_one(chosen[a:b])
    terms = list(zip(chosen, net.costs.tolist(), strict=True))
    constant = _add_edges(model, net, chosen, terms)
    _add_usages(model, net, chosen)
    model.minimize(sum(v * c for v, c in terms) + constant)
    if hint is not None:
        for i, (a, b) in enumerate(itertools.pairwise(offsets)):
            for s in range(a, b):
                model.add_hint(chosen[s], int(s - a == hint[i]))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.num_workers = SEARCHERS
    solver.parameters.random_seed = seed
    with stop.calls(solver.stop_search):
        status = solver.solve(model)
    word = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible"}.get(status, "unknown")
    if status == cp_model.INFEASIBLE:
        return ExactResult("infeasible", None, None)
    bound = int(np.ceil(solver.best_objective_bound - 1e-6)) if word != "unknown" else None
    if word == "unknown":
        return ExactResult("unknown", None, None)
    values = np.array([solver.boolean_value(v) for v in chosen])
    choice = [int(values[a:b].argmax()) for a, b in itertools.pairwise(offsets)]
    return ExactResult(word, np.array(choice, np.int64), bound)


def _add_edges(model, net: Network, chosen: list, terms: list) -> int:
    """A variable per pair of strategies with a cost above its edge's least; that is returned."""
    offsets, first, second, at, costs = (x.tolist() for x in net.graph[:5])
    constant = 0
    for e, (i, j) in enumerate(zip(first, second, strict=True)):
        rows, columns = chosen[offsets[i] : offsets[i + 1]], chosen[offsets[j] : offsets[j + 1]]
        own = costs[at[e] : at[e + 1]]
        least = min(own)
        constant += least
        pairs = [model.new_bool_var(f"e{e}_{q}") for q in range(len(own))]
        wide = len(columns)
        for q, row in enumerate(rows):
            model.add(sum(pairs[q * wide : (q + 1) * wide]) == row)
        for q, column in enumerate(columns):
            model.add(sum(pairs[q::wide]) == column)
        terms += [(v, c - least) for v, c in zip(pairs, own, strict=True) if c > least]
    return constant


def _add_usages(model, net: Network, chosen: list) -> None:
    """A row per step whose usage could exceed the limit, each distinct one once."""
    start, lower, upper, at, usages = (x.tolist() for x in net.pieces)
    offsets = net.offsets.tolist()
    rows: list[list[tuple[int, int]]] = [[] for _ in range(len(net.base))]
    for i, o in enumerate(offsets[:-1]):
        for p in range(start[i], start[i + 1]):
            own = usages[at[p] : at[p + 1]]
            entries = [(o + s, u) for s, u in enumerate(own) if u]
            for t in range(lower[p], upper[p]):
                rows[t] += entries
    seen: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
    for base, row in zip(net.base.tolist(), rows, strict=True):
        key = (base, tuple(row))
        if row and key not in seen:
            seen.add(key)
            model.add(sum(u * chosen[s] for s, u in row) <= net.limit - base)
