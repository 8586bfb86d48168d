"""A session's trade-offs between goals, each as a checked selection.

Questions are asked of the problem without an order (`anyorder`), so what is proven holds in every
order; an answer's own peak is that of the best order found for its dispatches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.ask.front import OPEN, Reply, Tradeoffs, Vector, find_tradeoffs
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.ordered import SearchLimits, Sequenced, in_best_order
from eqsat.extract.ragged import Ints
from eqsat.extract.session import Session
from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.fits import fitting, least_fitting
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Outcome, floor
from eqsat.extract.solve.presolve import presolve
from eqsat.extract.solve.problem import Answer
from eqsat.extract.solve.relax import MEMORY, Relaxation
from eqsat.extract.withinbytes import KnownAnswer, LeastSum, WithinBytes
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.selection import GoalRequest, Group, Selection
from eqsat.model.stopping import INTERRUPTED

FIRST, NEXT = 0.6, 0.5  # of what is left, for the first goal of a question, and for others
AGAIN = 0.5  # of what is left then, for a search under one order


@dataclass
class _Least:
    """What a goal is at least; `options`: what answers hold that are worth so much at most."""

    status: str
    bound: int = 0
    options: Callable[[int], Sequence[int] | Ints] | None = None


@dataclass
class _Asker:
    """Asks one session; relaxations are shared, and answers are where the next search starts."""

    session: Session
    free: Assembly  # without an order
    within: WithinBytes | None  # the same options, unless there was no time to state them
    goals: tuple[str, ...]  # in the order of the numbers of a vector
    relaxed: dict[str, Relaxation | None] = field(default_factory=dict)
    hints: list[Answer] = field(default_factory=list)  # in the numbers of `free`
    found: dict[Vector, Sequenced] = field(default_factory=dict)
    # what is proven already, by goal, limits and options
    asked: dict[tuple[str, tuple[tuple[str, int], ...], bytes], LeastSum] = field(
        default_factory=dict
    )

    def values(self, found: Sequenced) -> Vector:
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
        best: Sequenced | None = None
        kept = self._kept(limits, end)
        if kept is not None and not len(kept) and self.free.problem.roots:
            return Reply("infeasible")
        status, bounds = "optimal", [0] * len(goals)
        for n, k in enumerate(priority):
            share = FIRST if n == 0 else NEXT if n + 1 < len(priority) else 1.0
            left = max(end - time.monotonic(), 0.1) * share
            goal = goals[k]
            least = self._least(goal, limits, kept, left)
            if least is None:
                among = None if kept is None else tuple(kept.tolist())
                found = search.minimise(Objective({goal: 1}, limits, among), None, left)
                self.learn(self.free, found.answer)
                least = _Least(found.status, found.bound)
                if found.stage is not None:
                    least.options = found.stage.within
            if least.status == "infeasible":
                return Reply("infeasible") if best is None else self._reply("wall", best, bounds)
            bounds[k] = least.bound
            best = self._best(k, limits)
            if best is None or self.values(best)[k] > least.bound:
                self._search_again(best, goal, limits, end)
                best = self._best(k, limits)
            if best is None:
                return Reply("unknown")
            if self.values(best)[k] > least.bound:
                status = "wall"
            limits[goal] = self.values(best)[k]
            if least.options is not None:
                kept = np.array(least.options(limits[goal]), dtype=np.int64)
        return self._reply(status, best, bounds)

    def _kept(self, limits: dict[str, int], end: float) -> Ints | None:
        """Options of answers within the limits, judged one by one; none: there is no answer."""
        if self.within is None:
            return None
        none = np.zeros(0, dtype=np.int64)
        self.within.limits = replace(self.within.limits, deadline=end)
        kept: Ints | None = None
        with suppress(OutOfTime), until(end, self.session.stop):
            for goal, cap in limits.items():
                if goal in self.within.goals:
                    alone = self.within.alone(goal)
                    if alone is None or alone.bound > cap:
                        return none
                    own = alone.within(cap)
                    kept = own if kept is None else np.intersect1d(kept, own)
            if kept is None:
                kept = np.arange(len(self.within.free), dtype=np.int64)
            if MEMORY in limits:
                kept = self.within.fitting(limits[MEMORY], kept)
        return kept

    def _least(
        self, goal: str, limits: dict[str, int], kept: Ints | None, seconds: float
    ) -> _Least | None:
        """What a goal is at least, if a known answer is worth no more, or none can be there.

        kept: options that answers within the limits hold. None if nothing of that can be proven
        without rows of bytes.
        """
        if self.within is None or kept is None:
            return None
        end = time.monotonic() + seconds
        self.within.limits = replace(self.within.limits, deadline=end)
        with suppress(OutOfTime), until(end, self.session.stop):
            if goal == MEMORY:
                return self._fewest(limits, kept)
            if goal in self.within.goals:
                return self._sum(goal, limits, kept)
        return None

    def _sum(self, goal: str, limits: dict[str, int], kept: Ints) -> _Least | None:
        assert self.within is not None
        best = self._best(self.goals.index(goal), limits) if goal in self.goals else None
        known = None if best is None else KnownAnswer.of(best)
        question = goal, tuple(sorted(limits.items())), kept.tobytes()
        found = self.asked.get(question) or self.within.least(goal, limits, kept, known)
        for ordered in self.within.found.values():
            self._keep(ordered)
        if found is None or not (found.is_infeasible or found.is_met):
            return None
        self.asked[question] = found
        return _Least("infeasible" if found.is_infeasible else "optimal", found.bound, found.within)

    def _fewest(self, limits: dict[str, int], kept: Ints) -> _Least | None:
        """The fewest bytes that anything fits into, if a known answer or the fastest needs no more.

        None if another answer has to be looked for.
        """
        assert self.within is not None
        problem, k = self.within.every.search.problem, self.goals.index(MEMORY)
        assert isinstance(problem, AnyOrder)
        best = self._best(k, limits)
        most = min(
            problem.most_bytes if best is None else best.peak_bytes, limits.get(MEMORY, OPEN)
        )
        few = problem.restricted(tuple(kept.tolist()))
        least = least_fitting(few, most, self._guess(kept))
        if least is None:
            return _Least("infeasible")
        if best is None or best.peak_bytes > least:
            among = kept[list(fitting(few, least))]
            self._sum("time", limits | {MEMORY: least}, among)
            best = self._best(k, limits | {MEMORY: least})
        if best is None:
            return None
        return _Least("optimal", least, lambda cap: kept[list(fitting(few, cap))])

    def _guess(self, kept: Ints) -> int | None:
        """The fewest bytes that something of the input program's own nodes fits into."""
        problem, nodes = self.free.problem, self.session.egraph.nodes
        assert isinstance(problem, AnyOrder)
        own = [all(nodes[m].rule == -1 for m in c.members) for c in self.free.candidates]
        few = problem.restricted(tuple(i for i in kept.tolist() if own[i]))
        useful = presolve(few)
        few = few.restricted(useful)
        if not few.writers.keys() >= set(few.roots):
            return None
        return least_fitting(few, few.most_bytes)

    def _search(self, limits: dict[str, int], seconds: float) -> Search:
        sides = SearchLimits(time.monotonic() + seconds, self.session.seed, self.session.stop)
        sums = {g: c for g, c in limits.items() if g != MEMORY}  # its rows are slow to relax
        search = sides.search(self.free, sums, *dict.fromkeys(self.hints))
        return replace(search, relaxed=self.relaxed)

    def _reply(self, status: str, best: Sequenced | None, bounds: list[int]) -> Reply:
        assert best is not None
        values = self.values(best)
        return Reply(status, values, tuple(map(min, bounds, values)))

    def learn(self, assembly: Assembly, answer: Answer | None) -> None:
        """Keep an answer, if it can be run in some order."""
        self._keep(None if answer is None else in_best_order(assembly, answer))

    def _keep(self, best: Sequenced | None) -> None:
        if best is not None and self.values(best) not in self.found:
            self.found[self.values(best)] = best
            stop = self.session.stop
            if stop is not None and best.keeps(dict(self.session.target.budget)):
                stop.has_answer = True
            self.hints += located(self.free, best.assembly.groups(best.answer))

    def _best(self, goal: int, limits: dict[str, int]) -> Sequenced | None:
        """The best answer of all that keep the limits."""
        kept = (v for v, o in self.found.items() if o.keeps(limits))
        best = min(kept, key=lambda v: (v[goal], v), default=None)
        return None if best is None else self.found[best]

    def _search_again(
        self, best: Sequenced | None, goal: str, limits: dict[str, int], end: float
    ) -> None:
        """Under the order of a known answer; dispatches found without one may have no order."""
        known = best or min(self.found.values(), key=lambda o: o.peak_bytes, default=None)
        seconds = (end - time.monotonic()) * AGAIN
        if known is None or seconds <= 0:
            return
        sides = SearchLimits(time.monotonic() + seconds, self.session.seed, self.session.stop)
        search = sides.search(known.assembly, limits, *([known.answer] if best else []))
        self.learn(
            known.assembly, search.minimise(Objective({goal: 1}, limits), None, seconds).answer
        )


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


def _unordered(session: Session, deadline: float) -> tuple[Assembly, WithinBytes | None]:
    """The problem without an order, or as it is if there is no time to state that."""
    within = session.within
    if within is not None:
        within.every.search = replace(within.every.search, deadline=deadline)
        return within.every.free, within
    try:
        return session.assembly.unordered(), None
    except OutOfTime:
        return session.assembly, None


def front_of(
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
        ask = _Asker(session, *_unordered(session, deadline), goals)
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
