"""EGraph × Target × goals → Selection: the chosen dispatches, and the input program's own."""

from __future__ import annotations

import time
from dataclasses import replace

from eqsat.extract.diagnose import inadmissible
from eqsat.extract.session import Session, prepare
from eqsat.extract.solve.linear import moved_bytes
from eqsat.extract.solve.requests import check_requests
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalRequest, GoalResult, Selection
from eqsat.model.stopping import Stop
from eqsat.model.target import Target

PACKS = frozenset({"pack", "unpack", "retype"})
RESERVE = 0.05  # of the time limit, for checking the answer
LEAST_SECONDS = 1.0  # for a message that says what the budgets would have to be


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
    that is not admissible on the target. `time_limit` is in seconds; `stop` may end the search
    early, with the best answer so far. EqsatError: E404 for contradicting goals, E410 (exit code 3)
    if nothing is admissible, E90x if the answer does not pass the checker. `threads` is accepted
    for symmetry: the workers are interleaved, so that the answer does not depend on it.
    """
    check_requests(goals)
    start = time.monotonic()
    limit = time_limit * (1 - RESERVE)
    session = prepare(egraph, target, goals, time_limit=limit, seed=seed, stop=stop)
    session, search, outcome = session.answer(goals, start + limit - time.monotonic())
    if outcome.answer is None:
        proven = outcome.status == "infeasible" and not session.assembly.cuts
        own = session.fallback
        if not proven and own is not None:
            return _unbeaten(session, own, outcome.status), session.baseline
        left = start + time_limit - time.monotonic()
        raise inadmissible(session.assembly, target, search, proven, max(left, LEAST_SECONDS))
    session, outcome = session.ordered(outcome, goals, start + limit - time.monotonic())
    found = session.selection(outcome, goals, time.monotonic() - start)
    return _never_worse(session, found, goals), session.baseline


def _unbeaten(session: Session, baseline: Selection, status: str) -> Selection:
    """The baseline as the answer of a search that ended without one; nothing bounds it."""
    goals = tuple((n, GoalResult(r.value, 0)) for n, r in baseline.goals)
    stop, over = "wall" if status == "unknown" else status, session.assembly
    return replace(baseline, goals=goals, stop=stop, cuts=over.cuts, candidates=over.looked_at)


def _never_worse(session: Session, found: Selection, goals: tuple[GoalRequest, ...]) -> Selection:
    """The baseline if it is better by the first goal, which it may be where candidates are capped.

    Or if it is as good by every goal: then there is nothing to rewrite for, unless it packs and
    unpacks more. Bounds are of all candidates, its own among them.
    """
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
    known = dict(found.goals)
    own = ((n, _bounded(r, known[n])) for n, r in baseline.goals)
    return replace(
        baseline, goals=tuple(own), stop=found.stop, removed=found.removed, cuts=found.cuts,
        candidates=found.candidates,
    )  # fmt: skip


def _packed_bytes(egraph: EGraph, selection: Selection) -> int:
    """The data that packs and unpacks move, without padding."""
    members = {m for g in selection.groups for m in g.members}
    return sum(moved_bytes(egraph, m) for m in members if egraph.nodes[m].op in PACKS)


def _bounded(own: GoalResult, found: GoalResult) -> GoalResult:
    """A value with the bound, and what proved it, of an answer to the same question."""
    if own.value == found.value:
        return found
    return GoalResult(own.value, min(own.value, found.bound))
