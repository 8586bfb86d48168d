"""Prices of rejected choices: each is forced into the same problem, the first goal minimised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eqsat.extract.ask.ties import TiedAnswers
from eqsat.extract.candidates.assemble import Assembly, choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import MEMORY, Answer, Columns, Forced
from eqsat.extract.choice.legal import is_legal
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.choice.relax import OPEN, Least, Relaxation, relaxation
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.minimiser import SHARES, Minimiser, SearchLimits, weigh
from eqsat.extract.ragged import Ints, Mask, numbered_sets
from eqsat.model.deadline import OutOfTime, elapsed
from eqsat.model.egraph import EGraph
from eqsat.model.selection import (
    AT_LEAST,
    EXACT,
    NOT_ADMISSIBLE,
    WEIGHTED,
    GoalRequest,
    Price,
    Question,
    Selection,
)
from eqsat.model.sets import by_key
from eqsat.model.target import Target

CHANGES = "changes"  # dispatches that the chosen program has not, as a goal


@dataclass(frozen=True)
class Task:
    """A question as a choice; `relaxed` says what each column adds at least to the bound."""

    choice: Columns
    allowed: Ints  # columns that are left
    relaxed: Relaxation | None
    least: int  # a bound of what is minimised

    def columns(self, cap: int | None, rest: int) -> Ints:
        """Columns of answers worth at most `cap`, of which goals that are no sums take `rest`."""
        if cap is None or self.relaxed is None:
            return self.allowed
        return np.intersect1d(self.allowed, self.relaxed.within(cap - rest))


@dataclass
class Counterfactuals:
    """Questions about one finished selection.

    The choice is that of the search with its dominated columns: a choice that is worse than others
    is often in these only. Caps are the budgets, and prices hold in any order.
    """

    assembly: Assembly
    budget: dict[str, int]
    goals: tuple[GoalRequest, ...]
    chosen: Selection
    reference: Mapping[str, int]
    seed: int = 0
    answers: list[Answer] = field(default_factory=list)  # known; questions start from them

    @property
    def choice(self) -> Columns:
        return self.assembly.choice

    @property
    def goal(self) -> str:
        """The goal that prices are in, or the sum of goals."""
        return self.goals[0].name if self.goals[0].weight is None else WEIGHTED

    @property
    def has_sum(self) -> bool:
        """Whether prices are of one goal, and that is a sum over dispatches."""
        return self.goal in self.choice.facts.linear

    @cached_property
    def weights(self) -> dict[str, int]:
        if self.goals[0].weight is None:
            return {self.goals[0].name: 1}
        return weigh(self.goals, dict(self.reference))

    @cached_property
    def _relaxed(self) -> Relaxation | None:
        linear = {g: w for g, w in self.weights.items() if g in self.choice.facts.linear}
        caps = {g: v for g, v in self.budget.items() if g in self.choice.facts.linear}
        return relaxation(self.choice, linear, caps) if linear else None

    @cached_property
    def _rest(self) -> int:
        """The least that goals add which are no sums."""
        others = {g: w for g, w in self.weights.items() if g not in self.choice.facts.linear}
        return sum(w * self.choice.floor(g) for g, w in others.items())

    def prices(self, questions: Sequence[Question], seconds: float) -> list[Price]:
        """One price per question; those the relaxation says are cheapest are solved first.

        None of them is exact, and nothing is ruled out, where candidates were left out.
        """
        try:
            prices = self._prices(questions, seconds)
        except OutOfTime:
            return [Price(self.goal, AT_LEAST)] * len(questions)
        if not self.assembly.cuts:
            return prices
        return [replace(p, status=AT_LEAST, bound=0) for p in prices]

    def _prices(self, questions: Sequence[Question], seconds: float) -> list[Price]:
        """Going without a choice first, as that is reported for each of them, and longer.

        A first round gives a question seconds; the second one is for those that needed longer.
        """
        deadline = elapsed() + SHARES.asking * seconds
        tasks = [self.task(q) for q in questions]
        more = [4 if q.kind == "without" else 1 for q in questions]
        order = sorted(range(len(tasks)), key=lambda i: (-more[i], tasks[i].least, i))
        prices: dict[int, Price] = {}
        for most in (2.0, math.inf):
            rest = [i for i in order if i not in prices or prices[i].status == AT_LEAST]
            for n, i in enumerate(rest):
                left = deadline - elapsed()
                share = min(max(left / (len(rest) - n), more[i] * most), left)
                if left > 0 or i not in prices:
                    prices[i] = self._price(tasks[i], share)
        return [self._with_tie(tasks[i], prices[i]) for i in range(len(tasks))]

    def _with_tie(self, task: Task, price: Price) -> Price:
        """With the reason, if a known answer makes the choice and is worth as much."""
        if price.delta != 0:
            return price
        same = [a for a in self._making(task) if self._delta(self._worth(a)) == 0]
        return replace(price, tie=self.ties.tie(same)) if same else price

    @cached_property
    def ties(self) -> TiedAnswers:
        later = () if self.goal == WEIGHTED else tuple(g.name for g in self.goals[1:])
        return TiedAnswers(self.assembly, self.chosen, later)

    def _price(self, task: Task, seconds: float) -> Price:
        """Look among answers that tie, then near the bound, then among all that may be better."""
        if task.choice.forced == ():
            return Price(self.goal, NOT_ADMISSIBLE)
        end = elapsed() + seconds
        least, best = task.least, self.incumbent_worth(task)
        tied = self._chosen_worth
        if (
            self.has_sum
            and task.relaxed is not None
            and least <= tied
            and (best is None or best > tied)
        ):
            solved = self.solve(task, tied, seconds, nearest=True)
            if solved.status == "infeasible":
                least = tied + 1
            elif solved.best is not None:
                best = tied
        # a price is looked for near its bound first: few columns can be there
        for cap in (int(task.least * (1 + 0.002)), None) if task.relaxed else (None,):
            left = end - elapsed()
            if left <= 0 or (best is not None and best <= least):
                break
            most = best if cap is None or (best is not None and best <= cap) else cap
            if least > (most or OPEN):
                continue
            solved = self.solve(task, most, left)
            if solved.status == "infeasible" and most is None:
                return Price(self.goal, NOT_ADMISSIBLE)
            least = max(least, _reached(solved, most))
            if solved.best is not None:
                value = self._worth(solved.best)
                best = value if best is None else min(best, value)
        return self._told(least, best)

    def _told(self, least: int, best: int | None) -> Price:
        if best is None:
            return Price(self.goal, AT_LEAST, None, self._delta(least))
        if best <= least:
            return Price(self.goal, EXACT, self._delta(best), self._delta(best))
        return Price(self.goal, AT_LEAST, self._delta(best), self._delta(least))

    def incumbent_worth(self, task: Task) -> int | None:
        """The value of the best known answer that makes the choice, and keeps the budgets."""
        return min(map(self._worth, self._making(task)), default=None)

    def best_making(self, task: Task) -> Answer | None:
        """The best known answer that makes the choice, with the fewest other dispatches."""

        def key(a: Answer) -> tuple[int, int, tuple[int, ...]]:
            return self._worth(a), self.ties.distance(a), a.columns

        return min(self._making(task), key=key, default=None)

    def _making(self, task: Task) -> list[Answer]:
        """Known answers that make the choice, and keep the budgets."""
        is_allowed = np.zeros(len(self.choice), dtype=bool)
        is_allowed[task.allowed] = True
        forced = None if task.choice.forced is None else {i for i, _ in task.choice.forced}
        return [
            a for a in self.answers
            if is_allowed[list(a.columns)].all()
            and (forced is None or not forced.isdisjoint(a.columns))
            and is_legal(task.choice, a.columns) and self.choice.keeps(a, self.budget)
        ]  # fmt: skip

    def _worth(self, answer: Answer) -> int:
        return self.choice.worth(answer, self.weights)

    def solve(self, task: Task, cap: int | None, seconds: float, *, nearest: bool = False) -> Least:
        """The best answer among the columns that may be worth at most `cap`.

        nearest: of those that are worth so little, the one with the fewest other dispatches.
        """
        incumbent = min(self._making(task), key=self._worth, default=None)
        columns = np.intersect1d(task.columns(cap, self._rest), self._cheapest(task, incumbent))
        small = task.choice.take(columns)
        if small.forced == ():
            return Least("infeasible")
        weights, caps, most = self.weights, dict(self.budget), OPEN if cap is None else cap
        if nearest and cap is not None:
            small = _counting(small, ~np.isin(columns, self.chosen_columns))
            (goal,) = self.weights
            caps[goal] = min(cap, caps.get(goal, cap))
            weights, most = {CHANGES: 1}, OPEN
        limits = SearchLimits(elapsed() + seconds, self.seed)
        asks_bytes = MEMORY in {*self.budget, *(g.name for g in self.goals)}
        asked = Minimiser(small, limits, orders=asks_bytes)
        best = incumbent and incumbent.among(columns)
        least = asked.least(weights, caps, best=best, most=most, seconds=seconds)
        if least.best is None:
            return least
        answer = least.best.at(columns)
        self.answers.append(answer)
        return replace(least, best=answer)

    def _cheapest(self, task: Task, incumbent: Answer | None) -> Ints:
        """Of columns that are equal in every row the cheapest, and what stands for no other one.

        In an answer either may be in the place of the other, so the dearer one is in no best answer
        unless it is asked for by name: as a forced one, or one of an answer that is compared.
        """
        if not (self.has_sum and {*self.weights, *self.budget} == {self.goal}):
            return task.allowed
        rows, costs = task.allowed, self.choice.coefficients(self.goal)
        order = rows[np.lexsort((costs[rows], self._kind[rows]))]
        is_first = np.diff(self._kind[order], prepend=-1) != 0
        forced = [i for i, _ in task.choice.forced or ()]
        more = (
            *forced,
            *self.chosen_columns.tolist(),
            *(() if incumbent is None else incumbent.columns),
        )
        return np.union1d(order[is_first], np.array(more, dtype=np.int64))

    @cached_property
    def _kind(self) -> Ints:
        """Per column a number that columns share which are equal in every row."""
        c = self.choice
        sides = c.reads, c.writes, c.resident, c.exclusive, c.computes, c.serves
        numbers = np.stack([numbered_sets(side) for side in sides], axis=1)
        return np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def chosen_columns(self) -> Ints:
        """Columns of the chosen program."""
        located = self.assembly.locate(self.chosen.groups)
        return np.array([] if located is None else sorted(located.columns), dtype=np.int64)

    @cached_property
    def _chosen_worth(self) -> int:
        return sum(w * self.chosen.goal(g).value for g, w in self.weights.items())

    def _delta(self, value: int) -> int:
        chosen = self._chosen_worth
        if self.goal == WEIGHTED:
            return (value - chosen) * 1_000_000 // max(chosen, 1)
        return value - chosen

    # ---- questions as choices ------------------------------------------------------------------
    def task(self, question: Question) -> Task:
        every = np.arange(len(self.choice))
        if question.kind == "without":
            allowed = self._without(question.subject)
            return Task(self.choice, allowed, self._relaxed, self._least(self._relaxed))
        ways = {
            "node": self._with_node,
            "written": self._written,
            "inside": self._inside,
            "resident": self._resident,
        }
        forced = ways[question.kind](question.subject)
        columns = np.array([i for i, _ in forced], dtype=np.int64)
        lifted = self._relaxed and self._relaxed.forcing(np.unique(columns))
        return Task(replace(self.choice, forced=forced), every, lifted, self._least(lifted))

    def _least(self, relaxed: Relaxation | None) -> int:
        """No choice makes better what the search has proven."""
        proven = 0 if self.goal == WEIGHTED else self.chosen.goal(self.goal).bound
        return proven if relaxed is None else max(proven, relaxed.bound + self._rest)

    def _without(self, node: int) -> Ints:
        """Columns that do not compute an e-node, or do not read what it gives ahead of time."""
        pool = self.assembly.pool
        buffers = {pool.space.buffer[c] for c in pool.space.outputs[node]}
        gone = np.zeros(len(self.choice), dtype=bool)
        gone[list(self._holders.get(node, ()))] = True
        for b in buffers if pool.is_ahead_node(node) else ():
            gone[self.choice.keepers[b]] = True
        return np.flatnonzero(~gone)

    def _with_node(self, node: int) -> Forced:
        forced = []
        for i in self._holders.get(node, ()):
            served = self._served(i, frozenset((node,)))
            if served:
                forced.append((i, served))
        return tuple(forced)

    def _written(self, eclass: int) -> Forced:
        b = self.assembly.space.buffer[eclass]
        return tuple((i, (b,)) for i in self.choice.writers[b].tolist())

    def _resident(self, eclass: int) -> Forced:
        b = self.assembly.space.buffer[eclass]
        return tuple((i, self.choice.writes.tuples[i]) for i in self.choice.keepers[b].tolist())

    def _inside(self, eclass: int) -> Forced:
        space = self.assembly.space
        value = space.value[eclass]
        forced = []
        for i, writes in enumerate(self.choice.writes.tuples):
            members = self.assembly.candidate(i).members
            makers = frozenset(m for m in members if value in space.computes((m,)))
            if not makers or any(space.value[b] == value for b in writes):
                continue
            served = self._served(i, makers)
            if served:
                forced.append((i, served))
        return tuple(forced)

    @cached_property
    def _holders(self) -> dict[int, list[int]]:
        """Per e-node: the columns that compute it."""
        columns = range(len(self.choice))
        return by_key((m, i) for i in columns for m in self.assembly.candidate(i).members)

    def _served(self, column: int, nodes: frozenset[int]) -> tuple[int, ...]:
        """Values a column writes that depend on these members."""
        space = self.assembly.space
        touched: set[int] = set()
        for m in self.assembly.candidate(column).members:
            if m in nodes or not touched.isdisjoint(space.operands[m]):
                touched.update(space.buffer[c] for c in space.outputs[m])
        return tuple(b for b in self.choice.writes.tuples[column] if b in touched)


def _counting(choice: Columns, is_other: Mask) -> Columns:
    """The choice with a goal that counts columns of this kind."""
    adds = np.concatenate([choice.adds, is_other[:, None].astype(choice.adds.dtype)], axis=1)
    facts = replace(choice.facts, linear=(*choice.facts.linear, CHANGES))
    return replace(choice, facts=facts, adds=adds)


def _reached(solved: Least, cap: int | None) -> int:
    """The bound a solve proves that looked at all answers worth at most `cap`."""
    if cap is None:
        return solved.bound
    return cap + 1 if solved.status == "infeasible" else min(solved.bound, cap + 1)


def counterfactuals(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    chosen: Selection,
    baseline: Selection | None,
    seed: int = 0,
    *,
    enough: float = math.inf,
) -> Counterfactuals:
    """The questions that price choices of a run; its problem is assembled once.

    enough: when (of `elapsed`) no further candidates are looked for. OutOfTime if the
    deadline it is under leaves no time to state the choice.
    """
    asked = dict.fromkeys([*(g.name for g in goals), *dict(target.budget)])
    legality = Legality(Space(egraph, target.padding), target)
    pool = Pool(legality, False, frozenset(asked), keeps_all=True)
    assembly = choices(pool, linear_goals(asked), enough=enough).assembled()
    reference = {n: r.value for n, r in (baseline or chosen).goals}
    located = assembly.locate(chosen.groups)
    answers = [] if located is None else [located]
    sides = assembly, dict(target.budget), goals, chosen, reference, seed, answers
    return Counterfactuals(*sides)
