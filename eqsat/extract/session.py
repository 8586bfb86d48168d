"""One extraction that can be asked many questions: its choice, the known answers, the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.extract.blocks import Rolled
from eqsat.extract.candidates.assemble import Assembly, Choices, choices, packing, unrolled_assembly
from eqsat.extract.candidates.pool import Pool, small_bytes
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import check
from eqsat.extract.choice.columns import MEMORY, Answer
from eqsat.extract.choice.legal import plain_columns
from eqsat.extract.choice.linear import OWN, broken, linear_goals, value_stated
from eqsat.extract.dispatch.floors import floors
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.memory.bestorder import in_some_order
from eqsat.extract.memory.leastpeak import FEW
from eqsat.extract.minimiser import SHARES, Minimiser, Outcome, SearchLimits, TimedStep, minimise
from eqsat.extract.reducedcosts import Incumbent, Narrowed, fix_by_reduced_cost
from eqsat.extract.selected import selection_of, with_floors, with_read_results
from eqsat.model import progress
from eqsat.model.deadline import (
    OUT_OF_TIME,
    OutOfTime,
    Stop,
    elapsed,
    gc_paused,
    until,
)
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.goal import Goal
from eqsat.model.selection import (
    TIME_LIMIT,
    Cut,
    GoalRequest,
    Selection,
    short_of_time,
)
from eqsat.model.target import Target


@dataclass(frozen=True)
class Session:
    """The choice of an e-graph on a target; searches share it.

    `best` is the best answer known without a search, of those that keep the budgets. `least`: what
    goals are at least in any order, and what proves it; known where only the columns are left that
    hold an answer no worse than the best one by the first goal (`narrow`). is_refused: no answer
    keeps the budgets, which is proven in every order.
    """

    egraph: EGraph
    target: Target
    linear: Mapping[str, Goal]
    assembly: Assembly
    best: Answer | None
    baseline: Selection | None
    seed: int
    stop: Stop | None = None  # who may end its searches early
    floors: Mapping[str, int] = field(default_factory=dict)  # bounds that hold whatever was cut
    least: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    is_refused: bool = False
    start: tuple[Assembly, Answer] | None = None  # better than the baseline by the first goal

    @property
    def reference(self) -> dict[str, int] | None:
        """The baseline's value per goal; None if the input program is not admissible."""
        if self.baseline is None:
            return None
        return {n: r.value for n, r in self.baseline.goals}

    @property
    def fallback(self) -> Selection | None:
        """The baseline, unless rules with `apply: replace` took a node of it out of the search."""
        baseline = self.baseline
        return None if baseline is None or self._holds_replaced(baseline) else baseline

    def _holds_replaced(self, selection: Selection) -> bool:
        nodes = self.egraph.nodes
        return any(nodes[m].subsumed for g in selection.groups for m in g.members)

    def started(self, goals: tuple[GoalRequest, ...]) -> Selection | None:
        """The answer that was there before the search, or else the fallback; nothing is proven."""
        if self.start is None:
            return self.fallback
        assembly, answer = self.start
        whole = replace(self, assembly=replace(assembly, cuts=self.assembly.cuts))
        return whole.selection(Outcome(OUT_OF_TIME, answer), goals)

    def questions(self, seconds: float) -> Minimiser:
        """Questions about its choice, for so many seconds."""
        limits = SearchLimits(elapsed() + seconds, self.seed, self.stop)
        quick = self.assembly.pool.input_only and len(self.assembly.choice) >= FEW
        choice = self.assembly.choice
        ended = self.assembly.space.rolled is not None and not self.assembly.pool.input_only
        proven = self.least
        return Minimiser(choice, limits, quick=quick, proven=proven, is_ended_by_gaps=ended)

    def answer(self, goals: tuple[GoalRequest, ...], seconds: float) -> Outcome:
        """The goals minimised within the target's budget, in any order."""
        if self.is_refused:
            return Outcome("infeasible")
        budget, is_cut = dict(self.target.budget), bool(self.assembly.cuts)
        asked = self.questions(seconds)
        asked.orders = MEMORY in {*budget, *(g.name for g in goals)}
        sides = {"reference": self.reference, "best": self.best, "is_cut": is_cut}
        outcome = minimise(asked, goals, budget, **sides)
        if outcome.answer is None:
            return outcome
        return replace(outcome, answer=self.assembly.in_programs_order(outcome.answer))

    def selection(
        self,
        outcome: Outcome,
        goals: tuple[GoalRequest, ...],
        seconds: float = 0.0,
    ) -> Selection:
        """The outcome as a selection that passed the checker; EqsatError E90x if it does not.

        Dead stores are left out.
        """
        progress.phase("check")
        selection = with_floors(selection_of(self.assembly, outcome, goals, seconds), self.floors)
        if self.assembly.space.rolled is not None:
            return selection  # what is checked is the selection of the whole program
        selection = with_read_results(self.assembly, self.target, selection)
        verify_selection(self.egraph, self.target, selection, self.linear)
        if not self.assembly.pool.input_only and self._holds_replaced(selection):
            raise fail("E902", "the selection holds a node that a rule replaced", exit_code=4)
        return selection


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
    limits = SearchLimits(elapsed() + time_limit, seed, stop)
    sides = _Asked(egraph, target, goals, limits, whole=whole, rolled=rolled)
    progress.phase("baseline")
    least, pool = SHARES.own_seconds if target.budget else 0.0, sides.pool
    own_enough = limits.share(SHARES.own_candidates, least / 2)
    timed = TimedStep("baseline", limits.share(SHARES.baseline, least))
    program_session, baseline, program_choices = sides.input_only(timed.deadline, own_enough)
    timed.tell()
    if stop is not None and baseline is not None:
        stop.has_answer = True
    program_session = replace(program_session, baseline=baseline)
    if (best := program_session.fallback) is not None:
        progress.found(goals[0].name, best.goal(goals[0].name).value)
    progress.phase("candidates")
    bounds = sides.floors()
    progress.found(goals[0].name, bound=bounds.get(goals[0].name))
    own_found, start = tuple(pool.allowed(program_choices.sources.candidates.candidates)), None
    every = sides.every(own_found)
    if baseline is not None and not whole and (every is None or short_of_time(every.cuts)):
        every, start = sides.packed(every, own_found, baseline)
    try:
        if every is None:
            raise OutOfTime
        progress.phase("relaxation")
        with gc_paused(), limits.step("choice", SHARES.stating) as timed:
            session = sides.session(every, program_session.fallback, timed.deadline, start)
            session = replace(session, baseline=baseline)
    except OutOfTime:
        session = _with_own(program_session)
    return replace(session, floors=bounds, start=start)


