"""Proven lower bounds in any order of the dispatches, and better answers in other orders.

The problem without an order (`solve.anyorder`) is a relaxation: what it proves holds in every order
of every answer. An answer of it is one if its dispatches can be put in an order that keeps the
caps; what cannot is barred, and the question is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.ordered import SearchLimits, Sequenced, in_best_order
from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.fewest import Fewest
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Minimum
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.model.cycles import uncollected
from eqsat.model.selection import Group

MEMORY = "memory"  # the goal whose value depends on the order
ROUNDS = 12  # questions with something more barred, before a gap is left
FEW = 24  # dispatches: an answer of more is not barred alone, there are too many like it
MANY = 2_000  # options: with more, a peak is not searched for that is hardly less
CLOSE = 10_000  # less by more than one part of so many
LONG = 2  # questions about the memory of more dispatches: each is a solve of its own
Barred = tuple[tuple[int, ...], int]  # options, how many of them at most


@dataclass(frozen=True)
class Least:
    """What was asked for, at the least, in any order: `bound`, and what it is from (`proof`).

    status: better (an answer was found, `best`) | proven (no answer is worth less than the known
    one, or none keeps the caps) | gap (all was searched) | why the search ended before. With `gap`
    `best` may be an answer in an order that does not keep the caps.
    """

    status: str
    bound: int = 0
    proof: str = "search"
    best: Sequenced | None = None


@dataclass
class EveryOrder:
    """The problem without an order, asked goal by goal.

    `among`: options that answers within the caps so far hold, if that is known.
    """

    free: Assembly
    search: Search
    among: tuple[int, ...] | None = None
    last: Minimum | None = None  # of the last goal asked about

    @staticmethod
    def of(assembly: Assembly, budget: Mapping[str, int], limits: SearchLimits) -> EveryOrder:
        """OutOfTime if there is no time to state the problem."""
        with uncollected():
            free = assembly.unordered()
        return EveryOrder(free, limits.search(free, budget))

    def least(
        self,
        weights: dict[str, int],
        caps: Mapping[str, int],
        value: int | None,
        seconds: float,
        known: Sequence[Group] = (),
    ) -> Least:
        """What Σ weight · goal is at least within the caps, or an answer worth less than `value`.

        `known` is the answer that is worth `value`; without one any answer is better.
        """
        end, bound, near = time.monotonic() + seconds, 0, None
        search, limits, start = self.search, dict(caps), self._start(weights, known)
        if start is None and value is not None and len(weights) == 1:
            (goal,) = weights
            limits[goal] = min(limits.get(goal, value), value - 1)
        elif start is None and value is not None:
            for goal, most in self._most(weights, value - 1).items():
                limits[goal] = min(limits.get(goal, most), most)
        if weights == {MEMORY: 1} and value is not None and (told := self._told(value, caps)):
            return told
        if search.problem.tied:  # a search would be about answers whose blocks are alike
            return Least("gap")
        for n in range(ROUNDS):
            found = search.minimise(
                Objective(weights, limits, self.among), start, end - time.monotonic()
            )
            if found.status == "infeasible":
                return Least("proven", value or 0)
            self.last = found
            bound = max(bound, found.bound)
            if value is not None and bound >= value:
                return Least("proven", value, found.proof)
            if found.answer is None or (found.answer == start and found.status != "optimal"):
                return Least(found.status, bound)
            best = in_best_order(self.free, found.answer)
            is_kept = best is not None and best.keeps(caps)
            if best and is_kept and (value is None or best.worth(weights) < value):
                return Least("better", bound, found.proof, best)
            near = near or best
            is_long = MEMORY in weights and len(found.answer) > FEW
            barred = self._barred(found.answer, best, weights, caps, value)
            if barred is None or (is_long and n + 1 >= LONG):
                break
            more = (*search.problem.barred, barred)
            search = replace(search, problem=replace(search.problem, barred=more))
        return Least("gap", bound, best=near)

    def _told(self, value: int, caps: Mapping[str, int]) -> Least | None:
        """What is said of a peak without a search."""
        problem = self.search.problem
        assert isinstance(problem, AnyOrder)
        sums = {g: v for g, v in caps.items() if g in problem.linear}
        if Fewest(problem, problem, sums).is_least(value):
            return Least("proven", value)
        least = self._close(value)
        return Least("gap", least) if least else None

    def _close(self, value: int) -> int:
        """A proven lower bound, if a search could find a peak that is hardly less; else 0.

        Whether a large program could do with a few bytes less takes longest of all to prove; of a
        baseline nobody asks.
        """
        least, is_small = value - value // CLOSE, len(self.search.problem.options) < MANY
        is_asked = is_small and not self.free.pool.input_only
        if is_asked or not self.search.fitting(value - 1):
            return 0
        return 0 if self.search.fitting(least - 1) else least

    def hold(self, cap: int) -> None:
        """The goal that was minimised last has this upper bound from now on."""
        if self.last is not None and self.last.stage is not None:
            self.among = self.last.stage.within(cap)
        self.last = None

    def _most(self, weights: Mapping[str, int], worth: int) -> dict[str, int]:
        """What each goal is at most in answers worth so much: the others are at their least."""
        least = {g: w * self._least(g) for g, w in weights.items()}
        rest = worth - sum(least.values())
        return {g: max(rest + least[g], 0) // w for g, w in weights.items()}

    def _least(self, goal: str) -> int:
        """A proven lower bound, whatever the other goals."""
        if goal == MEMORY:
            return self.search.least_bytes
        relaxed = self.search.relaxation(goal) if goal in self.search.problem.linear else None
        return 0 if relaxed is None else relaxed.bound

    def _start(self, weights: Mapping[str, int], known: Sequence[Group]) -> Answer | None:
        """The known answer in the problem's numbers; its peak is not known there."""
        if MEMORY in weights or not known:
            return None
        return next(iter(self.free.locate(known)), None)

    def _barred(
        self,
        answer: Answer,
        best: Sequenced | None,
        weights: Mapping[str, int],
        caps: Mapping[str, int],
        value: int | None,
    ) -> Barred | None:
        """What keeps an answer from being found again; nothing if its best order is not known.

        Nor if it has many dispatches: whatever they have in common, others have too. A circle
        of dispatches that wait for each other goes with all others of its kind.
        """
        problem = self.free.problem
        if best is None:
            return circle(problem, answer)
        spare = best.peak_bytes - best.least_bytes
        least = best.worth(weights) - weights.get(MEMORY, 0) * spare
        is_over = best.least_bytes > caps.get(MEMORY, best.least_bytes)
        is_proven = is_over or (value is not None and least >= value)
        return (answer, len(answer) - 1) if is_proven and len(answer) <= FEW else None


def circle(problem: ExtractionProblem, answer: Answer) -> Barred:
    """Dispatches that wait for each other, and all options that could be in their places.

    One place is filled by whoever reads one buffer of the circle and writes the next. A buffer has
    one writer, so of n places n - 1 are filled at most.
    """
    writer = {b: i for i in answer for b in problem.options[i].writes}
    before = {
        i: [writer[b] for b in problem.options[i].reads if b in writer and writer[b] != i]
        for i in answer
    }
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        round_trip = error.args[1][:-1]  # each writes what the next one reads
    else:
        raise ValueError("the dispatches have an order")
    pairs = zip(round_trip, [*round_trip[1:], round_trip[0]], strict=True)
    handed = [
        min(b for b in problem.options[j].reads if writer.get(b) == i) for i, j in pairs
    ]  # from a dispatch to the next one
    places = [
        sorted(set(problem.readers[read]) & set(problem.writers[written]))
        for read, written in zip([handed[-1], *handed[:-1]], handed, strict=True)
    ]
    return tuple(i for place in places for i in place), len(places) - 1
