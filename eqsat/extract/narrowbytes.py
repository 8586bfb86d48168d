"""Memory first, or under a budget: what does not fit is never stated under an order.

A known answer says how many bytes are enough, and must-analysis (`solve.fits`) which options fit
into them, in any order. If none fit into less, the answer's peak is proven. The goals behind are
then minimised one after another among what fits (`withinbytes`): what lifts a bound above the best
known answer goes, too. What is left, a few options of a hundred, is the problem from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.extract.candidates.assemble import Assembly, Choices
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.ordered import SearchLimits, greedily, in_best_order
from eqsat.extract.ragged import Ints
from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.relax import MEMORY
from eqsat.extract.solve.requests import limit
from eqsat.extract.withinbytes import KnownAnswer, LeastSum, WithinBytes
from eqsat.model.cycles import uncollected
from eqsat.model.selection import GoalRequest, Selection

SHARE = 0.4  # of the time there is, for the least peak in any order; and for one look for an answer
ROUNDS = 4  # of better answers


@dataclass(frozen=True)
class Fitting:
    """Options that answers no worse than the best known one hold.

    `least` has per goal a proven lower bound in any order, and what proves it.
    """

    options: tuple[Variant, ...]
    best: KnownAnswer
    least: Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class Unkept:
    """No answer keeps the budgets, in any order; `assembly` is the problem without them."""

    assembly: Assembly


@dataclass
class _Bytes:
    """One question about what fits; `best` is the best known answer, as groups in their order."""

    within: WithinBytes
    goals: tuple[GoalRequest, ...]
    budget: Mapping[str, int]
    reference: Mapping[str, int]
    best: KnownAnswer
    least: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def limits(self) -> SearchLimits:
        return self.within.limits

    def memory(self) -> bool:
        """The least peak in any order; whether it is proven, or else just bounded."""
        for _ in range(ROUNDS):
            value, seconds = self.best.values[MEMORY], self.limits.seconds * SHARE
            found = self.within.every.least({MEMORY: 1}, self.budget, value, seconds)
            self.least[MEMORY] = found.bound or value * (found.status == "proven"), found.proof
            if found.status != "better" or found.best is None:
                return found.status == "proven"
            self.best = KnownAnswer.of(found.best)
        return False

    def behind(self, goals: Sequence[GoalRequest], caps: dict[str, int], kept: Ints) -> Ints:
        """Options of the best answers by these sums, as far as these are proven one by one.

        If they all are, of these answers those that convert least.
        """
        sums = self.within.goals
        for r in goals:
            found = None if r.name not in sums else self._sum(r.name, caps, kept)
            if found is None:
                return kept
            caps[r.name] = limit(r, self.best.value(r.name), self.reference)
            kept = found.within(caps[r.name])
            if not found.is_met:
                return kept
        self._tied({g: min(c, self.best.value(g)) for g, c in caps.items()}, kept)
        return kept

    def _sum(self, goal: str, caps: Mapping[str, int], kept: Ints) -> LeastSum | None:
        found = self.within.least(goal, caps, kept, self.best)
        if found is None or found.best is None:
            return None
        self.best = found.best
        if not found.is_met:
            self._look(goal, found, caps)
        self.least[goal] = found.bound, found.proof
        return found

    def _look(self, goal: str, found: LeastSum, caps: Mapping[str, int]) -> None:
        """For a better answer under the order of the best one, if those without keep no cap."""
        there = self.among(found.within(self.best.value(goal) - 1))
        sums = {g: v for g, v in caps.items() if g != MEMORY}  # rows of bytes are slow to relax
        search = self.limits.search(there, sums, *there.locate(self.best.groups))
        seconds = self.limits.seconds * SHARE
        near = search.tried(Objective({goal: 1}, dict(caps)), None, seconds)
        better = None if near.answer is None else in_best_order(there, near.answer)
        if better is not None and better.keeps(caps) and better.value(goal) < self.best.value(goal):
            self.best = KnownAnswer.of(better)

    def _tied(self, exact: dict[str, int], kept: Ints) -> None:
        """Of answers equal in all goals one that converts least."""
        found = self.within.least(TIE_BREAK, exact, kept, self.best)
        if found is not None and found.best is not None:
            self.best = found.best
            if found.is_met:
                self.least[TIE_BREAK] = found.bound, found.proof

    def among(self, kept: Ints) -> Assembly:
        """Some of the options, under the order of the best known answer."""
        few = tuple(self.within.options[i] for i in kept.tolist())
        return self.within.choices.among(few).under(self.best.groups)


def fitting_options(
    choices: Choices,
    goals: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: SearchLimits,
    baseline: Selection | None,
) -> Fitting | Unkept | None:
    """Options that fit, without those that make the goals behind worse.

    None where no answer is found that keeps the budgets, and there might be one. OutOfTime if there
    is no time to state the problem without an order.
    """
    reference = {} if baseline is None else {n: r.value for n, r in baseline.goals}
    first, caps = goals[0], dict(budget)
    within = WithinBytes(choices, limits)
    best = _kept(baseline, budget) or _admissible(within, budget) or _greedy(choices, budget)
    if best is None or isinstance(best, Unkept):
        return best
    if first.name == MEMORY:
        most = limit(first, best.values[MEMORY], reference)
        caps[MEMORY] = min(most, caps.get(MEMORY, most))
    within.cut(caps[MEMORY])
    asked, is_proven = _Bytes(within, goals, budget, reference, best), True
    if first.name == MEMORY:
        is_proven = asked.memory()
        most = limit(first, asked.best.values[MEMORY], reference)
        caps[MEMORY] = min(most, caps[MEMORY])
    kept = within.fitting(caps[MEMORY])
    if is_proven:
        behind = goals[1:] if first.name == MEMORY else goals
        kept = asked.behind(behind, caps, kept)
    options = tuple(within.options[i] for i in kept.tolist())
    return Fitting(options, asked.best, asked.least)


def _kept(baseline: Selection | None, budget: Mapping[str, int]) -> KnownAnswer | None:
    """The baseline, if it keeps the budgets."""
    if baseline is None:
        return None
    known = KnownAnswer({n: r.value for n, r in baseline.goals}, baseline.groups)
    return known if known.keeps(budget) else None


def _admissible(within: WithinBytes, budget: Mapping[str, int]) -> KnownAnswer | Unkept | None:
    """An answer that keeps a budget of memory and others, or the proof that none does."""
    if MEMORY not in budget:
        return None
    kept = within.fitting(budget[MEMORY])
    if not len(kept):
        return Unkept(within.every.free) if within.every.search.problem.roots else None
    found = within.least("time", budget, kept, None)
    if found is not None and found.is_infeasible:
        return Unkept(within.every.free)
    return None if found is None else found.best


def _greedy(choices: Choices, budget: Mapping[str, int]) -> KnownAnswer | None:
    """A greedy answer in its best order, if it keeps the budgets."""
    with uncollected():
        assembly = choices.ordered()
    orders = (in_best_order(assembly, a) for a in greedily(assembly, MEMORY))
    known = [KnownAnswer.of(o) for o in orders if o is not None]
    return min((k for k in known if k.keeps(budget)), key=lambda k: k.values[MEMORY], default=None)
