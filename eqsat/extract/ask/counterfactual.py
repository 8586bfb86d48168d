"""What rejected choices would cost: each forced into the same problem, the first goal minimised."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.extract.ask.ties import TiedAnswers
from eqsat.extract.candidates.assemble import Assembly, assemble
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.choice.requests import weigh
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Minimum, floor
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.extract.solve.relax import Relaxation, relaxation
from eqsat.model.deadline import OutOfTime
from eqsat.model.egraph import EGraph
from eqsat.model.price import AT_LEAST, EXACT, NOT_ADMISSIBLE, WEIGHTED, Price, Question
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Target

# for a question at most, round by round: later ones are for questions that needed longer
ROUND_SECONDS = (0.8, 4.0, math.inf)
MORE = 4  # times as long for going without a choice, which everybody is told
ASKING = 0.9  # of the time, at most; in the rest orders of what ties are looked for
CHANGES = "changes"  # dispatches that the chosen program has not, as a goal
# how far above its bound a price is looked for first: the options that can be there are few
SPREADS = (0.002, 0.02, 0.2)
Forced = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Task:
    """A question as a problem; `relaxed` says what each option adds at least to the bound."""

    problem: ExtractionProblem
    allowed: tuple[int, ...]  # options that are left
    relaxed: Relaxation | None
    least: int  # a bound of what is minimised

    def options(self, cap: int | None, rest: int) -> tuple[int, ...]:
        """Options of answers worth at most `cap`, of which goals that are no sums take `rest`."""
        if cap is None or self.relaxed is None:
            return self.allowed
        near = set(self.relaxed.within(cap - rest))
        return tuple(i for i in self.allowed if i in near)


@dataclass
class Counterfactuals:
    """Questions about one finished selection.

    The problem is that of the search with its dominated options: a choice that is worse than others
    is often in these only. Caps are the budgets. Where memory is a goal or has a cap, prices hold
    for the order of execution that was chosen.
    """

    assembly: Assembly
    budget: dict[str, int]
    goals: tuple[GoalRequest, ...]
    chosen: Selection
    reference: Mapping[str, int]
    seed: int = 0
    answers: list[Answer] = field(default_factory=list)  # known; questions start from them

    @property
    def problem(self) -> ExtractionProblem:
        return self.assembly.problem

    @property
    def goal(self) -> str:
        """What prices are in."""
        return self.goals[0].name if self.goals[0].weight is None else WEIGHTED

    @property
    def has_sum(self) -> bool:
        """Whether prices are of one goal, and that is a sum over dispatches."""
        return self.goal in self.problem.linear

    @cached_property
    def weights(self) -> dict[str, int]:
        if self.goals[0].weight is None:
            return {self.goals[0].name: 1}
        return weigh(self.goals, dict(self.reference))

    @cached_property
    def _relaxed(self) -> Relaxation | None:
        linear = {g: w for g, w in self.weights.items() if g in self.problem.linear}
        caps = {g: v for g, v in self.budget.items() if g in self.problem.linear}
        return relaxation(self.problem, linear, caps) if linear else None

    @cached_property
    def _rest(self) -> int:
        """What goals that are no sums add at least."""
        others = {g: w for g, w in self.weights.items() if g not in self.problem.linear}
        return sum(w * floor(self.problem, g) for g, w in others.items())

    def prices(self, questions: Sequence[Question], seconds: float) -> list[Price]:
        """One price per question; those the relaxation says are cheapest are solved first.

        None of them is exact, and nothing is ruled out, where candidates were left out.
        """
        try:
            found = self._prices(questions, seconds)
        except OutOfTime:
            return [Price(self.goal, AT_LEAST)] * len(questions)
        if not self.assembly.cuts:
            return found
        return [replace(p, status=AT_LEAST, bound=0) for p in found]

    def _prices(self, questions: Sequence[Question], seconds: float) -> list[Price]:
        """Going without a choice first, as that is reported for each of them."""
        deadline = time.monotonic() + ASKING * seconds
        tasks = [self.task(q) for q in questions]
        more = [MORE if q.kind == "without" else 1 for q in questions]
        order = sorted(range(len(tasks)), key=lambda i: (-more[i], tasks[i].least, i))
        found: dict[int, Price] = {}
        for most in ROUND_SECONDS:
            rest = [i for i in order if i not in found or found[i].status == AT_LEAST]
            for n, i in enumerate(rest):
                left = deadline - time.monotonic()
                share = min(max(left / (len(rest) - n), more[i] * most), left)
                if left > 0 or i not in found:
                    found[i] = self._price(tasks[i], share)
        return [self._with_tie(tasks[i], found[i]) for i in range(len(tasks))]

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
        if task.problem.forced == ():
            return Price(self.goal, NOT_ADMISSIBLE)
        end = time.monotonic() + seconds
        least, best = task.least, self.known(task)
        tied = self._chosen_worth
        if (
            self.has_sum
            and task.relaxed is not None
            and least <= tied
            and (best is None or best > tied)
        ):
            found = self.solve(task, tied, seconds, nearest=True)
            if found.status == "infeasible":
                least = tied + 1
            elif found.answer is not None:
                best = tied
        for spread in (*SPREADS, None) if task.relaxed else (None,):
            left = end - time.monotonic()
            if left <= 0 or (best is not None and best <= least):
                break
            cap = best if spread is None else int(task.least * (1 + spread))
            if spread is not None and best is not None and cap is not None and best <= cap:
                continue
            found = self.solve(task, cap, left)
            if found.status == "infeasible" and cap is None:
                return Price(self.goal, NOT_ADMISSIBLE)
            least = max(least, _reached(found, cap))
            if found.answer is not None:
                value = self.problem.worth(found.answer, self.weights)
                best = value if best is None else min(best, value)
        return self._told(least, best)

    def _told(self, least: int, best: int | None) -> Price:
        if best is None:
            return Price(self.goal, AT_LEAST, None, self._delta(least))
        if best <= least:
            return Price(self.goal, EXACT, self._delta(best), self._delta(best))
        return Price(self.goal, AT_LEAST, self._delta(best), self._delta(least))

    def known(self, task: Task) -> int | None:
        """The value of the best known answer that makes the choice, and keeps the budgets."""
        return min(map(self._worth, self._making(task)), default=None)

    def best_making(self, task: Task) -> Answer | None:
        """The best known answer that makes the choice, with the fewest other dispatches."""

        def key(a: Answer) -> tuple[int, int, Answer]:
            return self._worth(a), self.ties.distance(a), a

        return min(self._making(task), key=key, default=None)

    def _making(self, task: Task) -> list[Answer]:
        """Known answers that make the choice, and keep the budgets."""
        left = set(task.allowed)
        legal = (a for a in self.answers if left.issuperset(a) and task.problem.is_legal(a))
        return [a for a in legal if self.problem.keeps(a, self.budget)]

    def _worth(self, answer: Answer) -> int:
        return self.problem.worth(answer, self.weights)

    def solve(
        self, task: Task, cap: int | None, seconds: float, *, nearest: bool = False
    ) -> Minimum:
        """The best answer among the options that may be worth at most `cap`.

        nearest: of those that are worth so little, the one with the fewest other dispatches.
        """
        kept = task.options(cap, self._rest)
        small = task.problem.restricted(kept)
        if small.forced == ():
            return Minimum("infeasible")
        number = {i: n for n, i in enumerate(kept)}
        here = (tuple(number[i] for i in a) for a in self.answers if all(i in number for i in a))
        hints = tuple(a for a in here if small.is_legal(a))
        deadline = time.monotonic() + seconds
        asked = Objective(self.weights, self.budget)
        if nearest and cap is not None:
            small = _counting(small, [i not in self._own for i in kept])
            (goal,) = self.weights
            caps = self.budget | {goal: min(cap, self.budget.get(goal, cap))}
            asked = Objective({CHANGES: 1}, caps)
        search = Search(small, self.budget, deadline, self.seed, hints)
        found = search.minimise(asked, None, seconds)
        if found.answer is None:
            return found
        answer = tuple(kept[i] for i in found.answer)
        self.answers.append(answer)
        return replace(found, answer=answer)

    @cached_property
    def _own(self) -> frozenset[int]:
        """Options of the chosen program."""
        return frozenset(i for a in self.assembly.locate(self.chosen.groups) for i in a)

    @cached_property
    def _chosen_worth(self) -> int:
        return sum(w * self.chosen.goal(g).value for g, w in self.weights.items())

    def _delta(self, value: int) -> int:
        chosen = self._chosen_worth
        if self.goal == WEIGHTED:
            return (value - chosen) * 1_000_000 // max(chosen, 1)
        return value - chosen

    # ---- questions as problems ---------------------------------------------------------------
    def task(self, question: Question) -> Task:
        every = tuple(range(len(self.problem.options)))
        if question.kind == "without":
            allowed = self._without(question.subject)
            return Task(self.problem, allowed, self._relaxed, self._least(self._relaxed))
        ways = {
            "node": self._with_node,
            "written": self._written,
            "inside": self._inside,
            "resident": self._resident,
        }
        forced = ways[question.kind](question.subject)
        lifted = self._relaxed and _lifted(self._relaxed, forced)
        problem = replace(self.problem, forced=forced)
        return Task(problem, every, lifted, self._least(lifted))

    def _least(self, relaxed: Relaxation | None) -> int:
        """No choice makes better what the search has proven."""
        proven = 0 if self.goal == WEIGHTED else self.chosen.goal(self.goal).bound
        return proven if relaxed is None else max(proven, relaxed.bound + self._rest)

    def _without(self, node: int) -> tuple[int, ...]:
        """Options that do not compute an e-node, or do not read what it gives ahead of time."""
        pool = self.assembly.pool
        buffers = {pool.space.buffer[c] for c in pool.space.outputs[node]}
        kept = buffers if pool.is_ahead_node(node) else set[int]()
        both = enumerate(zip(self.assembly.candidates, self.problem.options, strict=True))
        return tuple(
            i for i, (c, o) in both if node not in c.members and kept.isdisjoint(o.resident)
        )

    def _with_node(self, node: int) -> Forced:
        found = []
        for i in self._holders.get(node, ()):
            served = self._served(i, frozenset((node,)))
            if served:
                found.append((i, served))
        return tuple(found)

    def _written(self, eclass: int) -> Forced:
        b = self.assembly.pool.space.buffer[eclass]
        return tuple((i, (b,)) for i in self.problem.writers.get(b, ()))

    def _resident(self, eclass: int) -> Forced:
        b = self.assembly.pool.space.buffer[eclass]
        return tuple((i, self.problem.options[i].writes) for i in self.problem.keepers.get(b, ()))

    def _inside(self, eclass: int) -> Forced:
        space = self.assembly.pool.space
        value = space.value[eclass]
        found = []
        for i, (c, o) in enumerate(
            zip(self.assembly.candidates, self.problem.options, strict=True)
        ):
            makers = frozenset(m for m in c.members if value in space.computes((m,)))
            if not makers or any(space.value[b] == value for b in o.writes):
                continue
            served = self._served(i, makers)
            if served:
                found.append((i, served))
        return tuple(found)

    @cached_property
    def _holders(self) -> dict[int, list[int]]:
        """Per e-node: the options that compute it."""
        found: dict[int, list[int]] = {}
        for i, c in enumerate(self.assembly.candidates):
            for m in c.members:
                found.setdefault(m, []).append(i)
        return found

    def _served(self, option: int, nodes: frozenset[int]) -> tuple[int, ...]:
        """What an option writes that depends on these members."""
        space = self.assembly.pool.space
        touched: set[int] = set()
        for m in self.assembly.candidates[option].members:
            if m in nodes or not touched.isdisjoint(space.operands[m]):
                touched.update(space.buffer[c] for c in space.outputs[m])
        return tuple(b for b in self.problem.options[option].writes if b in touched)


def _counting(problem: ExtractionProblem, is_other: Sequence[bool]) -> ExtractionProblem:
    """The problem with a goal that counts options of this kind."""
    both = zip(problem.options, is_other, strict=True)
    options = tuple(replace(o, adds=(*o.adds, int(other))) for o, other in both)
    return replace(problem, options=options, linear=(*problem.linear, CHANGES))


def _reached(found: Minimum, cap: int | None) -> int:
    """The bound a solve proves that looked at all answers worth at most `cap`."""
    if cap is None:
        return found.bound
    return cap + 1 if found.status == "infeasible" else min(found.bound, cap + 1)


def _lifted(r: Relaxation, forced: Forced) -> Relaxation:
    """The relaxation's bound with the cheapest forced option in, on top of any other one.

    Every chosen option adds at least its reduced cost to the bound; so does a forced one.
    """
    among = {i for i, _ in forced}
    least = min((r.reduced[i] for i in among), default=0.0)
    reduced = tuple(x - least if i in among else x for i, x in enumerate(r.reduced))
    return replace(r, least=r.least + least, reduced=reduced)


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
    """What is needed to price choices of a run; assembles its problem once.

    enough: when (of time.monotonic()) no further candidates are looked for. OutOfTime if the
    deadline it is under leaves no time to state the problem.
    """
    asked = dict.fromkeys([*(g.name for g in goals), *dict(target.budget)])
    sides = Space(egraph, target.padding), target, False, linear_goals(asked)
    assembly = assemble(*sides, keep_all=True, enough=enough, asked=frozenset(asked))
    budget = dict(target.budget)
    first = goals if goals[0].weight is not None else goals[:1]
    if "memory" in {*budget, *(g.name for g in first)}:
        assembly = assembly.reordered(chosen.groups)
    reference = {n: r.value for n, r in (baseline or chosen).goals}
    if not assembly.locate(chosen.groups):  # it runs in an order of its own
        assembly = assembly.reordered(chosen.groups)
    known = list(assembly.locate(chosen.groups))
    return Counterfactuals(assembly, budget, goals, chosen, reference, seed, known)
