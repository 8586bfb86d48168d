"""Orders of dims in memory that a caller leaves free: asked for, searched, and the answer in them.

An argument whose order is free costs nothing to be read transposed, as the caller keeps it so. One
e-graph states this of all of them (`ops.programs.freeorders`), and each choice is searched in it,
or where there are many the likely ones. What is best is searched once more as a program with these
orders as layouts of its border, so what follows knows of no freedom: prices, checks and the
artefact are those of any program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eqsat.frontends.source import Source
from eqsat.frontends.sourceborders import lying_in, ordered
from eqsat.model.deadline import Stop, elapsed
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.layout import SEARCH, AskedOrders, Border, MemoryOrders
from eqsat.model.program import Program
from eqsat.model.progress import Progress, heard, timed
from eqsat.model.selection import GoalRequest, Selection
from eqsat.ops.programs.freeorders import free_orders, in_orders, likely_orders, used_orders
from eqsat.report.formatting import goal_text
from eqsat.run import Run
from eqsat.run.phases import saturated, searched

PLAIN_SHARE = 0.4  # of the time limit, for the search with plain arguments
LOOKING = 0.5  # of what is then left, for searches of the e-graph with free orders
MOST_TRIED = 24  # choices of orders, if all are looked at
Perm = tuple[int, ...]
Choice = dict[tuple[Border, ...], Perm | None]  # of ties; None: the plain order


# ---- the search ----------------------------------------------------------------------------------
def searched_in_orders(
    run: Run, asked: AskedOrders, stop_after: str | None, stop: Stop | None, listener: Progress
) -> tuple[Run, Run]:
    """Every stage in the orders that are free where that is better, and with plain arguments.

    Plain ones are searched first; both runs are the same where no order is free.
    """
    assert listener.limit is not None
    end = listener.begin + listener.limit
    if not asked.free:
        plain = searched(run, stop_after, stop, end)
        return plain, plain
    plain = searched(run, stop_after, stop, listener.begin + PLAIN_SHARE * listener.limit)
    with timed(plain.seconds, "orders"), heard(None):
        return _in_best_orders(plain, asked, stop, end), plain


def _in_best_orders(plain: Run, asked: AskedOrders, stop: Stop | None, deadline: float) -> Run:
    """The program in the orders in which it is cheapest, or `plain`, a run of the plain one.

    Never worse than `plain` by its goals. deadline: of `elapsed`.
    """
    report = plain.orders or MemoryOrders()
    why = _not_searched(plain)
    program, egraph = plain.canonical, plain.egraph
    if why or egraph is None or plain.selection is None:
        return replace(plain, orders=replace(report, why=why))
    likely = {tie: _likely(program, egraph, tie) for tie in asked.free}
    ties = {tie: orders for tie, orders in likely.items() if orders}
    goal = plain.goals[0].name
    value = goal_vector(plain.selection, plain.goals)[0]
    report = replace(report, goal=goal, plain=value, value=value)
    if not ties:
        nothing = "no op of the e-graph reads or makes any of them in another order"
        return replace(plain, orders=replace(report, why=nothing))
    now = elapsed()
    looking = _Looking(plain, ties, now + LOOKING * (deadline - now), stop)
    equalities = free_orders(program, looking.orders, len(program.nodes))
    assert equalities is not None
    looking.graph = saturated(plain, None, looking.deadline, (equalities,)).egraph
    best, bound = looking.search()
    report = replace(report, bound=bound, tried=looking.tried)
    if not best:
        same = "plain is the cheapest order of each, as far as was searched"
        return replace(plain, orders=replace(report, why=same))
    improved = _whole(plain, best, stop, deadline)
    if improved is None:
        worse = "a search in other orders gave nothing better than plain ones"
        return replace(plain, orders=replace(report, why=worse, tried=looking.tried + 1))
    run, values = improved
    reasons = looking.reasons(best)
    chosen = report.chosen + ordered(plain.source, best, SEARCH, reasons)
    left = tuple(b for b in report.left if b not in best)
    report = replace(report, chosen=chosen, left=left, value=values[0], tried=looking.tried + 1)
    return replace(run, orders=report)


def _whole(
    plain: Run, best: Mapping[Border, Perm], stop: Stop | None, deadline: float
) -> tuple[Run, tuple[float, ...]] | None:
    """The run in these orders, if it is better than the plain one."""
    assert plain.selection is not None
    try:
        run = _searched(plain, lying_in(plain.source, best), stop, deadline)
    except EqsatError:
        return None  # in these orders nothing is admissible, or there is no time
    if run.selection is None:
        return None
    values = goal_vector(run.selection, plain.goals)
    return (run, values) if values < goal_vector(plain.selection, plain.goals) else None


def _searched(plain: Run, source: Source, stop: Stop | None, deadline: float) -> Run:
    """A run of the whole program in these layouts; its seconds are those of the plain one."""
    from eqsat.ops.spelling.passes import canonical as merged

    none: dict[str, float | None] = dict.fromkeys(plain.seconds)
    again = Run(
        source, merged(source.program), plain.target, plain.rules, plain.goals, none,
        plain.search, plain.limits, plain.rule_check,
    )  # fmt: skip
    return replace(searched(again, None, stop, deadline), seconds=plain.seconds)


def _not_searched(run: Run) -> str:
    """Why the orders of a program are not searched; "" if they are."""
    if run.family is not None:
        return "sizes of the program are left open, and orders are chosen for known ones"
    if run.bodies:
        return "the program has loops or branches, whose bodies are searched alone"
    if run.target.devices:
        return "the program is on several devices, each of which has an order of its own"
    return ""


def _likely(program: Program, egraph: EGraph, tie: tuple[Border, ...]) -> tuple[Perm, ...]:
    orders = [o for b in tie for o in likely_orders(program, egraph, b)]
    return tuple(dict.fromkeys(orders))


def goal_vector(selection: Selection, goals: Sequence[GoalRequest]) -> tuple[float, ...]:
    """The goals in order of priority; their weighted sum where they have weights."""
    values = [float(selection.goal(g.name).value) for g in goals]
    if any(g.weight is None for g in goals):
        return tuple(values)
    return (sum(v * (g.weight or 0.0) for v, g in zip(values, goals, strict=True)),)


@dataclass(frozen=True)
class _Cheapest:
    """The cheapest answer of an e-graph: its goals, the bound of the first, orders it reads."""

    values: tuple[float, ...]
    bound: float
    used: Mapping[Border, frozenset[Perm | None]]


@dataclass
class _Looking:
    """Searches one e-graph in which orders are free, each choice of them once.

    A choice fixes ties: to an order, or to None, the plain one. Arguments that are not fixed come
    in any order, results that are not go plainly.
    """

    plain: Run
    ties: Mapping[tuple[Border, ...], tuple[Perm, ...]]
    deadline: float
    stop: Stop | None = None
    graph: EGraph | None = None
    tried: int = 0
    left_out: bool = False  # a choice was not looked at, for want of time
    looked: dict[frozenset[Any], _Cheapest | None] = field(default_factory=dict)

    @cached_property
    def orders(self) -> dict[Border, tuple[Perm, ...]]:
        return {b: orders for tie, orders in self.ties.items() for b in tie}

    def search(self) -> tuple[dict[Border, Perm], float | None]:
        """The best orders, {} if plain ones are, and a bound of the first goal for any of them.

        Where choices are few all of them are looked at. Otherwise the orders in which arguments
        are read if they come in all at once are tried, with one result after the other changed;
        that bounds nothing.
        """
        choices = self._every() if self.count <= MOST_TRIED else [self._likely()]
        bound = self._bound(choices)
        choice = min(choices, key=self._values)
        for tie, order in list(choice.items()):  # what makes no difference stays plain
            if order is not None and self._values(choice | {tie: None}) <= self._values(choice):
                choice = choice | {tie: None}
        assert self.plain.selection is not None
        if self._values(choice) >= goal_vector(self.plain.selection, self.plain.goals):
            return {}, bound
        return {b: o for tie, o in choice.items() if o is not None for b in tie}, bound

    @cached_property
    def count(self) -> int:
        """How many choices there are."""
        return math.prod(1 + len(orders) for orders in self.ties.values())

    def _every(self) -> list[Choice]:
        ways = [(None, *orders) for orders in self.ties.values()]
        return [dict(zip(self.ties, c, strict=True)) for c in itertools.product(*ways)]

    def _bound(self, choices: Sequence[Choice]) -> float | None:
        """A lower bound over all choices, if these are all and none was left out for want of time.

        One in which nothing is admissible is above any bound.
        """
        cheapest = [self._look(c) for c in choices]
        if len(choices) < self.count or self.left_out:
            return None
        return min((f.bound for f in cheapest if f is not None), default=None)

    def _likely(self) -> Choice:
        """The orders arguments are read in if they come in all, with results in the best ones."""
        results = [tie for tie in self.ties if tie[-1].kind == "result"]
        best: Choice = dict.fromkeys(results)
        for tie in results:
            best = min((best | {tie: o} for o in (None, *self.ties[tie])), key=self._values)
        cheapest = self._look(best)
        if cheapest is not None:
            for tie in [t for t in self.ties if t not in best]:
                best = self._settled(tie, best, cheapest)
        return dict.fromkeys(self.ties) | best

    def _settled(self, tie: tuple[Border, ...], choice: Choice, cheapest: _Cheapest) -> Choice:
        """The choice with one order for an argument: the one it is read in, or the best of them."""
        used = cheapest.used.get(tie[0], frozenset({None}))
        ways = sorted(used, key=lambda o: o or ())
        if len(ways) == 1:
            return choice | {tie: ways[0]}
        return min((choice | {tie: o} for o in ways), key=self._values)

    def reasons(self, best: Mapping[Border, Perm]) -> dict[Border, str]:
        """Why each order was chosen: what the first goal would be if that one were plain."""
        choice = {tie: best.get(tie[0]) for tie in self.ties}
        goal, now = self.plain.goals[0].name, self._values(choice)[0]
        by_border: dict[Border, str] = {}
        for tie in self.ties:
            other = self._values(choice | {tie: None})[0]
            if other == math.inf or self.plain.goals[0].weight is not None:
                why = "with it, the whole is cheaper"
            elif other > now:
                texts = goal_text(goal, int(other)), goal_text(goal, int(now))
                why = f"plain, the {goal} would be {texts[0]} instead of {texts[1]}"
            else:
                why = f"plain, the {goal} would be the same, and other goals worse"
            by_border |= dict.fromkeys(tie, why)
        return by_border

    def _values(self, choice: Choice) -> tuple[float, ...]:
        cheapest = self._look(choice)
        return (math.inf,) if cheapest is None else cheapest.values

    def _look(self, choice: Choice) -> _Cheapest | None:
        """The cheapest answer with this choice; None if there is none, or no time to find it."""
        key = frozenset(choice.items())
        if key not in self.looked:
            over = self.tried >= 2 * MOST_TRIED or elapsed() > self.deadline
            over |= self.stop is not None and self.stop.is_requested
            self.left_out |= over
            self.looked[key] = None if over else self._looked(choice)
        return self.looked[key]

    def _looked(self, choice: Choice) -> _Cheapest | None:
        from eqsat.extract import extract
        from eqsat.extract.candidates.space import Space

        assert self.graph is not None
        self.tried += 1
        fixed = {b: o for tie, o in choice.items() for b in tie}
        inputs = {b: frozenset({None, *orders}) for b, orders in self.orders.items()}
        inputs |= {b: frozenset({o}) for b, o in fixed.items()}
        inputs = {b: orders for b, orders in inputs.items() if b.kind == "input"}
        results = {b: o for b, o in fixed.items() if b.kind == "result" and o is not None}
        egraph = in_orders(self.graph, self.plain.canonical, inputs, results)
        if egraph is None:
            return None
        space = Space(egraph)
        twice = space.input_bytes - self._input_bytes
        budget = tuple((n, v + twice * (n == "memory")) for n, v in self.plain.target.budget)
        target = replace(self.plain.target, budget=budget)
        left, seed = max(self.deadline - elapsed(), 1.0), self.plain.search["seed"]
        try:
            selection, _ = extract(
                egraph, target, self.plain.goals, time_limit=left, seed=seed, stop=self.stop
            )
        except EqsatError:
            self.left_out |= elapsed() > self.deadline
            return None
        values = _less(goal_vector(selection, self.plain.goals), self.plain.goals, twice)
        first = self.plain.goals[0]
        bound = selection.goal(first.name).bound - twice * (first.name == "memory")
        written = {c for g in selection.groups for c in g.writes}
        reads = {c for g in selection.groups for c in g.reads}
        return _Cheapest(
            values, bound, used_orders(egraph, space.buffer, frozenset(reads - written))
        )

    @cached_property
    def _input_bytes(self) -> int:
        program = self.plain.canonical
        return sum(program.nodes[i].type.nbytes for i in program.inputs)


def _less(
    values: tuple[float, ...], goals: Sequence[GoalRequest], nbytes: int
) -> tuple[float, ...]:
    """Without the bytes of arguments that are there in several orders at once."""
    if len(values) != len(goals):
        return values
    return tuple(v - nbytes * (g.name == "memory") for v, g in zip(values, goals, strict=True))
