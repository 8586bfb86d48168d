"""Proven lower bounds in any order of the dispatches, and better answers in other orders.

The problem without an order (`solve.anyorder`) is a relaxation: what it proves holds in every order
of every answer. An answer of it is one if its dispatches can be put in an order that keeps the
caps; what cannot is barred, and the question is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.ordered import SearchLimits, Sequenced, in_best_order
from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.fewest import Fewest
from eqsat.extract.solve.goals import Search
from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.extract.solve.objective import Objective
from eqsat.extract.solve.outcome import Minimum
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.model.cycles import uncollected
from eqsat.model.selection import Group

MEMORY = "memory"  # the goal whose value depends on the order
ROUNDS = 12  # questions with something more barred, before a gap is left
FEW = 24  # dispatches: an answer of more is not barred alone, there are too many like it
MANY = 2_000  # options: with more, a peak is not searched for that is hardly less
SOME = 200  # options: with fewer, every byte of a peak is proven
FEW_PAIRS = 300  # items of which no order is known: with more, an answer without one comes first
CLOSE = 10_000  # less by more than one part of so many
LOOKS = 1  # for an answer among what fits into few bytes, in vain
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
        end, told = time.monotonic() + seconds, Least("gap")
        if weights == {MEMORY: 1} and value is not None:
            told = self._fewest(value, caps, end)
            if told.status != "open":
                return told
        if self.search.problem.tied:  # a search would be about answers whose blocks are alike
            return replace(told, status="gap")
        start, search = self._start(weights, known), self.search
        for asked in self._questions(weights, self._limits(weights, caps, value, start)):
            found, search = self._asked(search, asked, caps, value, start, end)
            told = replace(found, bound=max(found.bound, told.bound), best=found.best or told.best)
            if found.status in ("proven", "better") or self._is_enough(asked, value, told):
                break
        return told

    def _limits(
        self,
        weights: dict[str, int],
        caps: Mapping[str, int],
        value: int | None,
        start: Answer | None,
    ) -> dict[str, int]:
        """The caps, and what each goal is at most in answers that are worth less."""
        limits = dict(caps)
        if value is None or start is not None:
            return limits
        worth = value - 1
        most = self._most(weights, worth) if len(weights) > 1 else dict.fromkeys(weights, worth)
        return limits | {g: min(limits.get(g, n), n) for g, n in most.items()}

    def _questions(self, weights: dict[str, int], limits: dict[str, int]) -> Iterator[Objective]:
        """The same question, the cheapest way to put it first.

        Options that do not fit are left out, so a sum rarely needs rows of bytes, and these still
        more rarely an order of items of which necessity tells none.
        """
        if MEMORY not in {*weights, *limits}:
            yield Objective(weights, limits, self.among)
            return
        if MEMORY not in weights:
            kept = self._among(self.search.fitting(limits[MEMORY]))
            if kept or not self.search.problem.roots:
                yield Objective(weights, {g: v for g, v in limits.items() if g != MEMORY}, kept)
        problem = self.free.problem
        assert isinstance(problem, AnyOrder)
        if len(problem.unordered) > FEW_PAIRS:
            yield Objective(weights, limits, self.among)
        yield Objective(weights, limits, self.among, pairs=True)

    def _among(self, kept: tuple[int, ...]) -> tuple[int, ...]:
        return kept if self.among is None else tuple(sorted({*kept}.intersection(self.among)))

    def _asked(
        self,
        search: Search,
        asked: Objective,
        caps: Mapping[str, int],
        value: int | None,
        start: Answer | None,
        end: float,
    ) -> tuple[Least, Search]:
        """The answer to one question, and the search with what is no better answer barred."""
        bound, near, weights = 0, None, asked.weights
        for n in range(ROUNDS):
            found = search.minimise(asked, start, end - time.monotonic())
            if found.status == "infeasible":
                return Least("proven", value or 0), search
            if value is None or start is not None:  # else what is worth as much is left out
                self.last = found
            bound = max(bound, found.bound)
            if value is not None and bound >= value:
                return Least("proven", value, found.proof), search
            if found.answer is None or (found.answer == start and found.status != "optimal"):
                return Least(found.status, bound), search
            best = in_best_order(self.free, found.answer)
            is_kept = best is not None and best.keeps(caps)
            if best and is_kept and (value is None or best.worth(weights) < value):
                return Least("better", bound, found.proof, best), search
            near = near or best
            barred = self._barred(found.answer, best, weights, caps, value)
            is_long = MEMORY in weights and len(found.answer) > FEW
            if barred is None or (is_long and n + 1 >= LONG):
                break
            assert isinstance(search.problem, AnyOrder)
            search = replace(search, problem=search.problem.without(barred))
        return Least("gap", bound, best=near), search

    def _is_enough(self, asked: Objective, value: int | None, told: Least) -> bool:
        """Whether a gap of a large program's peak is so small that nothing more is asked."""
        if asked.weights != {MEMORY: 1} or value is None:
            return False
        return len(self.free.problem.options) >= SOME and _is_close(told.bound, value)

    @property
    def is_reference(self) -> bool:
        """Whether it is about a large input program alone, of whose peak nobody asks a proof."""
        return self.free.pool.input_only and len(self.free.problem.options) >= SOME

    # ---- the least peak ----------------------------------------------------------------------
    def _fewest(self, value: int, caps: Mapping[str, int], end: float) -> Least:
        """What is said of a peak without rows of bytes; `open` if they have to be asked.

        Caps between what is known to be too little and the known peak are tried: what fits into
        them has no answer within the caps on sums, or one of which the best order is looked at.
        """
        problem, peak = self.free.problem, _Peak(value)
        assert isinstance(problem, AnyOrder)
        sums = {g: v for g, v in caps.items() if g in problem.linear}
        if Fewest(problem, problem, sums).is_least(value):
            return Least("proven", value)
        peak.none = peak.hard = problem.fits.least_bytes - 1
        while not (peak.is_settled or _is_close(peak.hard + 1, peak.value)):
            if time.monotonic() > end:
                break
            self._try(peak, sums, caps, end)
        least = -(-(peak.none + 1) // problem.byte_unit) * problem.byte_unit
        if peak.best is not None:
            return Least("better", least, best=peak.best)
        is_told = _is_close(least, value) and len(problem.options) >= MANY
        return Least("gap" if is_told or self.is_reference else "open", least)

    def _try(self, peak: _Peak, sums: dict[str, int], caps: Mapping[str, int], end: float) -> None:
        """One cap more, the lowest first."""
        cap = peak.cap
        kept = self._among(self.search.fitting(cap))
        status, best = self._look(kept, sums, cap, end) if kept else ("infeasible", None)
        if status == "infeasible" and self._is_proof(kept):
            peak.none = max(peak.none, cap)
        if best is not None and best.keeps(caps) and best.peak_bytes < peak.value:
            peak.looks = 0
            peak.best, peak.value = best, best.peak_bytes
        if best is None or best.peak_bytes > cap:
            peak.hard = cap
            peak.looks += status != "infeasible"

    def _is_proof(self, kept: tuple[int, ...]) -> bool:
        """Whether no answer among these is none at all; a search is about alike equal blocks."""
        return bool(self.search.problem.roots) and not (kept and self.search.problem.tied)

    def _look(
        self, kept: tuple[int, ...], sums: dict[str, int], cap: int, end: float
    ) -> tuple[str, Sequenced | None]:
        """How a look among these ended, and the answer of the least peak that it found."""
        status, best = "", None
        search = replace(self.search, is_look=True)
        for goal in ("time", TIE_BREAK):
            found = search.minimise(Objective({goal: 1}, sums, kept), None, end - time.monotonic())
            status = status or found.status
            there = None if found.answer is None else in_best_order(self.free, found.answer)
            if there is not None and (best is None or there.peak_bytes < best.peak_bytes):
                best = there
            if best is None or best.peak_bytes <= cap:
                break
        return status, best

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


@dataclass
class _Peak:
    """The least peak known, and caps: `none` is too little; nothing was found within `hard`."""

    value: int
    none: int = 0
    hard: int = 0
    best: Sequenced | None = None
    is_tried: bool = False
    looks: int = 0  # without a better answer since the last one

    @property
    def is_settled(self) -> bool:
        return self.looks >= LOOKS

    @property
    def cap(self) -> int:
        """What is tried next: first the least there may be."""
        first, self.is_tried = not self.is_tried, True
        return self.hard + 1 if first else (self.hard + self.value) // 2


def _is_close(least: int, value: int) -> bool:
    """Whether a peak is hardly less."""
    return least >= value - value // CLOSE


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