def baseline_of(
    egraph: EGraph, target: Target, goals: tuple[GoalRequest, ...], limits: SearchLimits
) -> Selection | None:
    """The baseline alone, as `prepare` finds it."""
    return _Asked(egraph, target, goals, limits).input_only(limits.deadline, limits.deadline)[1]


@dataclass(frozen=True)
class _Asked:
    """The request of an extraction: an e-graph, a target, goals and limits."""

    egraph: EGraph
    target: Target
    goals: tuple[GoalRequest, ...]
    limits: SearchLimits
    whole: bool = False
    rolled: Rolled | None = None

    @cached_property
    def names(self) -> dict[str, None]:
        """Goals, and what has a budget."""
        return dict.fromkeys([*(g.name for g in self.goals), *dict(self.target.budget)])

    @cached_property
    def linear(self) -> dict[str, Goal]:
        return linear_goals(self.names)

    @cached_property
    def pool(self) -> Pool:
        target, goals = self.target, self.goals
        small = 0 if self.whole else small_bytes(target, goals)
        quick = goals[0] == GoalRequest("time") and MEMORY not in dict(target.budget)
        legality = Legality(Space(self.egraph, target.padding, self.rolled), target)
        asked = frozenset(self.names)
        return Pool(legality, False, asked, small_bytes=small, is_time_first=quick)

    def floors(self) -> dict[str, int]:
        """Proven lower bounds; nothing if there is no time for them."""
        share, least = SHARES.candidates, SHARES.least_seconds
        with suppress(OutOfTime), gc_paused(), self.limits.step("floors", share, least):
            return floors(self.pool, self.pool.space.remembered(Costs, self.target))
        return {}

    def input_only(
        self, deadline: float, enough: float
    ) -> tuple[Session, Selection | None, Choices]:
        """The session of the input program's own candidates, its best answer, and these.

        No answer if it is proven that nothing keeps the budgets, or if time ended before anything
        did. enough: when no further candidates are looked for.
        """
        with gc_paused(), until(math.inf, self.limits.stop):
            program_choices = choices(
                replace(self.pool, input_only=True), self.linear, enough=enough
            )
        with progress.heard(None):
            program_session, goals = self.of_program(program_choices, deadline), _strict(self.goals)
            for seconds in (deadline - elapsed(), SHARES.own_seconds):
                start = elapsed()
                outcome = program_session.answer(goals, seconds)
                if outcome.answer is not None:
                    best = program_session.selection(outcome, self.goals, elapsed() - start)
                    return program_session, best, program_choices
                if outcome.status == "infeasible":
                    return program_session, None, program_choices
            return program_session, self.alone(program_choices), program_choices

    def alone(self, candidates: Choices) -> Selection | None:
        """An answer of one op per dispatch, if that keeps the budgets."""
        plain = self.plain(candidates.single_ops())
        best, choice = plain.best, plain.assembly.choice
        if best is None or not choice.keeps(best, dict(self.target.budget)):
            return None
        return plain.selection(Outcome(OUT_OF_TIME, best), self.goals)

    def every(self, baseline: Sequence[Candidate]) -> Choices | None:
        """Of all nodes, or what there is time for beside the known ones; None: for nothing."""
        step = self.limits.step("candidates", SHARES.candidates)
        with suppress(OutOfTime), gc_paused(), step as timed:
            every = choices(self.pool, self.linear, baseline=baseline, enough=timed.deadline)
            timed.outcome = "cut" if short_of_time(every.cuts) else timed.outcome
            return every
        return None

    def packed(
        self, cut: Choices | None, candidates: Sequence[Candidate], baseline: Selection
    ) -> tuple[Choices | None, tuple[Assembly, Answer] | None]:
        """Candidates in a few layouts beside those there was time for, and their best answer.

        candidates: the baseline's. None if the answer is no better than the baseline, or late.
        """
        if MEMORY in {self.goals[0].name, *dict(self.target.budget)}:
            return cut, None
        strict = replace(self, goals=_strict(self.goals[:1]))
        try:
            step = self.limits.step("packing", SHARES.packing)
            with gc_paused(), progress.heard(None), step as timed:
                few = packing(self.pool, self.linear, candidates, baseline.groups)
                if few is None:
                    return cut, None
                session = strict.session(few, baseline, timed.deadline)
        except OutOfTime:
            return cut, None
        first, best = self.goals[0].name, session.best
        if best is None or not session.assembly.choice.keeps(best, dict(self.target.budget)):
            return cut, None
        value = session.assembly.choice.value(first, best)
        if value >= baseline.goal(first).value:
            return cut, None
        progress.found(first, value)
        return cut and cut.beside(few), (session.assembly, best)

    def session(
        self,
        candidates: Choices,
        baseline: Selection | None,
        deadline: float,
        start: tuple[Assembly, Answer] | None = None,
    ) -> Session:
        """With a choice among those that answers no worse than the best known one hold.

        OutOfTime if not even one relaxation ends in time.
        """
        limits, budget = replace(self.limits, deadline=deadline), dict(self.target.budget)
        if self.whole:
            assembly = candidates.assembled()
            best = None if baseline is None else assembly.locate(baseline.groups)
            return self._session(Narrowed(assembly, best), baseline)
        incumbents = [] if baseline is None else [Incumbent.selected(baseline)]
        incumbents += [] if start is None else [Incumbent.of(*start)]
        return self._session(
            fix_by_reduced_cost(candidates, self.goals, budget, limits, incumbents), baseline
        )

    def of_program(self, candidates: Choices, deadline: float) -> Session:
        """Of the input program, for which there is time whatever the deadline.

        Where not even one relaxation ended, it gets as much time again: an answer of single ops,
        which is all there is otherwise, may be twice as slow.
        """
        strict = replace(self, goals=_strict(self.goals), whole=False)
        later = 2 * deadline - elapsed()
        for end in (deadline, later):
            with suppress(OutOfTime), until(end, self.limits.stop):
                return strict.session(candidates, None, end)
        if not self.target.budget:  # which single ops may not keep
            plain = self.plain(candidates.single_ops())
            if plain.best is not None:
                return plain
        return self.plain(candidates)

    def plain(self, candidates: Choices) -> Session:
        """With an answer of one op per dispatch, which takes no search."""
        assembly = candidates.assembled()
        found_plain = plain_columns(assembly.choice, assembly.single_ops)
        best = None if found_plain is None else in_some_order(assembly.choice, found_plain)
        return self._session(Narrowed(assembly, best), None)

    def _session(self, narrowed: Narrowed, baseline: Selection | None) -> Session:
        sides = narrowed.assembly, narrowed.best, baseline, self.limits.seed, self.limits.stop
        session = Session(self.egraph, self.target, self.linear, *sides)
        return replace(session, least=narrowed.least, is_refused=narrowed.is_refused)


