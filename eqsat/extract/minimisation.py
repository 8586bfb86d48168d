"""One objective minimised within caps, in any order: its least value, and the best answer for it.

Questions are asked of the choice without an order: what is proven of it holds in every order of
every answer. Its relaxation bounds a sum; a good answer is looked for among the columns near that
bound; a column whose reduced cost lifts the bound above the best answer is left out; what is left
goes to CP-SAT. An answer whose dispatches wait for each other is cut (`choice.legal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer, Barred, Columns
from eqsat.extract.choice.legal import circle, is_legal, presolved, pruned
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.choice.relax import OPEN, Caps, Least, Remainder, relaxation
from eqsat.extract.choice.statement import Effort, Statement, solve
from eqsat.extract.memory.leastpeak import PAIRS, InAnyOrder, peak, unordered_pairs
from eqsat.extract.memory.memoryfilter import Fits
from eqsat.extract.ragged import Ints
from eqsat.model.deadline import OUT_OF_TIME, elapsed, tick
from eqsat.model.diag import fail

if TYPE_CHECKING:
    from eqsat.extract.minimiser import Minimiser

NEAR_WORK = 5.0  # deterministic time of that look, so that its answer never depends on the clock
ROUNDS = 12  # answers that keep no cap of bytes and are barred, before a gap is left


@dataclass
class Minimisation:
    """One question; `bound` and `best` are what is known so far."""

    of: Minimiser
    weights: dict[str, int]
    caps: dict[str, int]
    end: float
    is_look: bool
    most: int = OPEN  # answers worth more are not asked for
    bound: int = 0
    proof: str = "search"
    best: Answer | None = None
    over: Answer | None = None  # one that keeps no cap of bytes, though its sums do

    @property
    def seconds(self) -> float:
        return max(self.end - elapsed(), 0.1)

    @property
    def sums(self) -> dict[str, int]:
        """Caps that have nothing to do with the order."""
        return {g: v for g, v in self.caps.items() if g != MEMORY}

    def worth(self, answer: Answer) -> int:
        return self.of.choice.worth(answer, self.weights)

    @property
    def value(self) -> int:
        """The worth of the best answer."""
        return OPEN if self.best is None else self.worth(self.best)

    @property
    def is_met(self) -> bool:
        return self.best is not None and self.value <= self.bound

    def offer(self, answer: Answer | None) -> bool:
        """Whether an answer is the best so far."""
        if answer is None or not self.of.choice.keeps(answer, self.caps):
            return False
        if self.best is not None and self.worth(answer) >= self.value:
            return False
        self.best = answer
        return True

    def raise_to(self, bound: int, proof: str) -> None:
        if bound > self.bound:
            self.bound, self.proof = bound, proof

    # ---- the ways to ask -----------------------------------------------------------------------
    def answered(self, places: Ints, best: Answer | None) -> Least:
        self.offer(best)
        if len(self.weights) == 1:
            (goal,) = self.weights
            if self.weights[goal] == 1 and goal in self.of.proven:
                self.raise_to(*self.of.proven[goal])
                if self.is_met:
                    return self.as_least("optimal", places)
        if self.caps.get(MEMORY, OPEN) < OPEN:
            fitting = self.of.fitting(places, self.caps[MEMORY])
            if fitting is None:
                return Least("infeasible")
            places = fitting
        if self.weights == {MEMORY: 1}:
            return peak(self, places)
        return self._sum(places) if MEMORY not in self.weights else self._mixed(places)

    def as_least(self, status: str, places: Ints | None, stage: Remainder | None = None) -> Least:
        if self.is_met:
            status = "optimal"
        bound = min(self.bound, self.value)
        proof = self.proof if self.is_met else "search"
        if stage is None:
            return Least(status, bound, proof, self.best, places)
        sides = stage.places, stage.relaxed, stage.most
        return Least(status, bound, proof, self.best, *sides)

    def _sum(self, places: Ints) -> Least:
        stage = self.stage(places)
        if stage is None:
            if self.best is not None and self.best.among(places) is not None:
                raise fail("E901", "the rows exclude an answer that is there", exit_code=4)
            return Least("infeasible")
        if stage.bound > self.most:
            return Least("infeasible", stage.bound)
        for goal, cap in self.caps.items():
            if self.weights == {goal: 1} and stage.bound > cap:
                return Least("infeasible", stage.bound)
        self.raise_to(stage.bound, "relaxation")
        status = self.searched(stage)
        if status == "gap" and self.over is not None and not self.is_met:
            status = self._with_bytes(stage)
        if status == "infeasible":
            return (
                Least("infeasible") if self.best is None else self.as_least("optimal", None, stage)
            )
        return self.as_least(status, None, stage)

    def stage(self, places: Ints) -> Remainder | None:
        """The columns left within the caps; None if that is nothing, which is proven.

        What does not fit into a cap of bytes lifts the bound, and what the bound rules out leaves
        others no room.
        """
        stage, cap = self._relaxed(places), self.caps.get(MEMORY)
        for _ in range(4 if cap is not None else 0):
            if stage is None or self.best is None:
                break
            near = stage.places[stage.relaxed.within(self.value)]
            if len(near) > 0.75 * len(stage.places):
                break  # so little less is not worth its time
            fitting = near[Fits(self.of.small(near)).within(cap or 0)]
            after = self._relaxed(fitting) if len(fitting) else None
            if after is None:
                break  # nothing better than the best answer is left: the last solve shows it
            stage = replace(after, most=self.value)
        return stage

    def _relaxed(self, places: Ints) -> Remainder | None:
        small = self.of.small(places)
        useful = presolved(small)
        places, small = places[useful], small.take(useful)
        if not small.has_writers:
            return None
        relaxed = relaxation(small, self.weights, self.sums)
        if relaxed is None and self.sums:  # no proof where sums round
            relaxed = relaxation(small, self.weights)
        return None if relaxed is None else Remainder(places, small, relaxed)

    # ---- looks, then all that is left ----------------------------------------------------------
    def searched(self, stage: Remainder) -> str:
        """optimal | infeasible | gap | why it ended before; without rows of bytes."""
        looked: tuple[str, int, Ints] = ("", 0, self.of.every[:0])
        for cap, near in self._near(stage):
            if self.is_met or elapsed() > self.end:
                break
            if self.best is not None and self.value <= cap:
                break  # the last solve below proves as much
            status, bound = self.solved(stage, near, NEAR_WORK)
            looked = status, bound, near
            if status == "optimal" and stage.bound < bound <= cap and self.proves:
                self.raise_to(bound, "search")  # whatever is worth so little is among them
                return "gap"
        if self.is_met:
            return "optimal"
        left = stage.relaxed.within(self.value) if self.best is not None else None
        left = np.arange(len(stage.choice)) if left is None else left
        # a look has no last solve among more columns
        is_enough = len(left) > 4_000 if self.is_look else self.of.is_ended_by_gaps
        if is_enough and self.best is not None:
            return "gap"
        status, bound, near = looked
        is_told = status in ("optimal", "infeasible") and np.isin(left, near).all()
        if not is_told:
            status, bound = self.solved(stage, left, NEAR_WORK if self.is_look else None)
        if not self.proves:
            return "gap" if self.best is not None else "unknown"
        if status == "infeasible":
            if self.best is not None:
                self.raise_to(self.value, "search")
            return status
        self.raise_to(min(bound, self.value), "search")
        return "gap" if status in ("optimal", "gap") else self.of.limits.ended

    @property
    def proves(self) -> bool:
        return not self.of.is_about_alike

    def _near(self, stage: Remainder) -> Iterator[tuple[int, Ints]]:
        """Few columns that hold a good answer: the relaxation's own, then those near its bound.

        Each with the cap that all answers worth no more than that are made of these columns.
        """
        last = len(stage.relaxed.support)
        if last or not len(stage.choice):
            yield -1, stage.relaxed.support
        # so far above its bound the best answer is looked for first
        for spread in (0.0, 0.001, 0.01, 0.1):
            cap = int(stage.bound * (1 + spread))
            near = stage.relaxed.within(cap)
            if last < len(near) <= 20_000:  # columns that such a look may have
                last = len(near)
                yield cap, near

    def solved(self, stage: Remainder, rows: Ints, work: float | None) -> tuple[str, int]:
        """How a solve among these columns of a stage ended, and what it proves of them."""
        # between answers that are equal in all goals it is decided among few columns
        if TIE_BREAK in self.weights and len(rows) > 3_000:
            return "unknown", 0
        return self.solve(stage.places[rows], self.sums, work)[:2]

    def solve(
        self,
        places: Ints,
        caps: Caps,
        work: float | None,
        bytes_of: Callable[[Columns], Callable[[Statement], None]] | None = None,
        barred: tuple[Barred, ...] = (),
    ) -> tuple[str, int, Answer | None]:
        """(status, bound, answer) of CP-SAT among these places; circles are cut as they occur.

        bytes_of: states peak memory. barred: in the numbers of the whole choice.
        """
        hint = None if self.best is None or bytes_of is not None else self.best.among(places)
        for _ in range(40):  # circles cut before a question is left open
            small = replace(self.of.choice, barred=(*self.of.cuts, *barred, *self.of.choice.barred))
            small = small.take(places)
            statement = Statement(small)
            _state(statement, self.weights, caps, None if bytes_of is None else bytes_of(small))
            effort = Effort(self.seconds, self.of.limits.seed, work, self.of.limits.stop)
            tick()
            solved = solve(statement, self.weights, effort, None if hint is None else hint.columns)
            if not solved.columns and len(small.facts.roots):
                if solved.status == "infeasible" and hint is not None:
                    return "unknown", 0, None  # a solver that says so is wrong
                return solved.status, solved.bound, None
            if not is_legal(small, solved.columns):
                raise fail("E901", "the solver's answer breaks the choice's rules", exit_code=4)
            columns = tuple(places[list(pruned(small, solved.columns))].tolist())
            answer = self.of.ordered(columns)
            if answer is None:
                cut = circle(self.of.choice, columns)
                assert cut is not None
                self.of.cuts.append(cut)
                continue
            self.offer(answer)
            if not self.of.choice.keeps(answer, self.caps):
                self.over = answer
            status = "optimal" if solved.status == "optimal" else OUT_OF_TIME
            return status, solved.bound, answer
        return "gap", 0, None

    # ---- a sum under a cap of bytes ------------------------------------------------------------
    def _with_bytes(self, stage: Remainder) -> str:
        """A solve under the cap of bytes, which the best answers do not keep by themselves.

        Of the answers worth so much the one that converts least is looked at first: it keeps little
        beside. Then rows say what is live when, at last with an order of the items.
        """
        assert self.over is not None
        self._tied(stage)
        return self._below(stage, is_asked=True)

    def _below(self, stage: Remainder, is_asked: bool) -> str:
        """With rows of bytes, again while answers get better; is_asked: only for better ones."""
        for _ in range(ROUNDS):
            if self.is_met or not self.proves or self.is_look:
                break
            places, worth = stage.places, None
            if self.best is not None:
                places = places[stage.relaxed.within(self.value)]
                worth = self.value - 1 if is_asked else None
            status = self.with_rows(places, worth)
            if status != "better":
                return status
        return "gap"

    def _tied(self, stage: Remainder) -> None:
        assert self.over is not None
        if len(self.weights) > 1 or TIE_BREAK in self.weights:
            return
        (goal,) = self.weights
        worth = self.worth(self.over)
        near = stage.places[stage.relaxed.within(worth)]
        least = self.of.least(
            {TIE_BREAK: 1}, self.sums | {goal: worth}, among=near, seconds=self.seconds,
            is_look=True,
        )  # fmt: skip
        self.offer(least.best)

    def with_rows(self, places: Ints, worth: int | None) -> str:
        """With rows of bytes, of answers worth at most so much: those of any order, then pairs."""
        caps = dict(self.caps)
        if worth is not None and len(self.weights) == 1:
            (goal,) = self.weights
            caps[goal] = min(caps.get(goal, worth), worth)
        small = self.of.small(places)
        useful = presolved(small)
        places, fits = places[useful], Fits(small.take(useful))
        if not fits.choice.has_writers:
            return "infeasible"
        items = fits.facts
        # with more items of which no order is known, an answer without one comes first
        pairs, status = unordered_pairs(items), "gap"
        ways = ((), pairs) if len(pairs) > 300 else (pairs,)
        for some in ways[:1] if len(pairs) > PAIRS else ways:
            status = self._asked_in_any_order(places, caps, InAnyOrder(items, caps, pairs=some))
            if status != "gap" or self.is_met:
                break
        return status

    def _asked_in_any_order(self, places: Ints, caps: Caps, rows: InAnyOrder) -> str:
        barred: tuple[Barred, ...] = ()
        for _ in range(ROUNDS):
            before = self.best
            status, bound, answer = self.solve(places, caps, None, lambda _: rows, barred)
            if status == "infeasible":
                if self.best is not None:
                    self.raise_to(self.value, "search")
                return status
            if not barred:
                self.raise_to(min(bound, self.value), "search")
            if answer is None:
                return status if status == "gap" else self.of.limits.ended
            if self.best is not before:
                return "better"
            # an answer of more dispatches is not barred alone: there are too many like it
            if len(answer.columns) > 24 or not self._is_worse(answer):
                return "gap"
            barred = (*barred, (answer.columns, len(answer.columns) - 1))
        return "gap"

    def _is_worse(self, answer: Answer) -> bool:
        """Whether no order of these dispatches is a better answer."""
        least = replace(answer, peak_bytes=answer.least_bytes)
        is_over = not self.of.choice.keeps(least, self.caps)
        return is_over or (self.best is not None and self.worth(least) >= self.value)

    # ---- a weighted sum with memory ------------------------------------------------------------
    def _mixed(self, places: Ints) -> Least:
        """Σ weight · goal of which memory is one."""
        small = self.of.small(places)
        useful = presolved(small)
        places, fits = places[useful], Fits(small.take(useful))
        if not fits.choice.has_writers:
            return Least("infeasible")
        rest = self.weights[MEMORY] * fits.least_bytes
        sums = {g: w for g, w in self.weights.items() if g != MEMORY}
        relaxed = relaxation(
            fits.choice, self.weights, self.sums, InAnyOrder(fits.facts, self.caps, is_short=True)
        )
        alone = relaxation(fits.choice, sums, self.sums) if sums else None
        if alone is not None and (relaxed is None or alone.plus(rest).bound > relaxed.bound):
            relaxed = alone.plus(rest)
        if relaxed is None:
            return Least("infeasible")
        stage = Remainder(places, fits.choice, relaxed)
        self.raise_to(relaxed.bound, "relaxation")
        if self.best is None:
            first = self.of.least(sums or {"time": 1}, self.caps, among=places, is_look=True)
            self.offer(first.best)
        status = self._below(stage, is_asked=False)
        if status == "infeasible" and self.best is not None:
            status = "optimal"
        return self.as_least(status, None, stage)


def _state(
    statement: Statement, weights: Caps, caps: Caps, state: Callable[[Statement], None] | None
) -> None:
    """The goals that are no sums, and the caps."""
    asked = dict.fromkeys((*weights, *caps))
    for goal in asked:
        if goal in statement.choice.facts.weight_rows:
            statement.bound_weights(goal, caps.get(goal))
    if state is not None:
        state(statement)
    for goal, cap in caps.items():
        if goal != MEMORY or state is not None:
            statement.cap(goal, cap)
