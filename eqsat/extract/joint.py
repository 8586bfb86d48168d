"""The order chosen together with the dispatches.

The goals are first minimised under the program's order. Then the best order of the answer's own
dispatches is looked for (`order`), the problem is stated again under that order, and memory is
minimised once more; what no order gets below is told by the problem without an order (`anyorder`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.order import best_order, work_of
from eqsat.extract.solve.goals import Found, Outcome, Search
from eqsat.extract.solve.problem import Answer
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import OutOfTime
from eqsat.model.selection import GoalRequest, Group
from eqsat.model.stopping import INTERRUPTED, Stop

MEMORY = "memory"
ROUNDS = 3  # of a better order, then better dispatches
ENOUGH = 0.5  # seconds; with less left the order of the chosen dispatches is all that is improved


@dataclass(frozen=True)
class Ordered:
    """An answer, in the numbers of a problem under its own order."""

    assembly: Assembly
    answer: Answer

    @property
    def peak_bytes(self) -> int:
        return self.assembly.problem.peak_bytes(self.answer)

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.assembly.groups(self.answer)

    def keeps(self, caps: Mapping[str, int]) -> bool:
        """Whether the answer is worth no more than this, goal by goal."""
        problem = self.assembly.problem
        return all(problem.value(g, self.answer) <= limit for g, limit in caps.items())


@dataclass(frozen=True)
class Limits:
    """When to stop looking, and for what seed."""

    deadline: float  # of time.monotonic()
    seed: int
    stop: Stop | None = None

    @property
    def seconds(self) -> float:
        """What is left; nothing if somebody asked to stop."""
        asked = self.stop is not None and self.stop.is_requested
        return 0.0 if asked else max(self.deadline - time.monotonic(), 0.0)

    @property
    def ended(self) -> str:
        """Why a search within these limits ended early."""
        return INTERRUPTED if self.stop is not None and self.stop.is_requested else "wall"

    def search(self, assembly: Assembly, budget: Mapping[str, int], *hints: Answer) -> Search:
        budget = dict(budget)
        return Search(assembly.problem, budget, self.deadline, self.seed, hints, stop=self.stop)


def in_best_order(assembly: Assembly, answer: Answer) -> Ordered | None:
    """The answer under the best order found for its dispatches, in a problem of its own.

    It is left where it is if the order it has is as good. None if it has no order, which can only
    be in a problem without steps.
    """
    problem = assembly.problem
    try:
        best = best_order(work_of(problem, answer))
    except ValueError:
        return None
    if problem.is_ordered and best.peak_bytes >= problem.peak_bytes(answer):
        return Ordered(assembly, answer)
    own = assembly.alone([answer[i] for i in best.order])
    return Ordered(own, tuple(range(len(answer))))


def under(assembly: Assembly, groups: Sequence[Group]) -> Ordered | None:
    """The whole problem under the order of these groups, and they as its answer."""
    with uncollected():
        own = assembly.reordered(groups)
    return next((Ordered(own, answer) for answer in own.locate(groups)), None)


@dataclass(frozen=True)
class AnyOrderSearch:
    """Questions about all orders at once."""

    assembly: Assembly  # without steps
    search: Search
    among: tuple[int, ...] | None  # options of answers within the caps
    is_possible: bool

    def least_bytes(self, caps: Mapping[str, int], seconds: float) -> Found:
        """Peak bytes that no answer within the caps gets below in any order."""
        if not self.is_possible:
            return Found("infeasible")
        return self.search.minimise({MEMORY: 1}, dict(caps), None, seconds, self.among)


def in_any_order(
    assembly: Assembly, budget: Mapping[str, int], caps: Mapping[str, int], limits: Limits
) -> AnyOrderSearch:
    """The problem without an order, cut down to options within the caps, one goal by the other."""
    with uncollected():
        free = assembly.unordered()
    search = limits.search(free, budget)
    known, among = dict(budget), None
    for goal, limit in caps.items():
        if goal not in free.problem.linear:
            continue
        stage = search.stage({goal: 1}, known, among)
        if stage is None:
            return AnyOrderSearch(free, search, None, False)
        among, known = stage.within(limit), known | {goal: limit}
    return AnyOrderSearch(free, search, among, True)


def with_order(
    assembly: Assembly,
    requests: tuple[GoalRequest, ...],
    outcome: Outcome,
    reference: Mapping[str, int] | None,
    budget: Mapping[str, int],
    limits: Limits,
    known: Sequence[Group] = (),
    *,
    prove: bool = True,
) -> tuple[Assembly, Outcome]:
    """The outcome under the best order found, with bounds that hold in every order.

    Without `prove` the dispatches stay as they are and only their order is looked for. No goal is
    worse than before by the requests' priority. `known` are the groups of an answer in
    an order of its own that the first goal must not be worse than.
    """
    assert outcome.answer is not None
    is_weighted = requests[0].weight is not None and len(requests) > 1
    if not prove or is_weighted or MEMORY not in [r.name for r in requests]:
        best = in_best_order(assembly, outcome.answer) or Ordered(assembly, outcome.answer)
        loose = {g: v for g, v in outcome.bounds.items() if g != MEMORY}
        return best.assembly, replace(outcome, answer=best.answer, bounds=loose)
    joint = _Joint(assembly, tuple(replace(r, weight=None) for r in requests), budget, limits)
    return joint.improve(outcome, dict(reference or {}), known)


@dataclass(frozen=True)
class _Joint:
    assembly: Assembly
    requests: tuple[GoalRequest, ...]
    budget: Mapping[str, int]
    limits: Limits

    @property
    def place(self) -> int:
        """Which goal memory is."""
        return [r.name for r in self.requests].index(MEMORY)

    def improve(
        self, outcome: Outcome, reference: dict[str, int], known: Sequence[Group]
    ) -> tuple[Assembly, Outcome]:
        assert outcome.answer is not None
        earlier = {r.name: outcome.caps[r.name] for r in self.requests[: self.place]}
        caps = dict(self.budget) | earlier
        best = Ordered(self.assembly, outcome.answer)
        best = _best([best, in_best_order(self.assembly, outcome.answer)], caps)
        if known and not earlier and reference.get(MEMORY, best.peak_bytes) < best.peak_bytes:
            best = _best([best, under(self.assembly, known)], caps)
        least, found = self._bound(caps, best.peak_bytes)
        best, later = _best([best, found], caps), None
        if best.assembly is self.assembly:
            later = outcome
        elif self._has_time(self.assembly.seconds):
            with suppress(OutOfTime):
                best = self._again(best, caps, least)
                later, best = self._rest(best, caps, reference, least)
        return best.assembly, self._merged(best, outcome, later, least)

    def _has_time(self, seconds: float) -> bool:
        """For something that takes so long, and as much again."""
        return self.limits.seconds > 2 * seconds + ENOUGH

    def _bound(self, caps: dict[str, int], peak: int) -> tuple[int, Ordered | None]:
        """Bytes that no order of any answer within the caps gets below; a better answer."""
        least = self.assembly.problem.fixed_bytes
        try:
            least = min(self.assembly.least_bytes(), peak)
            if peak <= least or not self._has_time(self.assembly.seconds):
                return least, None
            free = in_any_order(self.assembly, self.budget, caps, self.limits)
            found = free.least_bytes(caps | {MEMORY: peak - 1}, self.limits.seconds * 0.5)
        except OutOfTime:
            return least, None
        if found.status == "infeasible":
            return peak, None
        answer = None if found.answer is None else in_best_order(free.assembly, found.answer)
        return max(least, found.bound), answer

    def _again(self, best: Ordered, caps: dict[str, int], least: int) -> Ordered:
        """Better dispatches under the better order, until nothing gets better."""
        whole = self._whole(best, caps)
        with suppress(OutOfTime):
            for _ in range(ROUNDS):
                if whole.peak_bytes <= least or not self._has_time(self.assembly.seconds):
                    break
                search = self.limits.search(whole.assembly, caps, whole.answer)
                found = search.minimise({MEMORY: 1}, caps, whole.answer, self.limits.seconds * 0.3)
                answer = found.answer
                after = None if answer is None else in_best_order(whole.assembly, answer)
                if after is None or after.peak_bytes >= whole.peak_bytes:
                    break
                whole = self._whole(after, caps)
        return whole

    def _whole(self, found: Ordered, caps: dict[str, int]) -> Ordered:
        """The answer among all others under its order."""
        whole = under(self.assembly, found.groups)
        return found if whole is None or not whole.keeps(caps) else whole

    def _rest(
        self, best: Ordered, caps: dict[str, int], reference: dict[str, int], least: int
    ) -> tuple[Outcome | None, Ordered]:
        """The goals from memory on, under the order found; memory is `least` at least."""
        search = self.limits.search(best.assembly, caps, best.answer)
        search = replace(search, floors={MEMORY: least})
        later = search.run(self.requests[self.place :], reference)
        if later.answer is None:
            return None, best
        return later, in_best_order(best.assembly, later.answer) or best

    def _merged(self, best: Ordered, before: Outcome, later: Outcome | None, least: int) -> Outcome:
        """Bounds of earlier goals as they were, of memory in every order, of others as found now.

        If there was no time for `later` goals, their bounds are those of the program's order.
        """
        earlier = {r.name for r in self.requests[: self.place]}
        bounds, proofs, status = dict(before.bounds), dict(before.proofs), before.status
        if later is not None:
            bounds |= {g: b for g, b in later.bounds.items() if g not in earlier}
            proofs |= {g: p for g, p in later.proofs.items() if g not in earlier}
            status = later.status if status == "optimal" else status
        elif status == "optimal":
            status = "wall"
        value = best.peak_bytes
        bounds[MEMORY], proofs[MEMORY] = min(least, value), "search"
        if status == "optimal" and bounds[MEMORY] < value:
            status = "gap"
        return replace(before, status=status, answer=best.answer, bounds=bounds, proofs=proofs)


def _best(answers: Sequence[Ordered | None], caps: Mapping[str, int]) -> Ordered:
    """The one of least peak, the first of equals; the first one keeps the caps."""
    kept = [a for a in answers[1:] if a is not None and a.keeps(caps)]
    return min([a for a in (answers[0], *kept) if a is not None], key=lambda a: a.peak_bytes)


def within_budget(
    assembly: Assembly,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: Limits,
) -> tuple[str, Ordered | None]:
    """An answer that keeps a memory budget in some order: feasible | infeasible | unknown.

    `infeasible` holds in every order. Looked for are the best order of the answer to the first
    goal, and of the one that needs least memory.
    """
    rest = {g: v for g, v in budget.items() if g != MEMORY}
    free = in_any_order(assembly, rest, rest, limits)
    found = free.least_bytes(budget, limits.seconds * 0.4)
    if found.status == "infeasible":
        return "infeasible", None
    best = None if found.answer is None else in_best_order(free.assembly, found.answer)
    memory = GoalRequest(MEMORY)
    first = next((GoalRequest(r.name) for r in requests if r.name != MEMORY), memory)
    for goals in (first, memory), (memory,):
        if best is not None and best.keeps(budget):
            return "feasible", best
        half = replace(limits, deadline=time.monotonic() + limits.seconds / 2)
        asked = tuple(dict.fromkeys(goals))
        outcome = half.search(assembly, rest).run(asked, None)
        if outcome.answer is not None:
            own, outcome = with_order(assembly, asked, outcome, None, rest, half)
            assert outcome.answer is not None
            best = Ordered(own, outcome.answer)
    return ("feasible", best) if best is not None and best.keeps(budget) else ("unknown", None)
