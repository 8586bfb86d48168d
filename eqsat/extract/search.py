"""EGraph × Target × goals → Selection: the chosen dispatches, and the input program's own."""

from __future__ import annotations

import time
from dataclasses import replace

from eqsat.extract.diagnose import inadmissible
from eqsat.extract.session import prepare
from eqsat.extract.solve.goals import check_requests
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.stopping import Stop
from eqsat.model.target import Target


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
    session = prepare(egraph, target, goals, time_limit=time_limit, seed=seed, stop=stop)
    search = session.search(start + time_limit - time.monotonic())
    outcome = search.run(goals, session.reference)
    if outcome.answer is None and "memory" in search.budget:
        status, session = session.in_some_order(goals, start + time_limit - time.monotonic())
        outcome = replace(outcome, status=status)
        if status == "feasible":
            search = session.search(start + time_limit - time.monotonic())
            outcome = search.run(goals, session.reference)
    if outcome.answer is None:
        proven = outcome.status == "infeasible"
        raise inadmissible(session.assembly, target, search, proven)
    session, outcome = session.ordered(outcome, goals, start + time_limit - time.monotonic())
    return session.selection(outcome, goals, time.monotonic() - start), session.baseline
