"""Questions about one choice: an objective's least value within caps, and the goals of a search.

Goals are minimised in order of priority or as one weighted sum; each gets a value and a bound.
`Shares` say how the time for questions is divided; a `TimedStep` tells what a step did with its
share.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import GOALS, KEPT, MEMORY, Answer, Barred, Columns
from eqsat.extract.choice.linear import ASKED, TIE_BREAK
from eqsat.extract.choice.relax import OPEN, Caps, Least, Relaxation, relaxation
from eqsat.extract.memory.bestorder import in_best_order, in_some_order
from eqsat.extract.memory.memoryfilter import Fits
from eqsat.extract.minimisation import Minimisation
from eqsat.extract.ragged import Ints
from eqsat.model import progress
from eqsat.model.deadline import (
    INTERRUPTED,
    OUT_OF_MEMORY,
    OUT_OF_TIME,
    OutOfTime,
    Stop,
    elapsed,
    tick,
    until,
)
from eqsat.model.diag import fail
from eqsat.model.selection import GoalRequest, GoalResult
from eqsat.plugins import plugged_in


@dataclass(frozen=True)
class Shares:
    """How time is divided: a step gets at most this part of what is left when it begins.

    A step that ends before leaves the rest to those behind it. `*_seconds` are there whatever is
    left.
    """

    # an extraction
    check: float = 0.05  # of the whole limit, kept for checking the answer
    all_rules: float = 0.7  # of the limit, where a contained rule set may have to be searched alone
    own_candidates: float = 0.15  # of the input program
    baseline: float = 0.3
    packing: float = 0.6  # the baseline's dispatches in other layouts
    candidates: float = 0.5  # stating the choice takes about as long again
    stating: float = 0.85  # candidates, the choice, and what the first goal leaves of it
    relaxing: float = 0.75  # of that: then an answer near the last relaxation is looked for
    goal: float = 0.7  # a goal with others behind it
    # questions about an answer
    asking: float = 0.85  # in the rest, what ties and what is near is told apart
    near: float = 0.25  # one question about programs near the best one

    own_seconds: float = 2.0  # where the input program may be the only answer within a budget
    least_seconds: float = 1.0  # floors, messages and questions: without them nothing is told
    message_seconds: float = 10.0  # what budgets would have to be, at most


SHARES = Shares()


_LOG = logging.getLogger("eqsat.shares")


@dataclass
class TimedStep:
    """One step with its share of the time; `outcome` is said by whoever knows it."""

    name: str
    deadline: float
    outcome: str = "ended"
    begin: float = field(default_factory=elapsed)

    def tell(self) -> None:
        """Log what it was given, took and came to."""
        given, took = self.deadline - self.begin, elapsed() - self.begin
        _LOG.info("%s: %.3f s of %.3f s, %s", self.name, took, given, self.outcome)


@dataclass(frozen=True)
class SearchLimits:
    """When to stop looking, and for what seed; it divides the time, and says what steps did."""

    deadline: float  # of `elapsed`
    seed: int
    stop: Stop | None = None

    @property
    def seconds(self) -> float:
        """Seconds that are left; none if the search was asked to stop."""
        asked = self.stop is not None and self.stop.is_requested
        return 0.0 if asked else max(self.deadline - elapsed(), 0.0)

    def share(self, part: float, least: float = 0.0) -> float:
        """When so much of what is left now will be over, or so many seconds at the least."""
        return elapsed() + max(part * max(self.deadline - elapsed(), 0.0), least)

    @contextmanager
    def step(self, name: str, part: float, least: float = 0.0) -> Iterator[TimedStep]:
        """Under the deadline of its share; logged in the end."""
        timed = TimedStep(name, self.share(part, least))
        try:
            with until(timed.deadline, self.stop):
                yield timed
        except OutOfTime:
            timed.outcome = "out of time"
            raise
        finally:
            timed.tell()

    @property
    def ended(self) -> str:
        """Why a search within these limits ended early."""
        return INTERRUPTED if self.stop is not None and self.stop.is_requested else OUT_OF_TIME


# ---- questions about one choice -----------------------------------------------------------------
@dataclass
class Minimiser:
    """Questions about one choice.

    orders: whether bytes are asked about, so that each answer gets the order of least peak. known:
    per goal a bound in any order that is known already, and what proved it. quick: of a large input
    program, of whose peak nobody asks a proof. tells_fewest: whether to tell the fewest bytes that
    anything fits into, whatever that costs (`leastpeak`). is_ended_by_gaps: whether a goal with a
    gap, and those behind it, are asked again of all blocks of a program of equal ones.
    """

    choice: Columns
    limits: SearchLimits
    orders: bool = True
    quick: bool = False
    proven: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    tells_fewest: bool = False
    is_ended_by_gaps: bool = False
    cuts: list[Barred] = field(default_factory=list)  # circles
    alone: dict[str, Relaxation | None] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)  # all that were found
    some_fits: dict[bytes, Fits] = field(default_factory=dict)  # of columns, by their places
    fitted: dict[int, Ints] = field(default_factory=dict)  # per cap of bytes: columns that fit

    @cached_property
    def fits(self) -> Fits:
        return Fits(self.choice)

    @cached_property
    def every(self) -> Ints:
        return np.arange(len(self.choice))

    def fits_among(self, places: Ints) -> Fits:
        """The memory filter of these columns alone."""
        key = places.tobytes()
        if key not in self.some_fits:
            whole = len(places) == len(self.choice)
            self.some_fits[key] = self.fits if whole else Fits(self.choice.take(places))
        return self.some_fits[key]

    def fitting(self, places: Ints, cap: int) -> Ints | None:
        """Of these the columns that answers of at most `cap` bytes may hold; None: no answer.

        Of columns that fit into a cap nobody asks again whether they do.
        """
        if cap in self.fitted and np.isin(places, self.fitted[cap]).all():
            return places
        fits = self.fits_among(places)
        self.fitted[cap] = places[fits.within(cap)]
        return None if fits.excludes(cap) else self.fitted[cap]

    @property
    def is_about_alike(self) -> bool:
        """Whether a solver is told that equal blocks are alike, so that it proves nothing."""
        return self.choice.facts.blocks is not None

    # ---- entry ---------------------------------------------------------------------------------
    def least(
        self,
        weights: dict[str, int],
        caps: Caps,
        *,
        among: Ints | None = None,
        best: Answer | None = None,
        most: int = OPEN,
        seconds: float | None = None,
        is_look: bool = False,
    ) -> Least:
        """The least Σ weight · goal of answers within the caps.

        among: columns that these hold, if that is known. best: the best one known that keeps the
        caps. most: what an answer may be worth; if the relaxation says that none is worth so
        little, there is none. is_look: a good answer will do; the search ends after so much work,
        not by a clock.
        """
        end = self.limits.deadline if seconds is None else elapsed() + seconds
        places = self.every if among is None else among
        best = best if best is not None and self.choice.keeps(best, caps) else None
        end = min(end, self.limits.deadline)
        asked = Minimisation(self, weights, dict(caps), end, is_look, most)
        try:
            with until(asked.end, self.limits.stop):
                tick()
                return asked.answered(places, best)
        except OutOfTime:
            return Least(self.limits.ended, asked.bound, best=asked.best or best, places=among)
        except MemoryError:
            incumbent = asked.best or best
            if incumbent is None:
                raise
            return Least(OUT_OF_MEMORY, asked.bound, best=incumbent, places=among)

    def relaxed_alone(self, goal: str) -> Relaxation | None:
        """The relaxation of a sum without any caps; None if there is no answer at all."""
        if goal not in self.alone:
            self.alone[goal] = relaxation(self.choice, {goal: 1})
        return self.alone[goal]

    def least_alone(self, goal: str) -> int:
        """A proven lower bound of a goal, whatever the others."""
        if goal == MEMORY:
            return self.fits.least_bytes
        if goal in self.choice.facts.linear:
            relaxed = self.relaxed_alone(goal)
            return 0 if relaxed is None else relaxed.bound
        return self.choice.floor(goal)

    # ---- answers -------------------------------------------------------------------------------
    def ordered(self, columns: tuple[int, ...]) -> Answer | None:
        """Columns in an order; None if they have none."""
        answer = (in_best_order if self.orders else in_some_order)(self.choice, columns)
        if answer is not None:
            self.answers.append(answer)
        return answer

    def small(self, places: Ints) -> Columns:
        """The choice among these, without the circles that are known."""
        if not self.cuts:
            return self.choice.take(places)
        return replace(self.choice, barred=(*self.choice.barred, *self.cuts)).take(places)


DONE = ("optimal", "gap")


@dataclass(frozen=True)
class Outcome:
    """The best answer found; `status` as that of the question that ended worst."""

    status: str
    answer: Answer | None = None
    bounds: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)  # per goal whose bound is met
    late: str = ""  # the first goal whose question time ended

    def results(
        self, choice: Columns, requests: tuple[GoalRequest, ...]
    ) -> tuple[tuple[str, GoalResult], ...]:
        """All goals, requested ones first; those not asked for have the trivial bound."""
        assert self.answer is not None
        values = choice.values(self.answer)
        names = dict.fromkeys([*(r.name for r in requests), *values])
        results = []
        for n in names:
            bound = min(self.bounds.get(n, choice.floor(n)), values[n])
            proof = self.proofs.get(n, "") if bound == values[n] else ""
            results.append((n, GoalResult(values[n], bound, proof)))
        return tuple(results)


def minimise(
    asked: Minimiser,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    *,
    reference: Mapping[str, int] | None = None,
    best: Answer | None = None,
    is_cut: bool = False,
) -> Outcome:
    """The goals minimised within the budget.

    reference: the baseline's values, if there are any. best: a known answer that keeps the budget.
    is_cut: candidates were left out, so no bound is reported while the search runs.
    """
    if requests[0].weight is not None:
        return _by_weights(asked, requests, budget, reference, best)
    return _by_priority(asked, requests, budget, reference or {}, best, is_cut)


def _by_priority(
    asked: Minimiser,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    reference: Mapping[str, int],
    best: Answer | None,
    is_cut: bool,
) -> Outcome:
    """One goal after another, each held at its value, or within its tolerance, from then on."""
    bounds, proofs, caps = dict[str, int](), dict[str, str](), dict(budget)
    among: Ints | None = None
    status, late = "optimal", ""
    for n, r in enumerate(requests):
        if r.name == MEMORY or n == 0:
            progress.phase("order" if r.name == MEMORY else "search")
        part = SHARES.goal if n + 1 < len(requests) else 1.0
        with asked.limits.step(r.name, part) as timed:
            share = timed.deadline - timed.begin
            least = asked.least({r.name: 1}, caps, among=among, best=best, seconds=share)
            timed.outcome = least.status
        if least.best is None:
            return Outcome(_worst(status, "unknown" if least.status == "gap" else least.status))
        best = least.best
        value = asked.choice.value(r.name, best)
        bounds[r.name], proofs[r.name] = max(least.bound, asked.choice.floor(r.name)), least.proof
        status = _worst(status, least.status if least.bound < value else "optimal")
        late = late or (r.name if status == OUT_OF_TIME else "")
        progress.found(r.name, value, 0 if is_cut else least.bound)
        most = limit(r, value, reference)
        caps[r.name] = min(most, caps.get(r.name, most))
        within = least.within(caps[r.name])
        among = among if within is None else within
        if asked.is_ended_by_gaps and status == "gap":
            return Outcome(status, _ordered(asked, best), bounds, proofs)
    if status in DONE and best is not None and not asked.quick:
        best = _tidied(asked, best, requests, caps, among)
    return Outcome(status, best and _ordered(asked, best), bounds, proofs, late)


def _worst(one: str, other: str) -> str:
    """Why a search ended that asked two questions: a proof of both, a gap, or what cut it short."""
    return other if one == "optimal" or (one == "gap" and other not in DONE) else one


def _ordered(asked: Minimiser, answer: Answer) -> Answer:
    """In the order of least peak, which no question may have been about."""
    ordered = in_best_order(asked.choice, answer.columns)
    return answer if ordered is None or ordered.peak_bytes >= answer.peak_bytes else ordered


def _tidied(
    asked: Minimiser,
    answer: Answer,
    requests: tuple[GoalRequest, ...],
    caps: Mapping[str, int],
    among: Ints | None,
) -> Answer:
    """An answer of the same worth that converts least, if that can be proven in time."""
    exact = dict(caps) | {r.name: asked.choice.value(r.name, answer) for r in requests}
    least = asked.least({TIE_BREAK: 1}, exact, among=among, best=answer, is_look=True)
    return least.best if least.status == "optimal" and least.best is not None else answer


def _by_weights(
    asked: Minimiser,
    requests: tuple[GoalRequest, ...],
    budget: Mapping[str, int],
    reference: Mapping[str, int] | None,
    best: Answer | None,
) -> Outcome:
    """The weighted sum, by the reference's values if there are any; it alone is proven.

    Each goal's own bound is that of its relaxation, or what is known of it whatever the others.
    """
    progress.phase("search")
    names = [r.name for r in requests]
    if reference is None:
        first = asked.least({names[0]: 1}, budget, best=best, is_look=True).best
        reference = {} if first is None else asked.choice.values(first)
        best = first or best
    least: Least = asked.least(weigh(requests, dict(reference)), budget, best=best)
    if least.best is None:
        return Outcome("unknown" if least.status == "gap" else least.status)
    value = asked.choice.worth(least.best, weigh(requests, dict(reference)))
    status = "optimal" if least.bound >= value else least.status
    bounds = {n: asked.proven[n][0] if n in asked.proven else asked.least_alone(n) for n in names}
    best = _ordered(asked, least.best)
    return Outcome(status, best, bounds, dict.fromkeys(names, least.proof))


# ---- what is asked for ---------------------------------------------------------------------------
SCALE = 10_000  # steps a weighted goal of the size of its baseline is divided into


def check_requests(requests: tuple[GoalRequest, ...]) -> None:
    """EqsatError (E404) for unknown or repeated goals, or if only some have weights."""
    names = [r.name for r in requests]
    every_goal = (*GOALS, *KEPT, *ASKED, *plugged_in("goals"))
    for n in names:
        if n not in every_goal:
            raise fail("E404", f"no goal named `{n}`", help=f"known: {', '.join(every_goal)}")
    if not names or len(set(names)) < len(names):
        raise fail("E404", "name at least one goal, and each goal once")
    weighted = [r.weight is not None for r in requests]
    if any(weighted) and not all(weighted):
        raise fail(
            "E404",
            "some goals have a weight and some have none",
            help="give all goals a weight (`time:2 memory:1`), or none (in order of priority)",
        )
    if any(r.within < 0 or (r.weight is not None and r.weight <= 0) for r in requests):
        raise fail("E404", "weights are positive and `within` is not negative")


def limit(request: GoalRequest, value: int, reference: Mapping[str, int]) -> int:
    """The cap of a goal behind a search that found this value: within its tolerance.

    A tolerance never makes it worse than the baseline.
    """
    loose = value + int(value * Fraction(str(request.within)))
    return max(value, min(loose, reference.get(request.name, loose)))


def weigh(requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> dict[str, int]:
    """Integer coefficients of Σ weight · goal / reference, to one part in `SCALE` or better."""
    shares = {r.name: Fraction(str(r.weight)) / max(reference.get(r.name, 1), 1) for r in requests}
    unit = min(shares.values())
    return {n: max(round(s / unit * SCALE), 1) for n, s in shares.items()}
