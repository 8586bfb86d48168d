"""One extraction that can be asked many questions: its problem, the known answers, the baseline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.extract.assemble import Assembly, assemble
from eqsat.extract.check import check
from eqsat.extract.goals import Outcome, Search
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


@dataclass(frozen=True)
class Session:
    """The assembled problem of an e-graph on a target; searches share it.

    `hints` are legal answers known without a search, the baseline's among them; `reference` holds
    the baseline's value per goal, None if the input program is not admissible.
    """

    egraph: EGraph
    target: Target
    linear: Mapping[str, Goal]
    assembly: Assembly
    hints: tuple[Answer, ...]
    baseline: Selection | None
    seed: int

    @property
    def reference(self) -> dict[str, int] | None:
        if self.baseline is None:
            return None
        return {n: r.value for n, r in self.baseline.goals}

    def search(self, seconds: float, budget: Mapping[str, int] | None = None) -> Search:
        """A search under the target's budget, or another one; it ends after so many seconds."""
        kept = dict(self.target.budget) if budget is None else dict(budget)
        deadline = time.monotonic() + seconds
        return Search(self.assembly.problem, kept, deadline, self.seed, self.hints)

    def selection(
        self, outcome: Outcome, goals: tuple[GoalRequest, ...], seconds: float = 0.0
    ) -> Selection:
        """The outcome as a selection that passed the checker; EqsatError E90x if it does not."""
        found = selection_of(self.assembly, outcome, goals, seconds)
        verify(self.egraph, self.target, found, self.linear)
        return found

    def locate(self, groups: tuple[Group, ...]) -> tuple[Answer, ...]:
        """These groups as an answer of the problem; nothing if it does not hold them all."""
        return locate(self.assembly, groups)


def prepare(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    *,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Session:
    """Search the baseline, then assemble the whole problem.

    `time_limit` (seconds) is that of the whole extraction; the baseline may take a share of it.
    """
    linear = linear_goals(g.name for g in goals)
    space = Space(egraph)
    baseline = _baseline(space, target, goals, linear, time_limit * BASELINE_SHARE, seed)
    assembly = assemble(space, target, input_only=False, goals=linear)
    hints = known_answers(assembly, goals[0].name)
    if baseline is not None:
        hints += locate(assembly, baseline.groups)
    return Session(egraph, target, linear, assembly, hints, baseline, seed)


def _baseline(
    space: Space,
    target: Target,
    goals: tuple[GoalRequest, ...],
    linear: Mapping[str, Goal],
    seconds: float,
    seed: int,
) -> Selection | None:
    """The input program's own nodes with the best legal fusion; None if that is inadmissible."""
    start = time.monotonic()
    assembly = assemble(space, target, input_only=True, goals=linear)
    hints = known_answers(assembly, goals[0].name)
    search = Search(assembly.problem, dict(target.budget), start + seconds, seed, hints)
    strict = tuple(GoalRequest(g.name, g.weight) for g in goals)
    outcome = search.run(strict, None)
    if outcome.answer is None:
        return None
    found = selection_of(assembly, outcome, goals, time.monotonic() - start)
    verify(space.egraph, target, found, linear)
    return found


def known_answers(assembly: Assembly, goal: str) -> tuple[Answer, ...]:
    """Greedy answers, without regard to budgets."""
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


def selection_of(
    assembly: Assembly, outcome: Outcome, goals: tuple[GoalRequest, ...], seconds: float
) -> Selection:
    """The chosen groups with the value and the bound of every goal; not checked."""
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


def verify(egraph: EGraph, target: Target, selection: Selection, linear: Mapping[str, Goal]) -> None:
    """EqsatError E902 (our bug) or E602 (a plug-in's) if a selection is not what it says."""
    for name in [n for n in linear if n not in OWN]:  # that both agree is the plug-in's promise
        value = stated(name, linear[name], egraph, target, selection)
        if value != selection.goal(name).value:
            built = f"`build` adds up to {selection.goal(name).value}, `value` is {value}"
            raise broken(name, built)
    faults = check(egraph, target, selection)
    if faults:
        raise fail("E902", "the selection fails its check: " + "; ".join(faults), exit_code=4)
