"""One extraction that can be asked many questions: its problem, the known answers, the baseline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from eqsat.extract.blocks import Rolled
from eqsat.extract.candidates.assemble import Assembly, Choices, choices
from eqsat.extract.candidates.life import small_bytes
from eqsat.extract.candidates.packing import packing
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import check
from eqsat.extract.dispatch.floors import floors
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.joint import with_best_order, within_budget
from eqsat.extract.narrow import narrow
from eqsat.extract.ordered import SearchLimits, Sequenced, greedily, under
from eqsat.extract.selected import selection_of, with_floors
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.linear import OWN, broken, linear_goals, value_stated
from eqsat.extract.solve.objective import MEMORY
from eqsat.extract.solve.outcome import Outcome
from eqsat.extract.solve.problem import Answer
from eqsat.extract.unread import with_read_results
from eqsat.extract.withinbytes import WithinBytes
from eqsat.model import progress
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.goal import Goal
from eqsat.model.selection import (
    TIME_LIMIT,
    Cut,
    GoalRequest,
    Group,
    Selection,
)
from eqsat.model.stopping import OUT_OF_MEMORY, WALL, Stop
from eqsat.model.target import Target

# shares of the time that is left: for the input program's candidates; and for its search
OWN_ENOUGH, BASELINE = 0.15, 0.3
# seconds for it at least, whatever the limit, where there is a budget or no answer yet: the input
# program is where one may be found at once
LEAST_OWN = 2.0
# seconds for floors at least: without them a search that is cut proves nothing
LEAST_FLOORS = 1.0
PACKED = 0.6  # for the baseline's dispatches in other layouts
# then for all candidates (stating the problem takes about as long again); until it is stated
ENOUGH, STATED = 0.5, 0.85
LATER = 0.25  # at most, of the search's time: for what holds in every order


@dataclass(frozen=True)
class Session:
    """The assembled problem of an e-graph on a target; searches share it.

    `hints` are legal answers known without a search, the baseline's among them; `reference` holds
    the baseline's value per goal, None if the input program is not admissible. `least`: what goals
    are at least in any order, and what proves it; known where only the options are left that hold
    an answer no worse than the best hint by the first goal (`narrow`). is_refused: no answer keeps
    the budgets, which is proven in every order. within: if nothing was left out, the question it is
    part of, for others about the same options.
    """

    egraph: EGraph
    target: Target
    linear: Mapping[str, Goal]
    assembly: Assembly
    hints: tuple[Answer, ...]
    baseline: Selection | None
    seed: int
    stop: Stop | None = None  # who may end its searches early
    floors: Mapping[str, int] = field(default_factory=dict)  # bounds that hold whatever was cut
    least: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    is_refused: bool = False
    within: WithinBytes | None = None
    start: Sequenced | None = None  # an answer that is better than the baseline by the first goal

    @property
    def reference(self) -> dict[str, int] | None:
        if self.baseline is None:
            return None
        return {n: r.value for n, r in self.baseline.goals}

    @property
    def fallback(self) -> Selection | None:
        """The baseline, unless rules with `apply: replace` took a node of it out of the search."""
        nodes, own = self.egraph.nodes, self.baseline
        if own is None or any(nodes[m].subsumed for g in own.groups for m in g.members):
            return None
        return own

    def started(self, goals: tuple[GoalRequest, ...]) -> Selection | None:
        """The answer that was there before the search, or else the fallback; nothing is proven."""
        if self.start is None:
            return self.fallback
        whole = replace(self, assembly=replace(self.start.assembly, cuts=self.assembly.cuts))
        return whole.selection(Outcome(WALL, self.start.answer), goals)

    def search(self, seconds: float, budget: Mapping[str, int] | None = None) -> Search:
        """A search under the target's budget, or another one; it ends after so many seconds."""
        kept = dict(self.target.budget) if budget is None else dict(budget)
        deadline = time.monotonic() + seconds
        known = self.assembly.problem, kept, deadline, self.seed, self.hints
        return Search(*known, stop=self.stop, least=self.least, free=self.assembly.free)

    def ordered(
        self,
        outcome: Outcome,
        goals: tuple[GoalRequest, ...],
        seconds: float,
    ) -> tuple[Session, Outcome]:
        """The outcome with the order chosen as well, and the session under that order."""
        progress.phase("order")
        limits = SearchLimits(time.monotonic() + seconds, self.seed, self.stop)
        known = () if self.baseline is None else self.baseline.groups
        sides = self.reference, dict(self.target.budget), limits, known, self.least
        try:
            with until(limits.deadline, self.stop):
                assembly, better = with_best_order(self.assembly, goals, outcome, *sides)
        except (MemoryError, OutOfTime) as e:  # the answer stays; what no order beats is not known
            status = OUT_OF_MEMORY if isinstance(e, MemoryError) else limits.ended
            return self, replace(outcome, status=status, bounds={}, proofs={})
        return replace(self, assembly=assembly, hints=(), least={}), better

    def answer(
        self, goals: tuple[GoalRequest, ...], seconds: float
    ) -> tuple[Session, Search, Outcome]:
        """The goals minimised, under another order if the program's keeps no budget.

        Some time is left for `ordered`: without it nothing is proven.
        """
        progress.phase("search")
        end = time.monotonic() + seconds
        later = min(seconds * LATER, 4 * self.assembly.seconds + 1)
        search = replace(self.search(seconds - later), defers=True)
        refused = Outcome("infeasible") if self.is_refused else None
        outcome = refused or search.run(goals, self.reference)
        if refused or outcome.answer is not None:
            return self, search, outcome
        status, session = self.in_some_order(goals, end - time.monotonic())
        if status != "feasible":
            return session, search, replace(outcome, status=status)
        search = replace(session.search(end - later - time.monotonic()), defers=True)
        return session, search, search.run(goals, self.reference)

    def in_some_order(self, goals: tuple[GoalRequest, ...], seconds: float) -> tuple[str, Session]:
        """(feasible | infeasible | unknown, the session under an order that keeps the budgets).

        For budgets the program's order does not keep; `infeasible` holds in every order.
        """
        limits = SearchLimits(time.monotonic() + seconds, self.seed, self.stop)
        budget = dict(self.target.budget)
        try:
            with until(limits.deadline, self.stop), progress.heard(None):
                status, found = within_budget(self.assembly, goals, budget, limits)
        except OutOfTime:
            return "unknown", self
        if found is None:
            return status, self
        whole = found
        with suppress(OutOfTime), until(limits.deadline, self.stop):
            whole = under(self.assembly, found.groups) or found
        return status, replace(self, assembly=whole.assembly, hints=(whole.answer,))

    def selection(
        self,
        outcome: Outcome,
        goals: tuple[GoalRequest, ...],
        seconds: float = 0.0,
    ) -> Selection:
        """The outcome as a selection that passed the checker; EqsatError E90x if it does not.

        What is written for nobody is left out.
        """
        progress.phase("check")
        found = with_floors(selection_of(self.assembly, outcome, goals, seconds), self.floors)
        if self.assembly.pool.space.rolled is not None:
            return found  # what is checked is the selection of the whole program
        found = with_read_results(self.assembly, self.target, found, self.linear)
        verify_selection(self.egraph, self.target, found, self.linear)
        return found

    def locate(self, groups: tuple[Group, ...]) -> tuple[Answer, ...]:
        """These groups as an answer of the problem; nothing if it does not hold them all."""
        return self.assembly.locate(groups)


