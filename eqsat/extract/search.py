"""EGraph × Target × goals → Selection: the chosen dispatches, and the input program's own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from eqsat.extract.blocks import Rolled, rolled
from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.choice.columns import MEMORY, Answer
from eqsat.extract.choice.linear import ASKED, OWN, moved_bytes
from eqsat.extract.choice.requests import check_requests
from eqsat.extract.contained import better_of, bounded_by, contained, may_be_beaten
from eqsat.extract.diagnose import inadmissible
from eqsat.extract.session import Session, prepare, verify_selection
from eqsat.extract.whole import whole_selection, whole_session
from eqsat.model import progress
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalRequest, GoalResult, Selection, short_of_time
from eqsat.model.stopping import CANDIDATE_TIME, ORDER_TIME, SEARCH_TIME, WALL, Stop
from eqsat.model.target import Target

PACKS = frozenset({"pack", "unpack", "retype"})
RESERVE = 0.05  # of the time limit, for checking the answer
LARGER = 0.7  # of the time for all rules, if a contained set may have to be searched alone
LEAST_SECONDS = 1.0  # for a message that says what the budgets would have to be


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
    end = time.monotonic() + time_limit
    equal = rolled(egraph) if _may_roll(target, goals) else None
    if equal is not None and equal.size <= target.fusion.members:
        equal = None  # a dispatch may hold several blocks
    if equal is not None:
        egraph = equal.short
    smaller = contained(egraph)
    share = 1.0 if smaller is None else LARGER
    found = _searched(egraph, target, goals, time_limit * share, seed, stop, equal)
    if smaller is not None and _is_open(found, goals, stop):
        progress.phase("contained rules")
        with progress.heard(None):
            left = max(end - time.monotonic(), 0.0)
            start = _searched(smaller, target, goals, left, seed, stop, equal)
        found = _with(found, start, goals)
    is_open = found.selection is None and not found.is_proven  # bounds are of all blocks
    if is_open and equal is not None and not _is_over(stop):
        left = max(end - time.monotonic(), LEAST_SECONDS)
        equal, found = None, _searched(equal.whole, target, goals, left, seed, stop, None)
    if found.selection is None:
        left = max(end - time.monotonic(), LEAST_SECONDS)
        raise inadmissible(found.session, found.is_proven, left)
    if equal is None:
        return found.selection, found.baseline
    return _unrolled(found, equal, goals, end, stop)


def _unrolled(
    found: Searched,
    equal: Rolled,
    goals: tuple[GoalRequest, ...],
    end: float,
    stop: Stop | None,
) -> tuple[Selection, Selection | None]:
    """The selection of the whole program, and its baseline.

    Where not all is proven, blocks may differ from each other in what survives.
    """
    session, target = found.session, found.session.target
    sides = equal, target, session.linear, goals
    assert found.selection is not None
    every = whole_selection(*sides, found.selection)
    own = found.baseline and whole_selection(*sides, found.baseline)
    if every.stop == "gap" and len(session.assembly.choice) and not _is_over(stop):
        known = whole_session(session, equal, every, own)
        outcome = known.answer(goals, end - time.monotonic())
        if outcome.answer is not None:
            better = known.selection(outcome, goals, found.selection.seconds)
            better = replace(better, candidates=every.candidates)
            every = better if _is_better(better, every, goals) else every
    for selection in (own, every):
        if selection is not None:
            verify_selection(equal.whole, target, selection, session.linear)
    return every, own


def _is_better(one: Selection, other: Selection, goals: tuple[GoalRequest, ...]) -> bool:
    """Whether a selection is no worse by the goals in their order."""
    values = [[s.goal(g.name).value for g in goals] for s in (one, other)]
    return values[0] <= values[1]


def _is_over(stop: Stop | None) -> bool:
    return stop is not None and stop.is_requested


def _may_roll(target: Target, goals: tuple[GoalRequest, ...]) -> bool:
    """Whether equal blocks of a program may be searched once: sums, and bytes live at once."""
    known = {*OWN, *ASKED, MEMORY}
    names = {g.name for g in goals} | dict(target.budget).keys()
    return names <= known and goals[0].weight is None and not target.devices


def _searched(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    time_limit: float,
    seed: int,
    stop: Stop | None,
    equal: Rolled | None = None,
) -> Searched:
    start = time.monotonic()
    limit = time_limit * (1 - RESERVE)
    asked = egraph, target, goals
    session = prepare(*asked, time_limit=limit, seed=seed, stop=stop, rolled=equal)
    outcome = session.answer(goals, start + limit - time.monotonic())
    if outcome.answer is None:
        proven = outcome.status == "infeasible" and not session.assembly.cuts
        own = None if proven else session.started(goals)
        known = None if own is None else _unbeaten(session, own, outcome.status)
        return Searched(session, known and _timed_out(known, SEARCH_TIME), proven)
    found = session.selection(outcome, goals, time.monotonic() - start)
    step = ORDER_TIME if outcome.late == MEMORY else SEARCH_TIME
    return Searched(session, _timed_out(_never_worse(session, found, goals), step))


def _timed_out(found: Selection, step: str) -> Selection:
    """Where time ended a step of the search its word says which, the first one if several."""
    if found.stop != WALL:
        return found
    return replace(found, stop=CANDIDATE_TIME if short_of_time(found.cuts) else step)


def _is_open(found: Searched, goals: tuple[GoalRequest, ...], stop: Stop | None) -> bool:
    """Whether it is worth asking what fewer rules reach."""
    return not _is_over(stop) and not found.is_proven and may_be_beaten(found.selection, goals)


def _with(found: Searched, part: Searched, goals: tuple[GoalRequest, ...]) -> Searched:
    """The search of all rules, with the answer of the contained ones where that is better."""
    if part.selection is None:
        return found
    whole = found.selection or _unbeaten(found.session, part.selection, SEARCH_TIME)
    best = better_of(whole, part.selection, goals, found.session.reference)
    progress.found(goals[0].name, best.goal(goals[0].name).value)
    return replace(found, selection=best)


def _unbeaten(session: Session, baseline: Selection, status: str) -> Selection:
    """The baseline as the answer of a search that ended without one; only floors bound it."""
    least = {n: min(r.value, session.floors.get(n, 0)) for n, r in baseline.goals}
    goals = tuple((n, GoalResult(r.value, least[n])) for n, r in baseline.goals)
    stop, over = WALL if status == "unknown" else status, session.assembly
    looked_at = max(over.looked_at, baseline.candidates)  # its own are among them, cut or not
    return replace(baseline, goals=goals, stop=stop, cuts=over.cuts, candidates=looked_at)


def _never_worse(session: Session, found: Selection, goals: tuple[GoalRequest, ...]) -> Selection:
    """The baseline if it is better by the first goal, which it may be where candidates are capped.

    Or if it is as good by every goal: then there is nothing to rewrite for, unless it packs and
    unpacks more. Bounds are of all candidates, its own among them.
    """
    if session.start is not None and _is_behind(session.start, found, goals[0]):
        start = session.started(goals)
        return found if start is None else _bounded_as(start, found)
    baseline = session.fallback
    if baseline is None:
        return found
    if any(found.goal(g.name).value < baseline.goal(g.name).value for g in goals):
        first = goals[0]
        behind = found.goal(first.name).value > baseline.goal(first.name).value
        if first.weight is not None or not behind:
            return found
    elif _packed_bytes(session.egraph, found) < _packed_bytes(session.egraph, baseline):
        return found
    return _bounded_as(baseline, found)


def _is_behind(start: tuple[Assembly, Answer], found: Selection, first: GoalRequest) -> bool:
    assembly, answer = start
    value = assembly.choice.value(first.name, answer)
    return first.weight is None and value < found.goal(first.name).value


def _bounded_as(known: Selection, found: Selection) -> Selection:
    """A known answer with the bounds, and all that is told, of a search that found no better."""
    bounds = dict(found.goals)
    goals = tuple((n, bounded_by(r, bounds[n])) for n, r in known.goals)
    return replace(
        known, goals=goals, stop=found.stop, removed=found.removed, cuts=found.cuts,
        candidates=max(found.candidates, known.candidates),
    )  # fmt: skip


def _packed_bytes(egraph: EGraph, selection: Selection) -> int:
    """The data that packs and unpacks move, without padding."""
    members = {m for g in selection.groups for m in g.members}
    return sum(moved_bytes(egraph, m) for m in members if egraph.nodes[m].op in PACKS)
