"""A reduced extraction problem as a CP-SAT model: it only iterates over the integers.

Acyclicity is by vertex elimination: which arcs to watch, and which follow from which.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.dag.problem import (
    Derivation,
    Reduced,
    Selection,
    dag_cost,
    reached,
    strong_components,
    successors,
)
from eqsat.model.deadline import Stop, elapsed, limited, set_workers

Arc = tuple[int, int]


@dataclass(frozen=True)
class Elimination:
    """`joined`: (a, b, c) means that arcs ab and bc make arc ac; `facing`: arcs that exclude."""

    arcs: tuple[Arc, ...]
    joined: tuple[tuple[int, int, int], ...]
    facing: tuple[tuple[Arc, Arc], ...]


def inner_arcs(classes: Mapping[int, Iterable[Derivation]], part: Iterable[int]) -> list[Arc]:
    """(class, child) within one strongly connected component."""
    inside = set(part)
    arcs = {(c, d) for c in inside for o in classes[c] for d in o.children & inside}
    return sorted(arcs)


def eliminate(arcs: list[Arc], most: int) -> Elimination | None:
    """Eliminate vertices, fewest new arcs first; None if more than `most` triples are needed."""
    after: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {}
    for a, b in arcs:
        for v in (a, b):
            after.setdefault(v, set())
            before.setdefault(v, set())
        after[a].add(b)
        before[b].add(a)
    every_arc = dict.fromkeys(arcs)
    heap = [(len(before[v]) * len(after[v]), v) for v in after]
    heapq.heapify(heap)
    gone: set[int] = set()
    joined: list[tuple[int, int, int]] = []
    while heap:
        size, v = heapq.heappop(heap)
        if v in gone:
            continue
        if len(before[v]) * len(after[v]) != size:
            heapq.heappush(heap, (len(before[v]) * len(after[v]), v))
            continue
        gone.add(v)
        for a in sorted(before[v]):
            after[a].discard(v)
            for c in sorted(after[v] - {a}):
                joined.append((a, v, c))
                every_arc[a, c] = None
                after[a].add(c)
                before[c].add(a)
        if len(joined) > most:
            return None
        near = before[v] | after[v]
        for c in after[v]:
            before[c].discard(v)
        for w in sorted(near):
            heapq.heappush(heap, (len(before[w]) * len(after[w]), w))
    facing = tuple(((a, b), (b, a)) for a, b in every_arc if a < b and (b, a) in every_arc)
    return Elimination(tuple(every_arc), tuple(joined), facing)


FINEST = 2**40  # parts of the known answer's cost: finer ones are rounded down
MOST_TRIPLES = 400_000  # of one vertex elimination; levels are used instead

Improved = Callable[[dict[int, Derivation]], None]


@dataclass(frozen=True)
class BoundedChoice:
    """The outcome of a solve; no answer costs less than `bound`."""

    status: str  # optimal | feasible | unknown
    selection: dict[int, Derivation] | None
    bound: int | None


class DagModel:
    """Variables and constraints of one reduced problem."""

    def __init__(self, reduced: Reduced):
        from ortools.sat.python import cp_model

        self.reduced = reduced
        self.model = cp_model.CpModel()
        self.chosen: dict[int, list[Any]] = {}
        self.active: dict[int, Any] = {}
        self.arcs: dict[Arc, Any] = {}
        self.levels: dict[int, Any] = {}
        self._choices()
        self._children()
        self._dominators()
        if reduced.negative:
            self._supported()
        for part in strong_components(successors(reduced.classes)):
            if len(part) > 1:
                self._entered(part)
                self._acyclic(part)

    def _choices(self) -> None:
        # (D1) a class is active if and only if one of its options is chosen; roots are
        always = self.model.new_constant(1)
        for c, options in self.reduced.classes.items():
            pinned = c in self.reduced.roots
            self.active[c] = always if pinned else self.model.new_bool_var("")
            self.chosen[c] = [self.model.new_bool_var("") for _ in options]
            off = [] if pinned else [self.active[c].negated()]
            self.model.add_exactly_one([*self.chosen[c], *off])

    def _children(self) -> None:
        # (D2) the children of a chosen option are active: Σ x[options with the child] ≤ y[child]
        for c, options in self.reduced.classes.items():
            users: dict[int, list[Any]] = {}
            for o, x in zip(options, self.chosen[c], strict=True):
                for d in o.children - (self.reduced.roots - {c}):
                    users.setdefault(d, []).append(x)
            for x in users.pop(c, ()):  # an option that needs its own class
                self.model.add(x == 0)
            for d, literals in sorted(users.items()):
                if len(literals) == len(options):
                    self.model.add_implication(self.active[c], self.active[d])
                else:
                    self.model.add_at_most_one([*literals, self.active[d].negated()])

    def _dominators(self) -> None:
        # (D3) what every way to provide a class provides is active with it
        needs, roots = self.reduced.needs, self.reduced.roots
        for c in self.reduced.classes:
            if c in roots:
                continue
            below = needs.get(c, frozenset()) - roots - {c}
            implied = set().union(*(needs.get(d, frozenset()) - {d} for d in below))
            for d in sorted(below - implied):
                self.model.add_implication(self.active[c], self.active[d])

    def _supported(self) -> None:
        # (D4) what nothing needs is not active, though it would earn: y[c] ≤ Σ x[options above]
        users: dict[int, list[Any]] = {c: [] for c in self.reduced.classes}
        for c, options in self.reduced.classes.items():
            for o, x in zip(options, self.chosen[c], strict=True):
                for d in o.children:
                    users[d].append(x)
        for c, literals in users.items():
            if c not in self.reduced.roots:
                self.model.add_bool_or([*literals, self.active[c].negated()])

    def _entered(self, part: list[int]) -> None:
        # (D5) a component is left somewhere: y[c] ≤ Σ x[options with no child inside]
        inside = set(part)
        leaving = [
            x
            for c in part
            for o, x in zip(self.reduced.classes[c], self.chosen[c], strict=True)
            if inside.isdisjoint(o.children)
        ]
        any_active = self.model.new_bool_var("")
        for c in part:
            self.model.add_implication(self.active[c], any_active)
        self.model.add_bool_or([*leaving, any_active.negated()])

    def _acyclic(self, part: list[int]) -> None:
        arcs = inner_arcs(self.reduced.classes, part)
        elimination = eliminate(arcs, MOST_TRIPLES)
        if elimination is None:
            self._levels(part)
            return
        # (D6) chosen options draw arcs, arcs are transitive, none faces another. Arcs follow from
        # options and never the other way round, so drawing one too many is harmless.
        for arc in elimination.arcs:
            self.arcs[arc] = self.model.new_bool_var("")
        for c, d in arcs:
            for o, x in zip(self.reduced.classes[c], self.chosen[c], strict=True):
                if d in o.children:
                    self.model.add_implication(x, self.arcs[c, d])
        for a, b, c in elimination.joined:
            one, two, both = self.arcs[a, b], self.arcs[b, c], self.arcs[a, c]
            self.model.add_bool_or([one.negated(), two.negated(), both])
        for one, two in elimination.facing:
            self.model.add_bool_or([self.arcs[one].negated(), self.arcs[two].negated()])

    def _levels(self, part: list[int]) -> None:
        # (D7) the same for components too dense for (D6): an option is above its children
        for c in part:
            self.levels[c] = self.model.new_int_var(0, len(part) - 1, "")
        for c in part:
            for o, x in zip(self.reduced.classes[c], self.chosen[c], strict=True):
                for d in sorted(o.children.intersection(part) - {c}):
                    above = self.levels[c] >= self.levels[d] + 1
                    self.model.add(above).only_enforce_if(x)

    def minimise(self, best_cost: int) -> int:
        """Set the objective; the result is the unit its value has to be multiplied by.

        Costs are rounded down to multiples of the unit, so that the optimum is a bound. What no
        answer as good as the best one can pay is left out, however dear it is.
        """
        most = best_cost - earnings(self.reduced)
        pairs = [
            (o.cost, x)
            for c, options in self.reduced.classes.items()
            for o, x in zip(options, self.chosen[c], strict=True)
        ]
        for cost, x in pairs:
            if cost > most:
                self.model.add(x == 0)
        paid = [(cost, x) for cost, x in pairs if cost and cost <= most]
        unit = _unit([cost for cost, _ in paid], max(most, -earnings(self.reduced)))
        self.model.minimize(sum(cost // unit * x for cost, x in paid))
        return unit

    def hint(self, selection: Selection) -> None:
        """Start from this answer."""
        live = set(reached(selection, self.reduced.roots))
        for c, options in self.reduced.classes.items():
            if c not in self.reduced.roots:
                self.model.add_hint(self.active[c], c in live)
            for o, x in zip(options, self.chosen[c], strict=True):
                self.model.add_hint(x, c in live and selection[c] is o)

    def selection(self, value: Callable[[Any], Any]) -> dict[int, Derivation]:
        """The chosen options of all that is reachable."""
        selected = {
            c: o
            for c, options in self.reduced.classes.items()
            for o, x in zip(options, self.chosen[c], strict=True)
            if value(x)
        }
        return {c: selected[c] for c in reached(selected, self.reduced.roots)}


def earnings(reduced: Reduced) -> int:
    """The least that any answer can cost, if all that is negative could be had alone."""
    least = (min(o.cost for o in options) for options in reduced.classes.values())
    return sum(min(cost, 0) for cost in least)


def _unit(costs: list[int], total: int) -> int:
    """The unit of costs, or nearly so where that is too fine for the solver."""
    exact = math.gcd(*costs) or 1
    return exact if total <= exact * FINEST else -(-total // FINEST)


def solve_dag(
    reduced: Reduced,
    hint: Mapping[int, Derivation],
    *,
    deadline: float,
    seed: int,
    work_limit: float | None = None,
    by_tree: bool = False,
    improved: Improved | None = None,
    stop: Stop | None = None,
) -> BoundedChoice:
    """Minimise the DAG cost of the classes (`base` apart).

    `deadline` is of `elapsed`, `work_limit` in CP-SAT's deterministic time. `by_tree`: a
    tree search that raises the bound node by node instead of the portfolio.
    """
    from ortools.sat.python import cp_model

    model = DagModel(reduced)
    unit = model.minimise(dag_cost(hint, reduced.roots))
    model.hint(hint)
    solver = cp_model.CpSolver()
    if by_tree:
        solver.parameters.num_workers = 1
        solver.parameters.optimize_with_lb_tree_search = True
    else:
        set_workers(solver.parameters)

    class Watch(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if improved is not None:
                improved(model.selection(self.boolean_value))

    with limited(solver, deadline - elapsed(), seed, stop, work_limit):
        status = solver.solve(model.model, Watch())
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return BoundedChoice("unknown", None, None)
    best = model.selection(solver.boolean_value)
    word = "optimal" if status == cp_model.OPTIMAL else "feasible"
    return BoundedChoice(word, best, math.ceil(solver.best_objective_bound - 1e-6) * unit)
