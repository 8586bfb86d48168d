"""A session's trade-offs between goals, each as a checked selection.

Questions are asked of the problem without an order (`anyorder`), so what is proven holds in every
order; an answer's own peak is that of the best order found for its dispatches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from eqsat.extract.ask.front import OPEN, Reply, Tradeoffs, Vector, find_tradeoffs
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.ordered import Limits, Ordered, in_best_order
from eqsat.extract.session import Session
from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.fits import least_fitting
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.outcome import Found, Outcome, floor
from eqsat.extract.solve.problem import Answer
from eqsat.extract.solve.relax import MEMORY, Relaxation
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.selection import GoalRequest, Group, Selection
from eqsat.model.stopping import INTERRUPTED

FIRST, NEXT = 0.6, 0.5  # of what is left, for the first goal of a question, and for others
AGAIN = 0.5  # of what is left then, for a search under one order


@dataclass
class _Asker:
    """Asks one session; relaxations are shared, and answers are where the next search starts."""

    session: Session
    free: Assembly  # without an order
    goals: tuple[str, ...]  # in the order of the numbers of a vector
    relaxed: dict[str, Relaxation | None] = field(default_factory=dict)
    hints: list[Answer] = field(default_factory=list)  # in the numbers of `free`
    found: dict[Vector, Ordered] = field(default_factory=dict)

    def values(self, found: Ordered) -> Vector:
        return tuple(found.value(g) for g in self.goals)

    @property
    def is_stopped(self) -> bool:
        return self.session.stop is not None and self.session.stop.is_requested

    def __call__(self, priority: Vector, caps: Vector, seconds: float) -> Reply:
        if self.is_stopped:
            return Reply(INTERRUPTED)
        goals = self.goals
        asked = {g: c for g, c in zip(goals, caps, strict=True) if c < OPEN}
        limits = dict(self.session.target.budget) | asked
        end = time.monotonic() + seconds
        search = self._search(limits, seconds)
        best: Ordered | None = None
        among: tuple[int, ...] | None = None
        status, bounds = "optimal", [0] * len(goals)
        for n, k in enumerate(priority):
            share = FIRST if n == 0 else NEXT if n + 1 < len(priority) else 1.0
            left = max(end - time.monotonic(), 0.1) * share
            goal = goals[k]
            fewest = self._fewest(search, limits, left, among) if goal == MEMORY else None
            found = fewest or search.minimise({goal: 1}, limits, None, left, among)
            if found.status == "infeasible":
                return Reply("infeasible") if best is None else self._reply("wall", best, bounds)
            bounds[k] = found.bound
            self.learn(self.free, found.answer)
            best = self._best(k, limits)
            if best is None or self.values(best)[k] > found.bound:
                self._search_again(best, goal, limits, end)
                best = self._best(k, limits)
            if best is None:
                return Reply("unknown")
            if self.values(best)[k] > found.bound:
                status = "wall"
            limits[goal] = self.values(best)[k]
            among = found.stage.within(limits[goal]) if found.stage else among
        return self._reply(status, best, bounds)

    def _fewest(
        self,
        search: Search,
        limits: dict[str, int],
        seconds: float,
        among: tuple[int, ...] | None,
    ) -> Found | None:
        """The fewest bytes that anything fits into, if a known answer or the fastest needs no more.

        `among`: options that answers within the limits hold, if that is known. None if another
        answer has to be looked for, or there is no time to ask.
        """
        problem, goal = search.problem, self.goals.index(MEMORY)
        if not isinstance(problem, AnyOrder):
            return None
        best = self._best(goal, limits)
        most = problem.most_bytes if best is None else best.peak_bytes
        try:
            with until(time.monotonic() + seconds, self.session.stop):
                few = problem if among is None else problem.restricted(among)
                least = least_fitting(few, min(most, limits.get(MEMORY, most)))
        except OutOfTime:
            return None
        if least is None:
            return Found("infeasible")
        if best is None or best.peak_bytes > least:
            within = limits | {MEMORY: least}
            found = search.minimise({"time": 1}, within, None, seconds, among)
            self.learn(self.free, found.answer)
            best = self._best(goal, within)
        return None if best is None else Found("optimal", None, least)

    def _search(self, limits: dict[str, int], seconds: float) -> Search:
        sides = Limits(time.monotonic() + seconds, self.session.seed, self.session.stop)
        sums = {g: c for g, c in limits.items() if g != MEMORY}  # its rows are slow to relax
        search = sides.search(self.free, sums, *dict.fromkeys(self.hints))
        return replace(search, relaxed=self.relaxed)

    def _reply(self, status: str, best: Ordered | None, bounds: list[int]) -> Reply:
        assert best is not None
        values = self.values(best)
        return Reply(status, values, tuple(map(min, bounds, values)))

    def learn(self, assembly: Assembly, answer: Answer | None) -> None:
        """Keep an answer, if it can be run in some order."""
        best = None if answer is None else in_best_order(assembly, answer)
        if best is not None and self.values(best) not in self.found:
            self.found[self.values(best)] = best
            stop = self.session.stop
            if stop is not None and best.keeps(dict(self.session.target.budget)):
                stop.has_answer = True
            self.hints += located(self.free, best.assembly.groups(best.answer))

    def _best(self, goal: int, limits: dict[str, int]) -> Ordered | None:
        """The best answer of all that keep the limits."""
        kept = (v for v, o in self.found.items() if o.keeps(limits))
        best = min(kept, key=lambda v: (v[goal], v), default=None)
        return None if best is None else self.found[best]

    def _search_again(
        self, best: Ordered | None, goal: str, limits: dict[str, int], end: float
    ) -> None:
        """Under the order of a known answer; dispatches found without one may have no order."""
        known = best or min(self.found.values(), key=lambda o: o.peak_bytes, default=None)
        seconds = (end - time.monotonic()) * AGAIN
        if known is None or seconds <= 0:
            return
        sides = Limits(time.monotonic() + seconds, self.session.seed, self.session.stop)
        search = sides.search(known.assembly, limits, *([known.answer] if best else []))
        self.learn(known.assembly, search.minimise({goal: 1}, limits, None, seconds).answer)


def located(free: Assembly, groups: tuple[Group, ...]) -> list[Answer]:
    """These groups as an answer of the problem without an order; nothing if it lacks one."""
    space, options = free.pool.space, free.problem.options
    at: dict[frozenset[int], list[int]] = {}
    for i, o in enumerate(options):
        at.setdefault(frozenset(o.writes), []).append(i)
    chosen: set[int] = set()
    written: set[int] = set()
    for g in groups:
        reads = {space.buffer[r] for r in g.reads}
        same = [
            i
            for i in at.get(frozenset(space.buffer[w] for w in g.writes), [])
            if reads.issuperset(options[i].reads)
            and reads.issuperset(options[i].resident)
            and written.isdisjoint(options[i].resident)
        ]
        if not same:
            return []
        best = min(same, key=lambda i: (options[i].adds, i))
        chosen.add(best)
        written.update(options[best].writes)
    answer = tuple(sorted(chosen))
    return [answer] if free.problem.is_legal(answer) else []


def _unordered(assembly: Assembly) -> Assembly:
    """The problem without an order, or as it is if there is no time to state that."""
    try:
        return assembly.unordered()
    except OutOfTime:
        return assembly


def pareto(
    session: Session, goals: tuple[str, ...], *, points: int, seconds: float
) -> tuple[Tradeoffs, tuple[Selection, ...]]:
    """The trade-offs of these goals found within so many seconds, and a selection for each.

    A selection's bounds are those of its trade-off: what a goal is at least, in whatever order,
    while no other goal is worse. Budgets of the target hold for all of them. Where candidates were
    cut, nothing is proven and no front is complete.
    """
    start = time.monotonic()
    deadline = start + seconds
    with until(deadline, session.stop):
        ask = _Asker(session, _unordered(session.assembly), goals)
        for hint in session.hints:
            ask.learn(session.assembly, hint)
        budget = dict(session.target.budget)
        known = [v for v, o in ask.found.items() if o.keeps(budget)]
        caps = tuple(budget.get(g, OPEN) for g in goals)
        floors = tuple(floor(session.assembly.problem, g) for g in goals)
        found = find_tradeoffs(ask, caps, floors, points=points, deadline=deadline, known=known)
    if session.assembly.cuts:
        stop = "cut" if found.stop == "complete" else found.stop
        exist = int(bool(found.found))
        found = replace(found, at_least=exist, complete=False, stop=stop)
    requests = tuple(GoalRequest(g) for g in goals)
    selections = []
    for t in found.found:
        ordered = ask.found[t.values]
        bounds: dict[str, int] = dict(zip(goals, t.bounds, strict=True))
        outcome = Outcome("optimal" if t.is_proven else "wall", ordered.answer, bounds)
        own = replace(session, assembly=ordered.assembly)
        selections.append(own.selection(outcome, requests, time.monotonic() - start))
    return found, tuple(selections)