def prepare(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
    whole: bool = False,
    rolled: Rolled | None = None,
) -> Session:
    """Search the baseline, then assemble the problem of what may be better.

    `time_limit` (seconds) is that of the whole extraction. Where it is too short to state the whole
    problem, fewer candidates are looked for, and at the least those of the input program alone.
    whole: leave nothing out, for questions about answers that are worse by the first goal. rolled:
    of which the e-graph is the short one.
    """
    end = time.monotonic() + time_limit

    def share(of: float) -> float:
        """When so much of what is left now will be over."""
        now = time.monotonic()
        return now + of * max(end - now, 0.0)

    linear = linear_goals(dict.fromkeys([*(g.name for g in goals), *dict(target.budget)]))
    progress.phase("baseline")
    space, least = Space(egraph, target.padding, rolled), LEAST_OWN if target.budget else 0.0
    own_enough = max(share(OWN_ENOUGH), time.monotonic() + least / 2)
    baseline_end = max(share(BASELINE), time.monotonic() + least)
    asked = frozenset((*(g.name for g in goals), *dict(target.budget)))
    small = 0 if whole else small_bytes(target, goals)
    sides = _Asked(egraph, target, linear, goals, seed, stop, whole)
    quick = goals[0] == GoalRequest("time") and "memory" not in dict(target.budget)
    pool = Pool(Legality(space, target), False, asked, small_bytes=small, is_time_first=quick)
    with uncollected():
        found = choices(replace(pool, input_only=True), linear, enough=own_enough)
    own, baseline = _input_only(sides, found, baseline_end)
    if stop is not None and baseline is not None:
        stop.has_answer = True
    own = replace(own, baseline=baseline)
    if (best := own.fallback) is not None:
        progress.found(goals[0].name, best.goal(goals[0].name).value)
    progress.phase("candidates")
    bounds = _floors(pool, max(share(ENOUGH), time.monotonic() + LEAST_FLOORS), stop)
    progress.found(goals[0].name, bound=bounds.get(goals[0].name))
    known, start = found.variants.candidates, None
    if baseline is not None and not whole:
        known, start = sides.packed(pool, known, baseline, share(PACKED))
    try:
        with uncollected(), until(share(STATED), stop):
            every = choices(pool, linear, known=known, enough=share(ENOUGH))
            progress.phase("relaxation")
            session = sides.session(every, baseline, share(STATED), start)
    except OutOfTime:
        session = _with_own(own)
    for groups in [s.groups for s in (baseline, start) if s is not None]:
        hints = session.hints + session.assembly.locate(groups)
        session = replace(session, hints=tuple(dict.fromkeys(hints)))
    return replace(session, floors=bounds, start=start)


