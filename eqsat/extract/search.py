"""EGraph × Target × goals → Selection: the chosen dispatches, and the input program's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eqsat.extract.blocks import Rolled, rolled
from eqsat.extract.candidates.assemble import Assembly, choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import MEMORY, Answer
from eqsat.extract.choice.legal import greedy
from eqsat.extract.choice.linear import ASKED, OWN, linear_goals, moved_bytes
from eqsat.extract.diagnose import inadmissible
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.minimiser import SHARES, Outcome, SearchLimits, check_requests, limit, weigh
from eqsat.extract.selected import selection_of, whole_selection
from eqsat.extract.session import Session, baseline_of, prepare, verify_selection, whole_session
from eqsat.model import progress
from eqsat.model.deadline import (
    CANDIDATE_TIME,
    ORDER_TIME,
    OUT_OF_TIME,
    SEARCH_TIME,
    Stop,
    elapsed,
    gc_paused,
    until,
)
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GREEDY, GoalRequest, GoalResult, Selection, short_of_time
from eqsat.model.target import Target


@dataclass(frozen=True)
class Searched:
    """One search: its selection, or what was asked of it, and whether it is proven to have none."""

    session: Session
    selection: Selection | None
    is_proven: bool = False

    @property
    def baseline(self) -> Selection | None:
        return self.session.baseline


def extract(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    threads: int = 2,
    stop: Stop | None = None,
) -> tuple[Selection, Selection | None]:
    """The best choice of nodes, dispatches and order, and the baseline.

    The baseline is the input program's own nodes with the best legal fusion and order; None if
    that is not admissible on the target. Where the rule set contains another one, and not all is
    proven in a share of the time, what the other one reaches is searched alone in the rest of it.
    `time_limit` is in seconds; `stop` may end the search early, with the best answer so far.
    EqsatError: E404 for contradicting goals, E410 (exit code 3) if nothing is admissible, E90x if
    the answer does not pass the checker. `threads` is accepted for symmetry: the workers are
    interleaved, so that the answer does not depend on it.
    """
    check_requests(goals)
    end = elapsed() + time_limit
    equal = rolled(egraph) if _may_roll(target, goals) else None
    if equal is not None and _is_spanned(equal, target, goals):
        equal = None
    if equal is not None:
        egraph = equal.short
    smaller = contained(egraph)
    share = 1.0 if smaller is None else SHARES.all_rules
    searched = _searched(egraph, target, goals, time_limit * share, seed, stop, equal)
    if smaller is not None and _is_open(searched, goals, stop):
        progress.phase("contained rules")
        with progress.heard(None):
            left = max(end - elapsed(), 0.0)
            start = _searched(smaller, target, goals, left, seed, stop, equal)
        searched = _with(searched, start, goals)
    is_open = searched.selection is None and not searched.is_proven  # bounds are of all blocks
    if is_open and equal is not None and not _is_over(stop):
        left = max(end - elapsed(), SHARES.least_seconds)
        equal, searched = None, _searched(equal.whole, target, goals, left, seed, stop, None)
    if searched.selection is None:
        left = max(end - elapsed(), SHARES.least_seconds)
        raise inadmissible(searched.session, searched.is_proven, left)
    if equal is None:
        return searched.selection, searched.baseline
    return _unrolled(searched, equal, goals, end, stop)


def _unrolled(
    searched: Searched,
    equal: Rolled,
    goals: tuple[GoalRequest, ...],
    end: float,
    stop: Stop | None,
) -> tuple[Selection, Selection | None]:
    """The selection of the whole program, and its baseline.

    Where not all is proven, blocks may differ from each other in what survives.
    """
    session, target = searched.session, searched.session.target
    sides = equal, target, goals
    assert searched.selection is not None
    every = whole_selection(*sides, searched.selection)
    baseline = searched.baseline and whole_selection(*sides, searched.baseline)
    unchecked = [baseline, every]
    if every.stop == "gap" and len(session.assembly.choice) and not _is_over(stop):
        unrolled = whole_session(session, equal, every, baseline)
        outcome = unrolled.answer(goals, end - elapsed())
        if outcome.answer is not None:
            better = unrolled.selection(outcome, goals, searched.selection.seconds)
            better = replace(better, candidates=every.candidates)
            if not _is_better(every, better, goals, {}):
                every, unchecked = better, [baseline]
    for selection in unchecked:
        if selection is not None:
            verify_selection(equal.whole, target, selection, session.linear)
    return every, baseline


def _is_over(stop: Stop | None) -> bool:
    return stop is not None and stop.is_requested


def _may_roll(target: Target, goals: tuple[GoalRequest, ...]) -> bool:
    """Whether equal blocks of a program may be searched once: sums, and bytes live at once."""
    supported = {*OWN, *ASKED, MEMORY}
    names = {g.name for g in goals} | dict(target.budget).keys()
    return names <= supported and goals[0].weight is None and not target.devices


def _is_spanned(equal: Rolled, target: Target, goals: tuple[GoalRequest, ...]) -> bool:
    """Whether dispatches may matter that touch three blocks, which are in no rolled search.

    Where memory decides, they compute again what would have to be kept from block to block.
    """
    asks_memory = goals[0].name == MEMORY or MEMORY in dict(target.budget)
    fusion = target.fusion
    return equal.may_be_inside(fusion) or (asks_memory and equal.may_be_crossed(fusion))


def _searched(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    time_limit: float,
    seed: int,
    stop: Stop | None,
    equal: Rolled | None = None,
) -> Searched:
    start = elapsed()
    limit = time_limit * (1 - SHARES.check)
    asked = egraph, target, goals
    session = prepare(*asked, time_limit=limit, seed=seed, stop=stop, rolled=equal)
    outcome = session.answer(goals, start + limit - elapsed())
    if outcome.answer is None:
        proven = outcome.status == "infeasible" and not session.assembly.cuts
        started = None if proven else _started(session, goals)
        answer = None if started is None else _unbeaten(session, started, outcome.status)
        return Searched(session, answer and _timed_out(answer, SEARCH_TIME), proven)
    selection = session.selection(outcome, goals, elapsed() - start)
    step = ORDER_TIME if outcome.late == MEMORY else SEARCH_TIME
    return Searched(session, _timed_out(_never_worse(session, selection, goals), step))


def _timed_out(selection: Selection, step: str) -> Selection:
    """Where time ended a step of the search its word says which, the first one if several."""
    if selection.stop != OUT_OF_TIME:
        return selection
    return replace(selection, stop=CANDIDATE_TIME if short_of_time(selection.cuts) else step)


def _is_open(searched: Searched, goals: tuple[GoalRequest, ...], stop: Stop | None) -> bool:
    """Whether it is worth asking what fewer rules reach."""
    return (
        not _is_over(stop) and not searched.is_proven and may_be_beaten(searched.selection, goals)
    )


def _with(searched: Searched, part: Searched, goals: tuple[GoalRequest, ...]) -> Searched:
    """The search of all rules, with the answer of the contained ones where that is better."""
    if part.selection is None:
        return searched
    whole = searched.selection or _unbeaten(searched.session, part.selection, SEARCH_TIME)
    best = better_of(whole, part.selection, goals, searched.session.reference)
    progress.found(goals[0].name, best.goal(goals[0].name).value)
    return replace(searched, selection=best)


def _unbeaten(session: Session, baseline: Selection, status: str) -> Selection:
    """The baseline as the answer of a search that ended without one; only floors bound it."""
    least = {n: min(r.value, session.floors.get(n, 0)) for n, r in baseline.goals}
    goals = tuple((n, GoalResult(r.value, least[n])) for n, r in baseline.goals)
    stop, over = OUT_OF_TIME if status == "unknown" else status, session.assembly
    looked_at = max(over.looked_at, baseline.candidates)  # its own are among them, cut or not
    return replace(baseline, goals=goals, stop=stop, cuts=over.cuts, candidates=looked_at)


def _never_worse(
    session: Session, selection: Selection, goals: tuple[GoalRequest, ...]
) -> Selection:
    """The baseline if it is better by the first goal, or by the weighted sum, of capped candidates.

    Or if it is as good by every goal: then there is nothing to rewrite for, unless it packs and
    unpacks more. Bounds are of all candidates, its own among them.
    """
    if session.start is not None and _is_behind(session.start, selection, goals[0]):
        start = _started(session, goals)
        return selection if start is None else _bounded_as(start, selection)
    baseline = session.fallback
    if baseline is None:
        return selection
    if any(selection.goal(g.name).value < baseline.goal(g.name).value for g in goals):
        first = goals[0]
        if first.weight is None:
            behind = selection.goal(first.name).value > baseline.goal(first.name).value
        else:
            behind = _is_better(baseline, selection, goals, dict(session.reference or {}))
        if not behind:
            return selection
    elif _packed_bytes(session.egraph, selection) < _packed_bytes(session.egraph, baseline):
        return selection
    return _bounded_as(baseline, selection)


def _started(session: Session, goals: tuple[GoalRequest, ...]) -> Selection | None:
    """The answer that was there before the search; the fallback if that one is better."""
    started, fallback = session.started(goals), session.fallback
    if started is None or fallback is None:
        return started
    reference = dict(session.reference or {})
    return fallback if _is_better(fallback, started, goals, reference) else started


def _is_behind(start: tuple[Assembly, Answer], selection: Selection, first: GoalRequest) -> bool:
    assembly, answer = start
    value = assembly.choice.value(first.name, answer)
    return first.weight is None and value < selection.goal(first.name).value


def _bounded_as(answer: Selection, selection: Selection) -> Selection:
    """A known answer with the bounds, and all that is told, of a search that found no better."""
    bounds = dict(selection.goals)
    goals = tuple((n, bounded_by(r, bounds[n])) for n, r in answer.goals)
    return replace(
        answer, goals=goals, stop=selection.stop, removed=selection.removed, cuts=selection.cuts,
        candidates=max(selection.candidates, answer.candidates),
    )  # fmt: skip


def _packed_bytes(egraph: EGraph, selection: Selection) -> int:
    """The data that packs and unpacks move, without padding."""
    members, packs = {m for g in selection.groups for m in g.members}, ("pack", "unpack", "retype")
    return sum(moved_bytes(egraph, m) for m in members if egraph.nodes[m].op in packs)


# ---- rule sets that contain others ---------------------------------------------------------------
# Saturation applies the contained set first and marks what only the other rules reach
# (`ENode.extra`). Where the search of all that proves nothing in its share of the time, the rest
# of the e-graph is searched alone: any answer of that is one of the whole, too.
def contained(egraph: EGraph) -> EGraph | None:
    """The part of an e-graph that the contained rules reach; None: no such rules, or no others.

    Nodes keep their numbers; the others are there, and may not be chosen.
    """
    if not any(n.extra for n in egraph.nodes):
        return None
    nodes = (replace(n, subsumed=True) if n.extra else n for n in egraph.nodes)
    return replace(egraph, nodes=tuple(nodes))


def may_be_beaten(selection: Selection | None, goals: tuple[GoalRequest, ...]) -> bool:
    """Whether an answer that fewer rules reach could be better."""
    if selection is None or selection.cuts:
        return True
    return selection.stop != "optimal" and any(selection.goal(g.name).gap for g in goals)


def better_of(
    whole: Selection,
    part: Selection,
    goals: tuple[GoalRequest, ...],
    reference: Mapping[str, int] | None,
) -> Selection:
    """The answer of all rules, or that of the contained ones if it is better.

    Bounds are those of all rules; `reference` are the values of the baseline.
    """
    if not _is_better(part, whole, goals, dict(reference or {})):
        return whole
    bounds = dict(whole.goals)
    bounded = tuple((n, bounded_by(r, bounds[n])) for n, r in part.goals)
    return replace(
        part,
        goals=bounded,
        stop=whole.stop if part.stop in ("optimal", "gap", "cut") else part.stop,
        removed=whole.removed,
        cuts=whole.cuts,
        candidates=max(whole.candidates, part.candidates),
        seconds=whole.seconds + part.seconds,
    )


def bounded_by(result: GoalResult, bounding: GoalResult) -> GoalResult:
    """A value with the bound, and what proved it, of an answer to the same question."""
    if result.value == bounding.value:
        return bounding
    return GoalResult(result.value, min(result.value, bounding.bound))


def _is_better(
    one: Selection, other: Selection, goals: tuple[GoalRequest, ...], reference: dict[str, int]
) -> bool:
    """By the goals in their order, each within its tolerance, or by their weighted sum."""
    if goals[0].weight is not None:
        weights = weigh(goals, reference)
        sums = [sum(w * s.goal(g).value for g, w in weights.items()) for s in (one, other)]
        return sums[0] < sums[1]
    for g in goals:
        values = [s.goal(g.name).value for s in (one, other)]
        if max(values) > limit(g, min(values), reference):
            return values[0] < values[1]
    return False


# ---- without a solver ----------------------------------------------------------------------------
def extract_greedily(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
) -> tuple[Selection, Selection | None]:
    """The greedy answer in its best order, and the baseline, which the solver finds.

    After extraction-gym's greedy-DAG extractor, over dispatches (`choice.legal`). Nothing is
    proven, budgets are only checked, and the answer may be worse than the baseline. EqsatError:
    E410 if the greedy answers keep no budget, or there is none; E90x if the answer does not pass
    the checker.
    """
    check_requests(goals)
    start = elapsed()
    limits = SearchLimits(start + time_limit, seed, stop)
    baseline_limits = replace(limits, deadline=limits.share(SHARES.baseline))
    baseline = baseline_of(egraph, target, goals, baseline_limits)
    progress.phase("candidates")
    linear = linear_goals(dict.fromkeys([*(g.name for g in goals), *dict(target.budget)]))
    asked = frozenset((*(g.name for g in goals), *dict(target.budget)))
    with gc_paused():
        enough = limits.share(SHARES.candidates)
        pool = Pool(Legality(Space(egraph, target.padding), target), False, asked)
        candidates = choices(pool, linear, enough=enough)
        assembly = candidates.assembled()
    progress.phase("greedy")
    reference = {} if baseline is None else {n: r.value for n, r in baseline.goals}
    with until(limits.deadline, stop):  # out of time, the answer is that of one-op dispatches
        best = _best_greedy(assembly, goals, dict(target.budget), reference)
    if best is None:
        session = Session(egraph, target, linear, assembly, None, baseline, seed, stop)
        raise inadmissible(session, False, limits.seconds)
    outcome = Outcome(GREEDY, best)
    took = elapsed() - start
    selection = selection_of(assembly, outcome, goals, took)
    verify_selection(egraph, target, selection, linear)
    return selection, baseline


def _best_greedy(
    assembly: Assembly,
    goals: tuple[GoalRequest, ...],
    budget: dict[str, int],
    reference: dict[str, int],
) -> Answer | None:
    """Of the greedy answers that keep the budgets the best one by the goals, or by their sum."""
    choice = assembly.choice
    answers = greedy(choice, assembly.single_ops, goals[0].name)
    placed = [a for c in answers if (a := in_best_order(choice, c)) and choice.keeps(a, budget)]
    if goals[0].weight is not None:
        weights = weigh(goals, reference)
        return min(placed, key=lambda a: choice.worth(a, weights), default=None)
    return min(placed, key=lambda a: [choice.value(g.name, a) for g in goals], default=None)
