"""EGraph × Target × goals → Selection: the chosen dispatches, and the input program's own."""

from __future__ import annotations

import time
from collections.abc import Mapping

from eqsat.extract.assemble import Assembly, assemble
from eqsat.extract.check import check
from eqsat.extract.diagnose import inadmissible
from eqsat.extract.goals import Outcome, Search, check_requests
from eqsat.extract.greedy import greedy
from eqsat.extract.linear import OWN, broken, linear_goals, stated
from eqsat.extract.problem import Answer
from eqsat.extract.space import Space
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.goal import Goal
from eqsat.model.selection import GoalRequest, Group, Removed, Selection
from eqsat.model.target import Target

REMOVED_KEPT = 256
BASELINE_SHARE = 0.25  # of the time limit


def extract(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    threads: int = 2,
) -> tuple[Selection, Selection | None]:
    """The best choice of nodes, dispatches and order, and the baseline.

    The baseline is the input program's own nodes with the best legal fusion and order; None if
    that is not admissible on the target. `time_limit` is in seconds. EqsatError: E404 for
    contradicting goals, E410 (exit code 3) if nothing is admissible, E90x if the answer does not
    pass the checker. `threads` is accepted for symmetry: the workers are interleaved, so that
    the answer does not depend on it.
    """
    check_requests(goals)
    linear = linear_goals(g.name for g in goals)
    start = time.monotonic()
    space = Space(egraph)
    budget = dict(target.budget)
    before = assemble(space, target, input_only=True, goals=linear)
    deadline = start + time_limit * BASELINE_SHARE
    strict = tuple(GoalRequest(g.name, g.weight) for g in goals)
    search = Search(before.problem, budget, deadline, seed, _hints(before, goals[0].name))
    own = search.run(strict, None)
    baseline = None
    if own.answer is not None:
        baseline = _selection(before, own, goals, time.monotonic() - start)
        _verify(egraph, target, baseline, linear)
    assembly = assemble(space, target, input_only=False, goals=linear)
    found = _choose(assembly, goals, baseline, (start, time_limit, seed))
    _verify(egraph, target, found, linear)
    return found, baseline


def _choose(
    assembly: Assembly,
    goals: tuple[GoalRequest, ...],
    baseline: Selection | None,
    limits: tuple[float, float, int],
) -> Selection:
    start, time_limit, seed = limits
    target = assembly.pool.legality.target
    reference = None
    hints = _hints(assembly, goals[0].name)
    if baseline is not None:
        reference = {n: r.value for n, r in baseline.goals}
        hints += locate(assembly, baseline.groups)
    search = Search(assembly.problem, dict(target.budget), start + time_limit, seed, hints)
    outcome = search.run(goals, reference)
    if outcome.answer is None:
        raise inadmissible(assembly, target, search, outcome.status == "infeasible")
    return _selection(assembly, outcome, goals, time.monotonic() - start)


def _hints(assembly: Assembly, goal: str) -> tuple[Answer, ...]:
    kinds = assembly.pool.space.kinds
    singles = frozenset(
        i
        for i, c in enumerate(assembly.candidates)
        if sum(kinds[m] not in ("leaf", "view") for m in c.members) <= 1
        and len(assembly.problem.options[i].writes) == len(c.writes)
    )
    return greedy(assembly.problem, singles, goal)


def locate(assembly: Assembly, groups: tuple[Group, ...]) -> tuple[Answer, ...]:
    """These groups as an answer of another problem; nothing if that does not hold them all."""
    space, options = assembly.pool.space, assembly.problem.options
    at: dict[frozenset[int], list[int]] = {}
    for i, o in enumerate(options):
        at.setdefault(frozenset(o.writes), []).append(i)
    chosen: set[int] = set()
    written: dict[int, int] = {}
    for g in groups:
        reads = {space.buffer[r] for r in g.reads}
        in_time = [
            i
            for i in at.get(frozenset(space.buffer[w] for w in g.writes), [])
            if reads.issuperset(options[i].reads)
            and reads.issuperset(options[i].resident)
            and all(written.get(r, 1 << 60) < options[i].step for r in options[i].reads)
        ]
        if not in_time:
            return ()
        best = min(in_time, key=lambda i: (options[i].adds, i))
        chosen.add(best)
        written |= dict.fromkeys(options[best].writes, options[best].step)
    answer = tuple(sorted(chosen))
    return (answer,) if assembly.problem.is_legal(answer) else ()


def _selection(
    assembly: Assembly, outcome: Outcome, goals: tuple[GoalRequest, ...], seconds: float
) -> Selection:
    assert outcome.answer is not None
    groups = assembly.groups(outcome.answer)
    results = outcome.results(assembly.problem, goals)
    ahead, removed = assembly.ahead(groups), _largest(assembly.removed)
    return Selection(groups, ahead, results, outcome.status, removed, seconds)


def _largest(removed: tuple[Removed, ...]) -> tuple[Removed, ...]:
    """One record per name, the largest first."""
    best: dict[tuple[str, str], Removed] = {}
    for r in removed:
        key = (r.what, r.limit_name)
        if key not in best or best[key].bytes < r.bytes:
            best[key] = r
    return tuple(sorted(best.values(), key=lambda r: (-r.bytes, r.what))[:REMOVED_KEPT])


def _verify(
    egraph: EGraph, target: Target, selection: Selection, linear: Mapping[str, Goal]
) -> None:
    for name in [n for n in linear if n not in OWN]:  # that both agree is the plug-in's promise
        value = stated(name, linear[name], egraph, target, selection)
        if value != selection.goal(name).value:
            built = f"`build` adds up to {selection.goal(name).value}, `value` is {value}"
            raise broken(name, built)
    faults = check(egraph, target, selection)
    if faults:
        raise fail("E902", "the selection fails its check: " + "; ".join(faults), exit_code=4)