def baseline_of(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float,
    seed: int = 0,
    stop: Stop | None = None,
) -> Selection | None:
    """The baseline alone, as `prepare` finds it; `time_limit` in seconds."""
    end = time.monotonic() + time_limit
    linear = linear_goals(dict.fromkeys([*(g.name for g in goals), *dict(target.budget)]))
    asked = frozenset((*(g.name for g in goals), *dict(target.budget)))
    legality, small = Legality(Space(egraph, target.padding), target), small_bytes(target, goals)
    pool = Pool(legality, True, asked, small_bytes=small)
    with uncollected():
        found = choices(pool, linear, enough=end)
    sides = _Asked(egraph, target, linear, goals, seed, stop, False)
    return _input_only(sides, found, end)[1]


def _input_only(sides: _Asked, found: Choices, deadline: float) -> tuple[Session, Selection | None]:
    """The session of the input program's own candidates, and its best answer."""
    with progress.heard(None):
        own = sides.own(found, deadline)
        baseline = _baseline(own, sides.goals, deadline - time.monotonic())
        if baseline is None and not own.is_refused and time.monotonic() > deadline:
            baseline = _baseline(own, sides.goals, LEAST_OWN)
    return own, baseline


@dataclass(frozen=True)
class _Asked:
    """What is asked of the choices there are."""

    egraph: EGraph
    target: Target
    linear: Mapping[str, Goal]
    goals: tuple[GoalRequest, ...]
    seed: int
    stop: Stop | None
    whole: bool

    def packed(
        self, pool: Pool, known: tuple[Candidate, ...], baseline: Selection, deadline: float
    ) -> tuple[tuple[Candidate, ...], Sequenced | None]:
        """Candidates in a few layouts beside the known ones, and the best answer among them.

        None if that is no better than the baseline, or not there in time.
        """
        if MEMORY in {self.goals[0].name, *dict(self.target.budget)}:
            return known, None
        strict = replace(self, goals=_strict(self.goals[:1]))
        try:
            with uncollected(), until(deadline, self.stop), progress.heard(None):
                few = packing(pool, self.linear, known, baseline.groups)
                if few is None:
                    return known, None
                session = strict.session(few, baseline, deadline)
        except OutOfTime:
            return known, None
        first = self.goals[0].name
        found = [Sequenced(session.assembly, a) for a in session.hints]
        found = [s for s in found if s.keeps(dict(self.target.budget))]
        best = min(found, key=lambda s: s.value(first), default=None)
        if best is None or best.value(first) >= baseline.goal(first).value:
            return known, None
        progress.found(first, best.value(first))
        return few.variants.candidates, best

    def session(
        self,
        found: Choices,
        baseline: Selection | None,
        deadline: float,
        start: Sequenced | None = None,
    ) -> Session:
        """Of what may be no worse than the best known answer; OutOfTime."""
        limits = SearchLimits(deadline, self.seed, self.stop)
        budget = dict(self.target.budget)
        small = None
        if self.whole and found.fits_arrays:
            within = WithinBytes(found, limits)
            return replace(self._session(within.every.free, (), baseline), within=within)
        if not self.whole and found.fits_arrays:
            with suppress(OverflowError):
                small = narrow(found, self.goals, budget, limits, baseline, start)
        if small is None:
            return self._of(found.ordered(), baseline)
        session = self._session(small.assembly, small.hints, baseline)
        return replace(session, least=small.least, is_refused=small.is_refused)

    def own(self, found: Choices, deadline: float) -> Session:
        """Of the input program, for which there is time whatever the deadline.

        Where not even one relaxation ended, it gets as much time again: an answer of single ops,
        which is all there is otherwise, may be twice as slow.
        """
        strict = replace(self, goals=_strict(self.goals), whole=False)
        later = 2 * deadline - time.monotonic()
        for end in (deadline, later):
            with suppress(OutOfTime), until(end, self.stop):
                return strict.session(found, None, end)
        if not self.target.budget:  # which single ops may not keep
            own = self._of_some(found.single_ops(), deadline)
            if own.hints:
                return own
        return self._of_some(found, deadline)

    def _of_some(self, found: Choices, deadline: float) -> Session:
        with uncollected():
            assembly = found.ordered()
        with until(deadline, self.stop):
            return self._of(assembly, None)

    def _of(self, assembly: Assembly, baseline: Selection | None) -> Session:
        hints = greedily(assembly, self.goals[0].name)
        return self._session(assembly, hints, baseline)

    def _session(
        self, assembly: Assembly, hints: tuple[Answer, ...], baseline: Selection | None
    ) -> Session:
        known = assembly, hints, baseline, self.seed, self.stop
        return Session(self.egraph, self.target, self.linear, *known)


