"""What the relaxation without an order rules out is never stated under one.

The first goal is minimised without an order: its relaxation bounds every answer in every order, and
the options near that bound hold an answer that is good. Whatever lifts the bound above that answer
is in no better one. What is left, a few options of a hundred, is the problem from then on.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.extract.candidates.assemble import Assembly, Choices
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.narrowbytes import Unkept, fitting_options
from eqsat.extract.ordered import SearchLimits, Sequenced, greedily, in_best_order
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.problem import Answer
from eqsat.extract.solve.relax import MEMORY
from eqsat.extract.solve.requests import limit, weigh
from eqsat.extract.survivors import narrowed
from eqsat.model import progress
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import OutOfTime, whatever_it_takes
from eqsat.model.selection import GoalRequest, Group, Selection, short_of_time

RELAXED = 0.75  # of it for relaxations; then an answer near the last one is looked for


@dataclass(frozen=True)
class Narrowed:
    """The options that answers no worse than the best known one hold, under its order.

    `hints` is that answer. `least` has per goal a proven lower bound in any order, and what proves
    it. is_refused: no answer keeps the budgets, in any order; the problem is without one.
    """

    assembly: Assembly
    hints: tuple[Answer, ...]
    least: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    is_refused: bool = False


def narrow(
    choices: Choices,
    goals: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: SearchLimits,
    baseline: Selection | None = None,
    start: Sequenced | None = None,
) -> Narrowed | None:
    """The problem without what no answer as good as the best known one holds, if that is known.

    Answers are compared by the first goal, within its tolerance, or by the weighted sum. None where
    the first goal is about kept weights, where such a budget comes with one of memory, and for
    weights where there is no baseline to weigh by. OutOfTime if there is no time to state the
    problem without an order.
    """
    first, sums = goals[0], choices.variants.goals.keys()
    if (
        first.weight is None
        and MEMORY in {first.name, *budget}
        and budget.keys() <= {MEMORY, *sums}
    ):
        return _narrow_bytes(choices, goals, budget, limits, baseline)
    reference = {} if baseline is None else {n: r.value for n, r in baseline.goals}
    weights = {first.name: 1} if first.weight is None else weigh(goals, reference)
    if first.weight is not None and baseline is None:
        return None
    if sums.isdisjoint(weights) or MEMORY in budget:
        return None

    def loose(value: int) -> int:
        return value if first.weight is not None else limit(first, value, reference)

    best = _Best(choices, weights, budget, limits)
    if baseline is not None:
        best.offer(sum(w * reference[g] for g, w in weights.items()), baseline.groups)
    if start is not None:
        best.offer(start.worth(weights), start.groups)
    known = best.value if best.groups else None
    enough = time.monotonic() + RELAXED * limits.seconds
    try:
        with uncollected():
            later = [g.name for g in goals[1:]] if first.weight is None else []
            sides = best.find, later, loose, enough
            found = narrowed(choices.variants, weights, budget, known, *sides)
    except OutOfTime:
        if not best.options:
            raise
        return best.alone()
    if found is None or not best.groups:
        return None
    assembly, least = best.ordered(found.options), dict(found.alone)
    if not assembly.locate(best.groups) and best.found_again(found.options):
        assembly = best.ordered(found.options)
    if first.weight is None:
        least[first.name] = found.bound
        told = 0 if short_of_time(choices.cuts) else found.bound
        progress.found(first.name, best.value, told)
    proven = {g: (bound, "relaxation") for g, bound in least.items()}
    hints = assembly.locate(best.groups)
    return Narrowed(assembly, hints, proven) if hints else None


def _narrow_bytes(
    choices: Choices,
    goals: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    limits: SearchLimits,
    baseline: Selection | None,
) -> Narrowed | None:
    """The same, by memory: first, or under a budget of it."""
    found = fitting_options(choices, goals, budget, limits, baseline)
    if found is None:
        return None
    if isinstance(found, Unkept):
        return Narrowed(found.assembly, (), is_refused=True)
    assembly = choices.among(found.options).under(found.best.groups)
    return Narrowed(assembly, assembly.locate(found.best.groups), found.least)


@dataclass
class _Best:
    """The best answer by some goals, as groups in an order of theirs."""

    choices: Choices
    weights: dict[str, int]
    budget: Mapping[str, int]
    limits: SearchLimits
    value: int = 0
    groups: Sequence[Group] = ()
    is_looked_for: bool = False
    options: tuple[Variant, ...] = ()  # among which the answer was found, if it was
    settled: list[frozenset[Hashable]] = field(default_factory=list)  # that hold nothing better

    def offer(self, value: int, groups: Sequence[Group], options: tuple[Variant, ...] = ()) -> None:
        if not self.groups or value < self.value:
            self.value, self.groups, self.options = value, groups, options

    def find(self, options: tuple[Variant, ...]) -> int | None:
        """What the best answer is worth, after a look among these in the program's order.

        That is a quick one, for sums over dispatches. What memory adds does not come closer to its
        bound by further looks of this kind, so one is enough there.
        """
        sums = {g: w for g, w in self.weights.items() if g in self.choices.variants.goals}
        asked = frozenset([(v.candidate.members, v.candidate.reads, v.writes) for v in options])
        is_settled = any(asked <= known for known in self.settled)
        is_asked = not self.is_looked_for or len(sums) == len(self.weights)
        if is_asked and not is_settled and self._look(options, sums) in ("optimal", "infeasible"):
            self.settled.append(asked)
        return self.value if self.groups else None

    def found_again(self, options: tuple[Variant, ...]) -> bool:
        """Whether these, which hold answers as good as the best one, hold one that is found.

        The best one itself, such as the baseline, may have layouts that are not among them.
        """
        self.groups, known = (), self.value
        self._look(
            options, {g: w for g, w in self.weights.items() if g in self.choices.variants.goals}
        )
        return bool(self.groups) and self.value <= known

    def _look(self, options: tuple[Variant, ...], sums: dict[str, int]) -> str:
        """How the look ended."""
        assembly = self.choices.among(options).ordered()
        hints = greedily(assembly, next(iter(sums)))
        search = replace(self.limits.search(assembly, self.budget, *hints), is_look=True)
        asked = Objective(sums, dict(self.budget))
        found = search.tried(asked, None, self.limits.seconds)
        best = None if found.answer is None else in_best_order(assembly, found.answer)
        if best is not None:
            self.is_looked_for = True
            self.offer(best.worth(self.weights), best.groups, options)
        return found.status

    def ordered(self, options: tuple[Variant, ...]) -> Assembly:
        """These under the order of the best answer."""
        return self.choices.among(options).under(self.groups)

    def alone(self) -> Narrowed:
        """What the best answer was found among, and nothing else."""
        choices = self.choices.cut_short.among(self.options)
        with whatever_it_takes(), uncollected():
            assembly = choices.under(self.groups)
            return Narrowed(assembly, assembly.locate(self.groups))
