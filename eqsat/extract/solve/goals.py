"""Goals over one problem: in order of priority or weighted, under budgets; value and bound each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.cpsat import Effort, Request, solve
from eqsat.extract.solve.fewest import Fewest, is_most
from eqsat.extract.solve.fits import fitting
from eqsat.extract.solve.inorder import OPEN, by_priority, by_weights
from eqsat.extract.solve.linear import TIE_BREAK
from eqsat.extract.solve.objective import MEMORY, Objective
from eqsat.extract.solve.outcome import Minimum, Outcome, Restriction, at_places
from eqsat.extract.solve.presolve import presolve
from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.extract.solve.relax import Relaxation, relaxation
from eqsat.model.deadline import OutOfTime, tick, until
from eqsat.model.diag import fail
from eqsat.model.selection import GoalRequest
from eqsat.model.stopping import INTERRUPTED, OUT_OF_MEMORY, Stop

# how far above the relaxation's bound the best answer is looked for first
SPREADS = (0.0, 0.001, 0.01, 0.1)
MANY = 20_000  # options that such a look may have
NEAR_WORK = 5.0  # deterministic time of that look, so that its answer never depends on the clock
TIDY = 3_000  # options among which it is decided between answers that are equal in all goals
MANY_LEFT = 4_000  # options: a look has no last solve among more
LARGE = 2_000  # options: with more, the relaxation of memory takes as long as a search


@dataclass(frozen=True)
class Search:
    """One problem with its budgets, clock and seed."""

    problem: ExtractionProblem
    budget: dict[str, int]
    deadline: float  # of time.monotonic()
    seed: int
    hints: tuple[Answer, ...] = ()
    relaxed: dict[str, Relaxation | None] = field(default_factory=dict)  # by goal, when asked for
    stop: Stop | None = None
    # per goal a bound that is known already, and what proved it
    least: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    free: Callable[[], AnyOrder] | None = None  # states the same choice without an order
    defers: bool = False  # what is hard about memory is left to the question in any order
    is_look: bool = False  # a good answer will do: it ends after so much work, not by a clock

    def run(
        self,
        requests: tuple[GoalRequest, ...],
        reference: dict[str, int] | None,
        caps: Mapping[str, int] | None = None,
    ) -> Outcome:
        """Minimise the goals, under further caps; `reference` are the baseline's values, if any."""
        if requests[0].weight is not None:
            return by_weights(self, requests, reference)
        return by_priority(self, requests, reference or {}, self.budget | dict(caps or {}))

    def best_hint(self, weights: dict[str, int], caps: dict[str, int]) -> Answer | None:
        """The best known answer that keeps the caps."""
        legal = [a for a in self.hints if self.problem.keeps(a, caps)]
        return self._better(weights, *legal)

    def _better(self, weights: dict[str, int], *answers: Answer | None) -> Answer | None:
        known = [a for a in answers if a is not None]
        return min(known, key=lambda a: self.problem.worth(a, weights), default=None)

    def minimise(self, asked: Objective, start: Answer | None, seconds: float) -> Minimum:
        """The best answer within the caps; a hint is the answer if none better is found in time."""
        hint = self._known(asked, start)
        try:
            with until(self.deadline, self.stop):
                tick()
                return self._minimised(asked, hint, time.monotonic() + seconds)
        except OutOfTime:
            return Minimum("unknown" if hint is None else self._ended, hint)

    def _known(self, asked: Objective, start: Answer | None) -> Answer | None:
        """The best answer that is known already."""
        return self._better(asked.weights, start, self.best_hint(asked.weights, asked.caps))

    def _minimised(self, asked: Objective, hint: Answer | None, end: float) -> Minimum:
        """`minimise`, from the best answer known so far; OutOfTime before there is a bound."""
        weights = asked.weights
        told = self._told(asked, hint)
        if told is not None:
            return told
        fewest = self._fewest(asked, hint)
        if fewest is not None and hint is not None:
            hint = self._of_few(fewest, asked, hint, end)
            status = self._without_search(fewest, hint)
            if status:
                return Minimum(status, hint, self.problem.peak_bytes(hint) * (status != OPEN))
        stage = self._stage_of(asked, hint)
        if stage is None or any(
            weights == {g: 1} and stage.bound > v for g, v in asked.caps.items()
        ):
            return Minimum("infeasible")
        found, looked_at = None, ()
        for cap, few in self._neighbourhoods(stage, asked):
            if self._is_met(stage, asked, hint) or time.monotonic() > end:
                break
            worth = None if hint is None else self.problem.worth(hint, weights)
            if worth is not None and (worth <= cap or stage.is_nearly_all(few, worth)):
                break  # the last solve below proves as much
            looked_at = few
            found = self._solve(few, asked, hint, end, NEAR_WORK)
            hint = self._better(weights, hint, found.answer)
            if found.status == "optimal" and stage.bound < found.bound <= cap:
                return replace(found, stage=stage)  # whatever is worth so little is among them
        if self._is_met(stage, asked, hint):
            return Minimum("optimal", hint, stage.bound, "relaxation", stage)
        kept = self._left(stage, asked, fewest, hint)
        if self._is_enough(found, kept):
            return Minimum(OPEN, hint, stage.bound, stage=stage)
        if found is None or found.status != "optimal" or kept != looked_at:  # else just now
            found = self._solve(kept, asked, hint, end, NEAR_WORK if self.is_look else None)
        return self._settled(found, stage, asked, hint)

    def tried(self, asked: Objective, start: Answer | None, seconds: float) -> Minimum:
        """`minimise`, or the best known answer if the memory of the machine ends first."""
        try:
            return self.minimise(asked, start, seconds)
        except MemoryError:
            known = self._known(asked, start)
            if known is None:
                raise
            return Minimum(OUT_OF_MEMORY, known)

    # ---- what needs no search ----------------------------------------------------------------
    def _told(self, asked: Objective, hint: Answer | None) -> Minimum | None:
        """What bounds that are known say, if that is all there is to say."""
        known = next((v for g, v in self.least.items() if asked.weights == {g: 1}), None)
        if hint is not None and known and self.problem.worth(hint, asked.weights) <= known[0]:
            return Minimum("optimal", hint, *known)
        about_bytes = (MEMORY in self.budget or asked.is_peak) and MEMORY in asked.caps
        if about_bytes and self.least_bytes > asked.caps[MEMORY]:
            return Minimum("infeasible")  # it does not even hold what every answer keeps
        return None

    @cached_property
    def least_bytes(self) -> int:
        """A proven lower bound of peak bytes in any order, without a search."""
        free = self.problem if isinstance(self.problem, AnyOrder) else self.free and self.free()
        return free.fits.least_bytes if free else self.problem.fixed_bytes

    def _fewest(self, asked: Objective, answer: Answer | None) -> Fewest | None:
        """What is known of bytes in any order.

        Asked behind goals that leave few options, and a known answer as good as the best.
        """
        is_behind = bool(asked.caps.keys() - self.budget.keys())
        if self.free is None or answer is None or not asked.is_peak or not is_behind:
            return None
        sums = {g: v for g, v in asked.caps.items() if g in self.problem.linear}
        return Fewest(self.problem, self.free(), sums)

    def _of_few(self, fewest: Fewest, asked: Objective, hint: Answer, end: float) -> Answer:
        """The better of the known answer and of those of options that fit into few bytes."""
        if self._is_deferred:
            return hint
        value = self.problem.peak_bytes(hint)
        few = () if fewest.is_least(value) else fewest.lowest(value)
        kept = few if asked.among is None else tuple(sorted({*few}.intersection(asked.among)))
        if not kept:
            return hint
        found = self._solve(kept, asked, None, end, NEAR_WORK)
        return self._better(asked.weights, hint, found.answer) or hint

    def _without_search(self, fewest: Fewest, answer: Answer) -> str:
        """optimal, if it is plain that no answer needs less; open, if that is asked later."""
        if fewest.is_least(self.problem.peak_bytes(answer)):
            return "optimal"
        return OPEN if self._is_deferred else ""

    @property
    def _is_deferred(self) -> bool:
        """Whether a good peak is looked for in any order only."""
        return self.defers and len(self.problem.options) > LARGE

    # ---- what is left to search --------------------------------------------------------------
    def _is_enough(self, found: Minimum | None, kept: tuple[int, ...]) -> bool:
        """Whether an answer found among few options will do, as a proof would be among many."""
        is_found = found is not None and found.status == "optimal" and found.answer is not None
        return self.is_look and is_found and len(kept) > MANY_LEFT

    def _left(
        self, stage: Restriction, asked: Objective, fewest: Fewest | None, hint: Answer | None
    ) -> tuple[int, ...]:
        """Options of the known answer, and all that better ones hold."""
        if hint is None or (not self.problem.is_ordered and MEMORY in asked.weights):
            return stage.kept  # without an order the known answer is worth less
        value = self.problem.worth(hint, asked.weights)
        kept = stage.within(value)
        if fewest is None:
            return kept
        return tuple(sorted({*kept}.intersection((*fewest.within(value - 1), *hint))))

    def _settled(
        self, found: Minimum, stage: Restriction, asked: Objective, hint: Answer | None
    ) -> Minimum:
        """The last solve's outcome with the better of both answers and of both bounds."""
        if found.status == "optimal" or (found.status == "infeasible" and hint is None):
            return replace(found, stage=stage)
        best = self._better(asked.weights, found.answer, hint)
        if best is None:
            return found
        return Minimum(self._ended, best, max(found.bound, stage.bound), stage=stage)

    @property
    def _ended(self) -> str:
        """Why a search without a proof ended."""
        return INTERRUPTED if self.stop is not None and self.stop.is_requested else "wall"

    def _is_met(self, stage: Restriction, asked: Objective, answer: Answer | None) -> bool:
        """Whether an answer is worth no more than the bound that every answer keeps."""
        return answer is not None and self.problem.worth(answer, asked.weights) <= stage.bound

    def _stage_of(self, asked: Objective, hint: Answer | None) -> Restriction | None:
        """What is left under the caps; options that do not fit into a cap of bytes, which takes
        longest to see, are looked for only if the known answer does not meet the bound with them.
        """
        if hint is not None and not self.problem.is_ordered and MEMORY not in asked.weights:
            stage = self._left_within(asked, by_bytes=False)
            if stage is not None and (MEMORY not in asked.caps or self._is_met(stage, asked, hint)):
                return stage
        return self._left_within(asked)

    def stage(
        self, weights: dict[str, int], caps: dict[str, int], among: tuple[int, ...] | None
    ) -> Restriction | None:
        """What is left under the caps, with its relaxation; None if that is nothing."""
        return self._left_within(Objective(weights, caps, among))

    def _left_within(self, asked: Objective, *, by_bytes: bool = True) -> Restriction | None:
        problem, caps = self.problem, asked.caps
        kept = set(range(len(problem.options)) if asked.among is None else asked.among)
        if not problem.is_ordered and MEMORY in caps and by_bytes:
            kept &= set(self.fitting(caps[MEMORY]))
            if not kept and problem.roots:
                return None
        for goal in caps.keys() & self.budget.keys():  # later caps are known to `among`
            relaxed = self.relaxation(goal)
            if relaxed is None or relaxed.bound > caps[goal]:
                return None
            kept &= set(relaxed.within(caps[goal]))
        places = tuple(sorted(kept))
        small = problem.restricted(places)
        useful = presolve(small)
        places, small = at_places(places, useful), small.restricted(useful)
        found = self._relaxation(small, asked)
        return None if found is None else Restriction(places, small, found)

    def fitting(self, cap: int) -> tuple[int, ...]:
        """Options that answers of at most so many bytes may hold; all, if there is an order."""
        if not isinstance(self.problem, AnyOrder):
            return tuple(range(len(self.problem.options)))
        return fitting(self.problem, cap)

    def _relaxation(self, small: ExtractionProblem, asked: Objective) -> Relaxation | None:
        """Under the caps on sums, bytes kept and memory; None if nothing is left."""
        if self._is_hard(small, asked):
            nothing = (0.0,) * len(small.options)
            return Relaxation(0.0, nothing, (), small.byte_unit)
        limits = {g: v for g, v in asked.caps.items() if g in small.linear}
        more = {g: v for g, v in asked.caps.items() if g in small.kept}
        more |= {g: v for g, v in asked.caps.items() if g == MEMORY and g in self.budget}
        found = relaxation(small, asked.weights, limits | more) if more else None
        # `None` is no proof where sums round
        return found or relaxation(small, asked.weights, limits)

    def _is_hard(self, small: ExtractionProblem, asked: Objective) -> bool:
        """Whether relaxing bytes in any order says little, as nearly all options fit."""
        if not asked.is_peak or MEMORY not in asked.caps or len(small.options) < LARGE:
            return False
        problem = self.problem
        return isinstance(problem, AnyOrder) and is_most(problem, self.fitting(asked.caps[MEMORY]))

    def _neighbourhoods(
        self, stage: Restriction, asked: Objective
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Few options that hold a good answer: the relaxation's own, then those near its bound.

        Each with the cap that all answers worth no more than that are made of these options.
        The best answer among them is nearly always the best of all, and a close upper bound is
        what lets the relaxation drop the rest.
        """
        yield -1, at_places(stage.kept, stage.relaxed.support)
        last = len(stage.relaxed.support)
        for spread in SPREADS if MEMORY not in asked.weights else ():
            cap = int(stage.bound * (1 + spread))
            near = stage.relaxed.within(cap)
            if last < len(near) <= MANY:
                last = len(near)
                yield cap, at_places(stage.kept, near)

    def relaxation(self, goal: str) -> Relaxation | None:
        """The relaxation of one goal without any caps; None if there is no answer at all."""
        if goal not in self.relaxed:
            self.relaxed[goal] = relaxation(self.problem, {goal: 1})
        return self.relaxed[goal]

    def _solve(
        self,
        kept: tuple[int, ...],
        asked: Objective,
        hint: Answer | None,
        end: float,
        work: float | None = None,
    ) -> Minimum:
        """Solve the problem of some options; its answer in the numbers of the whole problem."""
        if TIE_BREAK in asked.weights and len(kept) > TIDY:
            return Minimum("unknown")
        number = {i: n for n, i in enumerate(kept)}
        known = hint is not None and all(i in number for i in hint)
        own = tuple(number[i] for i in hint) if hint is not None and known else None
        small = self.problem.restricted(kept)
        request = Request(asked.weights, asked.caps, own, asked.pairs)
        seconds = max(end - time.monotonic(), 0.1)
        try:
            tick()
            solution = solve(small, request, Effort(seconds, self.seed, work, self.stop))
        except OutOfTime:
            return Minimum("unknown")
        if solution.answer is None and own is not None and small.keeps(own, asked.caps):
            return Minimum("unknown")  # a solver that calls it infeasible is wrong
        if solution.answer is None:
            return Minimum(solution.status, bound=solution.bound)
        answer = tuple(kept[i] for i in solution.answer)
        worth = self.problem.worth(answer, asked.weights)
        if not self.problem.is_legal(answer) or worth > solution.value:
            raise fail("E901", "the solver's answer breaks the extraction problem", exit_code=4)
        status = "optimal" if solution.status == "optimal" else "wall"
        return Minimum(status, self.problem.pruned(answer), solution.bound)