def _strict(goals: tuple[GoalRequest, ...]) -> tuple[GoalRequest, ...]:
    """The goals without tolerances, as the baseline is searched for."""
    return tuple(GoalRequest(g.name, g.weight) for g in goals)


def _floors(pool: Pool, deadline: float, stop: Stop | None) -> dict[str, int]:
    """Proven lower bounds; nothing if there is no time for them."""
    with suppress(OutOfTime), uncollected(), until(deadline, stop):
        return floors(pool, pool.space.remembered(Costs, pool.legality.target))
    return {}


def _with_own(session: Session) -> Session:
    """The session with nothing but the input program's own candidates, and a word about it."""
    made = sum(n.rule != -1 and not n.subsumed for n in session.egraph.nodes)
    cuts = (Cut("groups", made, TIME_LIMIT),) if made else session.assembly.cuts
    return replace(session, assembly=replace(session.assembly, cuts=cuts))


def _baseline(session: Session, goals: tuple[GoalRequest, ...], seconds: float) -> Selection | None:
    """The input program's own nodes with the best legal fusion; None if that is inadmissible."""
    start = time.monotonic()
    strict = _strict(goals)
    session, _, outcome = session.answer(strict, seconds)
    if outcome.answer is None:
        return None
    session, outcome = session.ordered(outcome, strict, seconds + start - time.monotonic())
    return session.selection(outcome, goals, time.monotonic() - start)


def verify_selection(
    egraph: EGraph, target: Target, selection: Selection, linear: Mapping[str, Goal]
) -> None:
    """EqsatError E902 (our bug) or E602 (a plug-in's) if a selection is not what it says."""
    for name in [n for n in linear if n not in OWN]:
        value = value_stated(name, linear[name], egraph, target, selection)
        if value != selection.goal(name).value:
            built = f"`build` adds up to {selection.goal(name).value}, `value` is {value}"
            raise broken(name, built)
    faults = check(egraph, target, selection)
    if faults:
        raise fail("E902", "the selection fails its check: " + "; ".join(faults), exit_code=4)