def _strict(goals: tuple[GoalRequest, ...]) -> tuple[GoalRequest, ...]:
    """The goals without tolerances, as the baseline is searched for."""
    return tuple(GoalRequest(g.name, g.weight) for g in goals)


def _with_own(session: Session) -> Session:
    """The session with nothing but the input program's own candidates, and a word about it."""
    rewritten = sum(n.rule != -1 and not n.subsumed for n in session.egraph.nodes)
    cuts = (Cut("groups", rewritten, TIME_LIMIT),) if rewritten else session.assembly.cuts
    return replace(session, assembly=replace(session.assembly, cuts=cuts))


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


def whole_session(
    short: Session, rolled: Rolled, selection: Selection, baseline: Selection | None
) -> Session:
    """The session of the short problem's survivors in all blocks, so that they may differ as well.

    The survivors hold every answer that is no worse than the best known one by the first goal, also
    those whose blocks differ, as the relaxation is about all of them. `selection` and
    `baseline` are those of the whole program so far.
    """
    pool = short.assembly.pool
    space = Space(rolled.whole, short.target.padding)
    whole = replace(pool, legality=Legality(space, short.target))
    assembly = unrolled_assembly(short.assembly, whole, rolled)
    best = assembly.locate(selection.groups)
    # a bound behind others is of answers as good by these, as whatever is found from here on is
    values = {n: r.value for n, r in selection.goals}
    is_there = best is not None and assembly.choice.keeps(best, values)
    proven = selection.goals if is_there else selection.goals[:1]
    least = {n: (r.bound, r.proof or "relaxation") for n, r in proven}
    sides = short.seed, short.stop, short.floors, least
    return Session(rolled.whole, short.target, short.linear, assembly, best, baseline, *sides)
