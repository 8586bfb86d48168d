"""The order chosen together with the dispatches.

The goals are first minimised under the program's order. Then every goal in turn is minimised
without an order (`everyorder`): either no order of any answer is better, which is the proof, or
there is an answer with an order of its own. The problem is then stated again under that order, and
the goals behind are minimised once more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.everyorder import MEMORY, EveryOrder, Least
from eqsat.extract.ordered import SearchLimits, Sequenced, in_best_order, under
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.inorder import OPEN
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Outcome
from eqsat.extract.solve.problem import Answer
from eqsat.extract.solve.requests import limit
from eqsat.model import progress
from eqsat.model.deadline import OutOfTime
from eqsat.model.selection import GoalRequest, Group, short_of_time
from eqsat.model.stopping import INTERRUPTED, OUT_OF_MEMORY

ROUNDS = 3  # of a better order, then better dispatches
ENOUGH = 0.5  # seconds; with less left the order of the chosen dispatches is all that is improved
NEAR = 1_000  # parts of a peak: it is not searched under an order for less than one of them
SHARE = 0.5  # of what is left, for what a goal is at least in any order


def with_best_order(
    assembly: Assembly,
    requests: tuple[GoalRequest, ...],
    outcome: Outcome,
    reference: Mapping[str, int] | None,
    budget: Mapping[str, int],
    limits: SearchLimits,
    known: Sequence[Group] = (),
    least: Mapping[str, tuple[int, str]] | None = None,
) -> tuple[Assembly, Outcome]:
    """The outcome under the best order found, with bounds that hold in every order.

    No goal is worse than before by the requests' priority. `known` are the groups of an answer in
    an order of its own that the first goal must not be worse than; `least` are bounds that hold in
    every order, and what proved them.
    """
    assert outcome.answer is not None
    best = Sequenced(assembly, outcome.answer)
    if len(requests) == 1:
        requests = (replace(requests[0], weight=None),)
    joint = _Joint(assembly, requests, budget, limits, dict(reference or {}), outcome, best)
    joint.least |= least or {}
    joint.bound()
    if requests[0].weight is not None:
        joint.weigh()
    else:
        joint.improve(known)
    return joint.best.assembly, joint.ended()


@dataclass
class _Joint:
    """The best answer so far; `outcome` is that of the last search, under `best`'s order unless
    that `is_new`."""

    assembly: Assembly  # under the program's order
    requests: tuple[GoalRequest, ...]
    budget: Mapping[str, int]
    limits: SearchLimits
    reference: dict[str, int]
    outcome: Outcome
    best: Sequenced
    is_new: bool = False
    bounds: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)
    status: str = "optimal"
    every: EveryOrder | None = None
    # bounds that need no search, and what they are from
    least: dict[str, tuple[int, str]] = field(default_factory=dict)

    # ---- goals in order of priority ----------------------------------------------------------
    def improve(self, known: Sequence[Group]) -> None:
        caps = dict(self.budget)
        before = dict(caps)
        for n, r in enumerate(self.requests):
            before = dict(caps)
            self._again_from(n, caps)
            value = self._value(r.name)
            if r.name == MEMORY:
                self._reorder(caps, known if n == 0 else ())
                value = min(value, self.best.peak_bytes)
            value = self._settle(r.name, value, caps)
            most = limit(r, value, self.reference)
            caps[r.name] = min(most, caps.get(r.name, most))
            if self.every is not None:
                self.every.hold(caps[r.name])
        self._again_from(len(self.requests) - 1, before)
        self.best = in_best_order(self.best.assembly, self.best.answer) or self.best

    def _value(self, goal: str) -> int:
        """What a goal was minimised to, which later ones may have raised within its tolerance."""
        value = self.best.value(goal)
        return value if self.is_new else min(self.outcome.values.get(goal, value), value)

    def _again_from(self, n: int, caps: dict[str, int]) -> None:
        """The goals from this one on under an order that is new."""
        if not self.is_new or not self._has_time():
            return
        with suppress(OutOfTime):
            search = self._search(self.best.assembly, caps, self.best.answer)
            later = search.run(self.requests[n:], self.reference, caps)
            if later.answer is not None:
                self.outcome, self.is_new = later, False
                self.best = Sequenced(self.best.assembly, later.answer)

    def _settle(self, goal: str, value: int, caps: dict[str, int]) -> int:
        """The goal's value after answers in other orders were looked for, with its bound."""
        bound, proof, status = 0, "", "optimal"
        for _ in range(ROUNDS):
            least = self._least({goal: 1}, caps, value)
            bound, proof, status = max(bound, least.bound), least.proof, least.status
            best = self._near(goal, least, caps, value) if status == "gap" else least.best
            if best is None or best.value(goal) >= value:
                break
            self._adopt(best, caps)
            if goal == MEMORY:
                self._descend(caps, bound + value // NEAR)
            value = self.best.value(goal)
            if value <= bound or (goal == MEMORY and self._every().is_reference):
                break
        if goal == MEMORY and self.outcome.status == OPEN:
            self._descend(caps, bound + value // NEAR)
            value = min(value, self.best.peak_bytes)
        self._note(goal, value, bound, proof, status)
        return value

    def _note(self, goal: str, value: int, bound: int, proof: str, status: str) -> None:
        self.bounds[goal] = min(bound, value)
        progress.found(goal, value, 0 if short_of_time(self.assembly.cuts) else bound)
        if bound >= value:
            self.proofs[goal] = "search" if goal == MEMORY else proof
        else:
            self._missed(status)

    def _missed(self, status: str) -> None:
        """Not proven: why the first question that has no end did not end, or that all ended."""
        if self.status in ("optimal", "gap"):
            ended = "wall" if status == "unknown" else status
            self.status = "gap" if status in ("gap", "better", "proven") else ended

    def _least(self, weights: dict[str, int], caps: dict[str, int], value: int) -> Least:
        """No answer within the caps is worth less in any order; or one that is worth less."""
        known = 0
        try:
            if len(weights) == 1:
                known, proof = self._known(*weights)
                known = min(known, value)
                if known == value:
                    return Least("proven", value, proof)
            if self.every is None and not self._has_time():
                return Least(self.limits.ended, known)
            seconds = self.limits.seconds * SHARE
            found = self._every().least(weights, caps, value, seconds, self.best.groups)
        except OutOfTime:
            return Least(self.limits.ended, known)
        return replace(found, bound=max(found.bound, known))

    def _every(self) -> EveryOrder:
        """The problem without an order; OutOfTime if there is no time to state it."""
        if self.every is None:
            self.every = EveryOrder.of(self.assembly, self.budget, self.limits)
        return self.every

    def _known(self, goal: str) -> tuple[int, str]:
        """What a goal is at least in any order, as far as that is known, and what it is from."""
        return self.least.get(goal, (0, "search"))

    def bound(self) -> None:
        """Every goal's bound that takes no search: what is left of a proof if time ends before.

        Where the goals were proven under the program's order, the proof to come needs none.
        """
        with suppress(OutOfTime):
            if MEMORY not in self.least and any(r.name == MEMORY for r in self.requests):
                self._know(MEMORY, self._every().search.least_bytes, "search")
            if self.outcome.status in ("optimal", OPEN) or not self._has_time():
                return
            search = self._every().search
            for goal in [r.name for r in self.requests if r.name != MEMORY]:
                relaxed = search.relaxation(goal)
                self._know(goal, 0 if relaxed is None else relaxed.bound, "relaxation")

    def _know(self, goal: str, bound: int, proof: str) -> None:
        """A bound that takes no search; of a goal in a sum what is known holds for more answers."""
        known, _ = self._known(goal)
        if bound > known and (goal not in self.least or self.requests[0].weight is None):
            self.least[goal] = bound, proof

    def _near(self, goal: str, least: Least, caps: dict[str, int], value: int) -> Sequenced | None:
        """A better answer under the order of one that does not quite keep the caps.

        For memory `_descend` has looked there.
        """
        if least.best is None or goal == MEMORY or not self._has_time():
            return None
        with suppress(OutOfTime):
            there = under(self.assembly, least.best.groups)
            if there is None:
                return None
            asked = caps | {goal: min(caps.get(goal, value), value - 1)}
            search = self._search(there.assembly, asked)
            found = search.minimise(Objective({goal: 1}, asked), None, self.limits.seconds * SHARE)
            if found.answer is not None:
                return in_best_order(there.assembly, found.answer)
        return None

    # ---- memory ------------------------------------------------------------------------------
    def _reorder(self, caps: dict[str, int], known: Sequence[Group]) -> None:
        """The best order of the answer's dispatches, or a known answer in an order of its own."""
        found = [in_best_order(self.best.assembly, self.best.answer)]
        if known and self.reference.get(MEMORY, self.best.peak_bytes) < self.best.peak_bytes:
            with suppress(OutOfTime):
                found.append(under(self.assembly, known))
        kept = [a for a in found if a is not None and a.keeps(caps)]
        best = min(kept, key=lambda a: a.peak_bytes, default=self.best)
        if best.peak_bytes < self.best.peak_bytes:
            self._adopt(best, caps)
            self._descend(caps, self.assembly.problem.fixed_bytes)

    def _descend(self, caps: dict[str, int], least: int) -> None:
        """Better dispatches under the better order, until nothing gets better.

        Not if the peak is at most `least`, nor where its proof is asked by nobody.
        """
        if self.every is not None and self.every.is_reference:
            return
        for _ in range(ROUNDS):
            whole = self.best
            if whole.peak_bytes <= least or not self._has_time():
                break
            with suppress(OutOfTime):
                search = self._search(whole.assembly, caps, whole.answer)
                found = search.minimise(
                    Objective({MEMORY: 1}, caps), whole.answer, self.limits.seconds * 0.3
                )
                if found.answer is None:
                    break
                after = in_best_order(whole.assembly, found.answer)
                if after is None or after.peak_bytes >= whole.peak_bytes:
                    break
                self._adopt(after, caps)

    # ---- one weighted sum --------------------------------------------------------------------
    def weigh(self) -> None:
        """The weighted sum in any order; each goal's own bound is that of its relaxation."""
        assert self.outcome.weights
        weights, caps = dict(self.outcome.weights), dict(self.budget)
        best = in_best_order(self.best.assembly, self.best.answer) or self.best
        if best.worth(weights) < self.best.worth(weights):
            self._adopt(best, caps)
            self._again_from(0, caps)
        bound, least = 0, Least("optimal")
        for _ in range(ROUNDS):
            value = self.best.worth(weights)
            least = self._least(weights, caps, value)
            bound = max(bound, least.bound)
            if bound >= value or least.status != "better" or least.best is None:
                break
            self._adopt(least.best, caps)
            self._again_from(0, caps)
        if bound < self.best.worth(weights):
            self._missed(least.status)
        self._each_alone(least.proof)
        self.best = in_best_order(self.best.assembly, self.best.answer) or self.best

    def _each_alone(self, proof: str) -> None:
        names = [r.name for r in self.requests]
        self.proofs = dict.fromkeys(names, proof)
        with suppress(OutOfTime):
            for goal in names:
                relaxed = None
                if goal in self.least:
                    self.bounds[goal], _ = self.least[goal]
                elif self.every is not None:
                    relaxed = self.every.search.relaxation(goal)
                if relaxed is not None:
                    self.bounds[goal] = relaxed.bound

    # ---- all of them -------------------------------------------------------------------------
    def _search(self, assembly: Assembly, caps: Mapping[str, int], *hints: Answer) -> Search:
        """Options over a cap are left out at once; of memory only where it is a budget."""
        early = {g: v for g, v in caps.items() if g != MEMORY or g in self.budget}
        return self.limits.search(assembly, early, *hints)

    def _has_time(self) -> bool:
        """To state the problem, and as much again for what is asked of it."""
        return self.limits.seconds > 2 * self.assembly.seconds + ENOUGH

    def _adopt(self, found: Sequenced, caps: dict[str, int]) -> None:
        """A better answer; the whole problem under its order, if there is time to state that."""
        self.best, self.is_new = found, True
        if self._has_time():
            with suppress(OutOfTime):
                whole = under(self.assembly, found.groups)
                if whole is not None and whole.keeps(caps):
                    self.best = whole

    def ended(self) -> Outcome:
        """Bounds that hold in every order; what was not proven in time has none but trivial ones.

        A search that lack of memory or a request ended stays ended.
        """
        status = self.outcome.status
        if status not in (INTERRUPTED, OUT_OF_MEMORY) and not (
            status == "wall" and self.status == "gap"
        ):
            status = self.status
        return replace(
            self.outcome,
            status=status,
            answer=self.best.answer,
            bounds=self.bounds,
            proofs=self.proofs,
        )


def within_budget(
    assembly: Assembly,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: SearchLimits,
) -> tuple[str, Sequenced | None]:
    """An answer that keeps the budgets in some order: feasible | infeasible | unknown.

    `infeasible` holds in every order. Looked for are answers of the problem without an order, the
    best order of the answer to the first goal, and that of the one that needs least memory.
    """
    every = EveryOrder.of(assembly, budget, limits)
    goal = MEMORY if MEMORY in budget else requests[0].name
    found = every.least({goal: 1}, budget, None, limits.seconds * 0.4)
    if found.status == "proven":
        return "infeasible", None
    if found.status == "better" and found.best is not None:
        return "feasible", found.best
    rest = {g: v for g, v in budget.items() if g != MEMORY}
    if MEMORY not in budget:
        return "unknown", None
    memory = GoalRequest(MEMORY)
    first = next((GoalRequest(r.name) for r in requests if r.name != MEMORY), memory)
    for goals in ((first, memory), (memory,)):
        half = replace(limits, deadline=time.monotonic() + limits.seconds / 2)
        asked = tuple(dict.fromkeys(goals))
        outcome = half.search(assembly, rest).run(asked, None)
        if outcome.answer is not None:
            own, outcome = with_best_order(assembly, asked, outcome, None, rest, half)
            assert outcome.answer is not None
            best = Sequenced(own, outcome.answer)
            if best.keeps(budget):
                return "feasible", best
    return "unknown", None
