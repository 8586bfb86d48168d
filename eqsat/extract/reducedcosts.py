"""Presolve by reduced costs: of the columns that the first goal leaves, a few of a hundred.

The relaxation of the first goal, or of the weighted sum, bounds every answer in every order, and
the columns near that bound hold an answer that is good. Whatever lifts the bound above that answer
is in no better one. Where times need a plan, floors of them stand for these at first: that stays a
relaxation, so what it rules out is ruled out; plans are made of what it chooses, and it is asked
again. Once all that it chooses have plans, its bound is as tight as with all plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.candidates.assemble import Assembly, Choices, cut_short
from eqsat.extract.candidates.sources import with_plan_times
from eqsat.extract.candidates.tabulate import undominated_columns
from eqsat.extract.choice.columns import MEMORY, Answer, Columns
from eqsat.extract.choice.legal import greedy, presolved
from eqsat.extract.choice.relax import Relaxation, relaxation
from eqsat.extract.choice.statement import Statement
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.memory.memoryfilter import Fits
from eqsat.extract.minimiser import SHARES, Minimiser, SearchLimits, limit, weigh
from eqsat.extract.ragged import Ints, distinct
from eqsat.model import progress
from eqsat.model.deadline import OutOfTime, elapsed, until, whatever_it_takes
from eqsat.model.selection import GoalRequest, Group, Selection, short_of_time

MOST = 20_000  # columns that such a look may have: among more it takes longer than a relaxation
STATED_AGAIN = 0.95  # of the columns: if no more are left of them, they are stated anew


@dataclass(frozen=True)
class Incumbent:
    """An answer, as groups in their order, and what it is worth by every goal."""

    values: Mapping[str, int]
    groups: Sequence[Group]

    @staticmethod
    def of(assembly: Assembly, answer: Answer) -> Incumbent:
        return Incumbent(assembly.choice.values(answer), assembly.groups(answer))

    @staticmethod
    def selected(selection: Selection) -> Incumbent:
        return Incumbent({n: r.value for n, r in selection.goals}, selection.groups)

    def keeps(self, caps: Mapping[str, int]) -> bool:
        return all(self.values.get(g, cap) <= cap for g, cap in caps.items())

    def worth(self, weights: Mapping[str, int]) -> int:
        return sum(w * self.values[g] for g, w in weights.items())


@dataclass(frozen=True)
class Narrowed:
    """The columns that answers no worse than the best known one hold; that one, if they hold it.

    `least` has per goal a proven lower bound in any order, and what proves it. is_refused: no
    answer keeps the budgets, in any order, which is proven; the choice is then without them.
    """

    assembly: Assembly
    best: Answer | None
    least: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    is_refused: bool = False


def fix_by_reduced_cost(
    choices: Choices,
    goals: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: SearchLimits,
    incumbents: Sequence[Incumbent] = (),
) -> Narrowed:
    """The choice without what no answer as good as the best known one holds.

    Answers are compared by the first goal, within its tolerance, or by the weighted sum.
    incumbents: the baseline first, if there is one. OutOfTime if no relaxation ends in time.
    """
    first, sums = goals[0], choices.sources.goals.keys()
    reference = incumbents[0].values if incumbents else {}
    if first.weight is None:
        weights = {first.name: 1}
    else:
        weights = weigh(goals, dict(reference)) if incumbents else {}
    if MEMORY in {first.name, *budget} and first.weight is None:
        return _by_bytes(choices, first, budget, limits, incumbents)
    if sums.isdisjoint(weights) or MEMORY in budget:
        return _all_of(choices, incumbents, budget)
    narrowing = _Narrowing(choices.assembled(floored=True), goals, weights, budget, limits)
    narrowing.reference = reference
    for k in incumbents:
        narrowing.offer(k)
    return narrowing.narrowed()


def _all_of(
    choices: Choices, incumbents: Sequence[Incumbent], budget: Mapping[str, int]
) -> Narrowed:
    """Every column, where the first goal rules out none."""
    assembly = choices.assembled()
    there = [assembly.locate(k.groups) for k in incumbents if k.keeps(budget)]
    return Narrowed(assembly, next((a for a in there if a is not None), None))


def _by_bytes(
    choices: Choices,
    first: GoalRequest,
    budget: Mapping[str, int],
    limits: SearchLimits,
    incumbents: Sequence[Incumbent],
) -> Narrowed:
    """With memory first, or under a budget of it: what fits into the bytes of a known answer."""
    assembly = choices.assembled(floored=True)
    within = [k for k in incumbents if k.keeps(budget)] or _greedy(assembly, MEMORY, budget)
    best = min(within, key=lambda k: k.values[first.name], default=None)
    most = budget.get(MEMORY)
    if best is not None and first.name == MEMORY:
        reference = incumbents[0].values if incumbents else {}
        most = min(limit(first, best.values[MEMORY], reference), most or best.values[MEMORY])
    choice = assembly.choice
    if most is not None:
        nbytes = choice.facts.fixed_bytes + choice.touched_bytes + choice.weight_bytes
        choice = choice.take(np.flatnonzero(nbytes <= most))
        choice = choice.take(presolved(choice))
    choice = _planned(assembly, choice)
    small = replace(assembly, choice=choice)
    if best is not None and (there := small.locate(best.groups)) is not None:
        return Narrowed(small, there)
    asked = Minimiser(choice, limits)
    least = asked.least({"time": 1}, budget, is_look=True, seconds=limits.seconds / 2)
    if least.status == "infeasible":
        whole = replace(assembly, choice=_planned(assembly, assembly.choice))
        return Narrowed(whole, None, is_refused=True)
    return Narrowed(small, least.best)


def _planned(assembly: Assembly, choice: Columns) -> Columns:
    """With the times of all columns, and without those that are dominated then."""
    if choice.is_asked.all():
        return choice
    choice = with_plan_times(assembly.sources, choice, np.arange(len(choice)))
    return undominated_columns(assembly.sources, choice)


def _greedy(assembly: Assembly, goal: str, budget: Mapping[str, int]) -> list[Incumbent]:
    """Greedy answers that keep the budget, which take no solver: there may be no time for one."""
    choice, answers = assembly.choice, list[Incumbent]()
    if len(choice) > MOST:
        return answers
    for columns in greedy(choice, assembly.single_ops, goal):
        rows = np.sort(np.array(columns, dtype=np.int64))
        few = with_plan_times(assembly.sources, choice, rows).take(rows)
        small = replace(assembly, choice=few)
        answer = in_best_order(few, range(len(rows)))
        incumbent = None if answer is None else Incumbent.of(small, answer)
        answers += [incumbent] if incumbent is not None and incumbent.keeps(budget) else []
    return answers


@dataclass
class _Narrowing:
    """The best answer so far, and the columns that are left."""

    assembly: Assembly
    goals: tuple[GoalRequest, ...]
    weights: dict[str, int]
    budget: Mapping[str, int]
    limits: SearchLimits
    reference: Mapping[str, int] = field(default_factory=dict)
    best: Incumbent | None = None
    last: tuple[Columns, Relaxation] | None = None  # what was relaxed, and what came of it
    settled: list[frozenset[int]] = field(default_factory=list)  # keys that hold nothing better
    least_bytes: int | None = None  # of any answer, if it was asked for
    statement: Statement | None = None  # the last choice whose rows were stated

    @property
    def choice(self) -> Columns:
        return self.assembly.choice

    @property
    def sums(self) -> dict[str, int]:
        """Of the weights, those of sums over dispatches."""
        return {g: w for g, w in self.weights.items() if g in self.choice.facts.linear}

    @property
    def caps(self) -> dict[str, int]:
        return {g: v for g, v in self.budget.items() if g in self.choice.facts.linear}

    @property
    def value(self) -> int | None:
        return None if self.best is None else self.best.worth(self.weights)

    @property
    def cap(self) -> int | None:
        """The most an answer may be worth, for the goals behind; None if no answer is known."""
        value, first = self.value, self.goals[0]
        if value is None or first.weight is not None:
            return value
        return limit(first, value, self.reference)

    def offer(self, incumbent: Incumbent) -> None:
        value = self.value
        if incumbent.keeps(self.budget) and (
            value is None or incumbent.worth(self.weights) < value
        ):
            self.best = incumbent

    # ---- relaxations ---------------------------------------------------------------------------
    def narrowed(self) -> Narrowed:
        if self.best is None:
            for incumbent in _greedy(self.assembly, next(iter(self.sums)), self.budget):
                self.offer(incumbent)
        alone = self._alone()
        bound = self._within_time()
        if bound is None:
            return self._among_the_last() if self.last else Narrowed(self.assembly, None)
        first, least = self.goals[0], dict(alone)
        if first.weight is None:
            least_value = 0 if short_of_time(self.assembly.cuts) else bound
            progress.found(first.name, self.value, least_value)
            least[first.name] = bound
            least |= self._behind()
        best = None if self.best is None else self._located()
        return Narrowed(self.assembly, best, {g: (b, "relaxation") for g, b in least.items()})

    def _within_time(self) -> int | None:
        """The bound of all answers; None if the time for relaxations was over before.

        Then an answer was looked for near the last one; OutOfTime if there was none.
        """
        try:
            with until(elapsed() + SHARES.relaxing * self.limits.seconds):
                return self._relaxed()
        except OutOfTime:
            if not self._look_at_last():
                raise
            return None

    def _relaxed(self) -> int:
        while not self.choice.is_asked.all():
            relaxed = self._relax()
            if relaxed is None:
                self._set(_planned(self.assembly, self.choice))
                return 0
            rows = self._next(relaxed)
            if not len(rows):
                self._look_near(relaxed)
                self._keep(relaxed)
                self._set(_planned(self.assembly, self.choice))
                break
            self._set(with_plan_times(self.assembly.sources, self.choice, rows))
            self._drop(relaxed)
        relaxed = self._relax()
        if relaxed is None:
            return 0
        cap = self.cap
        self._look_near(relaxed)
        bound = relaxed.bound if cap is None else min(relaxed.bound, cap)
        self._keep(relaxed)
        self._set(self.choice.take(presolved(self.choice)))
        return bound

    def _set(self, choice: Columns) -> None:
        self.assembly = replace(self.assembly, choice=choice)

    def _keep(self, relaxed: Relaxation) -> None:
        """Drop the columns whose reduced cost is above the cap."""
        if self.cap is not None:
            self._set(self.choice.take(relaxed.within(self.cap)))

    def _drop(self, relaxed: Relaxation) -> None:
        """Without what is worth more than the cap, if that is many: fewer columns are stated anew.

        What known times dominate stays: of equal blocks other columns may have known times in each,
        so that each drops what the other one keeps.
        """
        choice = self.choice if self.cap is None else self.choice.take(relaxed.within(self.cap))
        if len(choice) < STATED_AGAIN * len(self.choice):
            self._set(choice)

    def _relax(self) -> Relaxation | None:
        """Of the sums; memory and kept weights add no less than what is always there."""
        relaxed = relaxation(self.choice, self.sums, self.caps, statement=self._stated())
        if relaxed is None:
            return None
        rest = {g: w for g, w in self.weights.items() if g not in self.sums}
        relaxed = relaxed.plus(sum(w * self._floor(g) for g, w in rest.items()))
        if len(relaxed.support):
            self.last = self.choice, relaxed
        return relaxed

    def _stated(self) -> Statement:
        """The rows, which stay what they are while columns only get their prices."""
        if self.statement is None or self.statement.choice.key is not self.choice.key:
            self.statement = Statement(self.choice, is_summed=True)
        return self.statement.of(self.choice)

    def _floor(self, goal: str) -> int:
        """A floor of a goal that is no sum; of memory, where that is soon told."""
        # of more columns it takes too long to tell what is surely live
        if goal != MEMORY or len(self.choice) > 5_000:
            return self.choice.floor(goal)
        if self.least_bytes is None:
            self.least_bytes = Fits(self.choice).least_bytes
        return self.least_bytes

    def _next(self, relaxed: Relaxation) -> Ints:
        """Columns without a plan that the relaxation chose or nearly chose.

        An eighth of them, or a third where a relaxation takes as long as thousands of plans.
        """
        chosen = np.zeros(len(self.choice), dtype=bool)
        chosen[relaxed.support] = True
        left = np.flatnonzero(~self.choice.is_asked)
        if not chosen[left].any():
            return left[:0]
        order = np.lexsort((relaxed.reduced[left], ~chosen[left]))
        part = 3 if len(self.choice) > MOST else 8
        return left[order[: max(64, int(chosen[left].sum()), len(left) // part)]]

    def _alone(self) -> dict[str, int]:
        """Of goals in one weighted sum: what each is at least, whatever the others."""
        if self.goals[0].weight is None:
            return {}
        relaxed = {g: relaxation(self.choice, {g: 1}) for g in self.sums}
        return {g: r.bound for g, r in relaxed.items() if r is not None}

    def _behind(self) -> dict[str, int]:
        """Bounds of the goals behind the first one, also where equal blocks differ."""
        if self.choice.facts.blocks is None:
            return {}
        caps = {} if self.cap is None else {g: self.cap for g in self.weights}
        later = [g.name for g in self.goals[1:] if g.name in self.choice.facts.linear]
        relaxed = {g: relaxation(self.choice, {g: 1}, caps) for g in later}
        return {g: r.bound for g, r in relaxed.items() if r is not None}

    # ---- looks ---------------------------------------------------------------------------------
    def _look_near(self, relaxed: Relaxation) -> None:
        """Look for answers close to the bound, until one is as good as the columns allow."""
        last = 0
        # how far above the bound an answer is looked for, one after another, until one is as good
        for spread in (0.0, 0.0005, 0.003, 0.02, 0.1):
            cap = int(relaxed.bound * (1 + spread))
            if self.value is not None and self.value <= cap:
                break
            near = relaxed.within(cap)
            if len(near) > MOST:
                break
            if len(near) > last:
                last = len(near)
                self._look(self.choice, near)

    def _look(self, choice: Columns, rows: Ints) -> None:
        """For the best answer among these by the sums, with the times of their plans."""
        keys = frozenset(choice.key[rows].tolist())
        if any(keys <= earlier for earlier in self.settled):
            return
        few = with_plan_times(self.assembly.sources, choice, rows).take(rows)
        small = replace(self.assembly, choice=few)
        asked = Minimiser(few, self.limits, orders=MEMORY in self.weights)
        best = None if self.best is None else small.locate(self.best.groups)
        least = asked.least(self.sums, self.caps, best=best, is_look=True)
        if least.status in ("optimal", "infeasible"):
            self.settled.append(keys)
        if least.best is not None:
            self.offer(Incumbent.of(small, least.best))

    def _look_at_last(self) -> bool:
        """Near the last relaxation, where there is no time for another one; whether there was one.

        Dispatches of one op each are looked at as well, so that there is an answer.
        """
        if self.last is None:
            return False
        choice, relaxed = self.last
        ops = replace(self.assembly, choice=choice).single_ops
        self._look(choice, distinct(np.concatenate([relaxed.within(relaxed.bound), ops])))
        return self.best is not None

    def _among_the_last(self) -> Narrowed:
        """The columns of the best answer, and nothing else: there was no time for more."""
        assert self.best is not None
        with whatever_it_takes():
            cuts = cut_short(self.assembly.pool, self.assembly.cuts)
            whole = replace(self.assembly, cuts=cuts)
            there = whole.locate(self.best.groups)
            if there is None:
                return Narrowed(whole.take(np.arange(0)), None)
            rows = np.sort(np.array(there.columns, dtype=np.int64))
            choice = with_plan_times(whole.sources, whole.choice, rows).take(rows)
            few = replace(whole, choice=choice)
            return Narrowed(few, few.locate(self.best.groups))

    def _located(self) -> Answer | None:
        """The best answer in what is left, or one that is as good.

        The best one itself, such as the baseline, may have layouts that are not among them.
        """
        assert self.best is not None
        there = self.assembly.locate(self.best.groups)
        if there is not None:
            return there
        asked = Minimiser(self.choice, self.limits)
        return asked.least(self.sums, self.caps, is_look=True).best
