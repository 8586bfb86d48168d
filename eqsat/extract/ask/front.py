"""All best trade-offs of several goals: boxes of values are asked for an answer until none is left.

Each question is one of the ε-constraint method (Haimes, Lasdon and Wismer 1971): the goals one
after the other, under a cap for each. The boxes that may still hold a trade-off are the local upper
bounds of Klamroth, Lacour and Vanderpooten ("On the representation of the search region in
multi-objective optimization", EJOR 245, 2015); with three goals their number grows linearly with
the number of answers. What was proven empty is kept, so every answer has a bound per goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.choice.columns import Answer
from eqsat.extract.choice.relax import OPEN, Least
from eqsat.extract.minimiser import SHARES, Minimiser, Outcome
from eqsat.extract.ragged import Ints
from eqsat.extract.session import Session
from eqsat.model.deadline import INTERRUPTED, OUT_OF_TIME, elapsed
from eqsat.model.selection import GoalRequest, Selection

Vector = tuple[int, ...]  # a number per goal


@dataclass(frozen=True)
class Reply:
    """The best answer under caps: status optimal | wall | infeasible | unknown | interrupted.

    `bounds`: what each goal is at least, with those asked before it no worse than in `values`.
    """

    status: str
    values: Vector = ()
    bounds: Vector = ()


# (goals in order of priority, a cap per goal, seconds) → the best answer
Ask = Callable[[Vector, Vector, float], Reply]


@dataclass(frozen=True)
class Tradeoff:
    """Values per goal; `bounds`: the least of each goal while no other goal is worse."""

    values: Vector
    bounds: Vector

    @property
    def is_proven(self) -> bool:
        """No answer is better in one goal and no worse in the others."""
        return self.values == self.bounds


@dataclass(frozen=True)
class Tradeoffs:
    """A front; `at_least` trade-offs exist; all are found, and no other exists: `complete`.

    stop: complete | points (more exist than were asked for) | wall | interrupted | infeasible.
    """

    tradeoffs: tuple[Tradeoff, ...]
    at_least: int
    complete: bool
    stop: str


def dominates(a: Vector, b: Vector) -> bool:
    """a is nowhere worse than b, and better somewhere."""
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def _within(a: Vector, caps: Vector) -> bool:
    return all(x <= y for x, y in zip(a, caps, strict=True))


@dataclass
class OpenBoxes:
    """The values that may still hold a trade-off, as boxes {v ≤ caps}, and those proven empty."""

    boxes: list[Vector]
    points: list[Vector] = field(default_factory=list)
    empty: list[Vector] = field(default_factory=list)  # caps that no answer keeps
    attempts: dict[Vector, int] = field(default_factory=dict)  # per box: ended by the clock
    halved: set[Vector] = field(default_factory=set)  # boxes asked for an answer in the middle

    def exclude(self, caps: Vector) -> None:
        """No answer keeps these caps."""
        if any(_within(caps, e) for e in self.empty):
            return
        self.empty = [e for e in self.empty if not _within(e, caps)] + [caps]
        self.boxes = [b for b in self.boxes if not _within(b, caps)]

    def add(self, point: Vector, attempts: int) -> None:
        """An answer: nothing that it dominates is of interest any more."""
        self.points = [p for p in self.points if not dominates(point, p)] + [point]
        split = [b for b in self.boxes if _within(point, b)]
        parts = dict.fromkeys(
            (*b[:k], point[k] - 1, *b[k + 1 :]) for b in split for k in range(len(b))
        )
        rest = [b for b in self.boxes if b not in split]
        new = [
            p
            for p in parts
            if not any(p != o and _within(p, o) for o in (*rest, *parts))
            and not any(_within(p, e) for e in self.empty)
        ]
        self.boxes = rest + [p for p in new if p not in rest]
        for p in new:
            self.attempts[p] = max(attempts, self.attempts.get(p, 0))

    def least(self, caps: Vector) -> Vector:
        """Bounds: each goal's least value in an answer that keeps the caps of the other goals."""
        least = [0] * len(caps)
        for e in self.empty:
            over = [k for k, (c, x) in enumerate(zip(caps, e, strict=True)) if c > x]
            for k in over if len(over) == 1 else range(len(caps)) if not over else ():
                least[k] = max(least[k], e[k] + 1)
        return tuple(least)

    def tradeoff(self, point: Vector) -> Tradeoff:
        bounds = point if not self.boxes else self.least(point)
        return Tradeoff(point, tuple(min(b, v) for b, v in zip(bounds, point, strict=True)))

    def _range(self, goal: int) -> tuple[int, int]:
        values = [p[goal] for p in self.points]
        return min(values), max(values)

    def extents(self, box: Vector) -> tuple[float, ...]:
        """A box's sides, each as a share of what the known answers span."""
        shares = []
        for k, low in enumerate(self.least(box)):
            first, last = self._range(k)
            side = min(box[k], last) - max(low, first)
            shares.append(max(side, 0) / max(last - first, 1))
        return tuple(shares)

    def next_box(self) -> Vector | None:
        """The largest box that was tried least often."""
        # as many attempts may end by the clock before a box is left open
        left = [b for b in self.boxes if self.attempts.get(b, 0) < 4]
        return min(left, key=self._rank, default=None)

    def _rank(self, box: Vector) -> tuple[int, float, Vector]:
        size = math.prod(e + 1e-3 for e in self.extents(box))
        return (self.attempts.get(box, 0), -size, box)

    def middle(self, box: Vector) -> Vector:
        """The box with its longest side cut in half, the side of the first goal excepted."""
        extents = self.extents(box)
        k = max(range(1, len(box)), key=lambda k: (extents[k], -k))
        low, (first, last) = self.least(box)[k], self._range(k)
        low, high = max(low, first), min(box[k], last)
        if low >= high:
            return box
        return (*box[:k], low + (high - low) // 2, *box[k + 1 :])


def find_tradeoffs(
    ask: Ask,
    caps: Vector,
    floors: Vector,
    *,
    points: int,
    deadline: float,
    incumbents: Iterable[Vector] = (),
) -> Tradeoffs:
    """The trade-offs under the caps: all, or `points` of them spread over their range.

    `floors` are trivial bounds; `incumbents`: values of answers at hand, shown where nothing better
    was found. `deadline` is of `elapsed`.
    """
    region = OpenBoxes([caps])
    for k, low in enumerate(floors):
        region.exclude((*[OPEN] * k, low - 1, *[OPEN] * (len(floors) - k - 1)))
    goals = range(len(caps))
    ends = [(g, *(k for k in goals if k != g)) for g in goals]
    stop = ""
    for priority in ends:
        stop = stop or _question(ask, region, priority, (caps, caps), deadline)
    while not stop and len(region.points) <= points:
        box = region.next_box()
        if box is None:
            break
        if box not in region.halved and region.points and len(region.points) < points:
            region.halved.add(box)
            stop = _question(ask, region, tuple(goals), (box, region.middle(box)), deadline)
        else:
            stop = _question(ask, region, tuple(goals), (box, box), deadline)
    return _result(region, points, stop, [k for k in incumbents if _within(k, caps)])


def _question(
    ask: Ask, region: OpenBoxes, priority: Vector, about: tuple[Vector, Vector], deadline: float
) -> str:
    """Ask for the best answer of a box under caps; OUT_OF_TIME or "interrupted" ends the search."""
    box, caps = about
    if any(_within(caps, e) for e in region.empty):
        return ""
    left = deadline - elapsed()
    if left <= 0:
        return OUT_OF_TIME
    parts = max(2, min(len(region.boxes), 8))  # for the boxes there are
    share = max(left / parts, min(left, SHARES.least_seconds))
    reply = ask(priority, caps, share)
    if reply.status == "interrupted" and not reply.values:
        return "interrupted"
    if reply.status == "infeasible":
        region.exclude(caps)
        return ""
    late = 0 if reply.status == "optimal" else 1
    if not reply.values:
        region.attempts[box] = region.attempts.get(box, 0) + 1
        return ""
    _learn(region, priority, caps, reply)
    if not any(_within(p, reply.values) for p in region.points):
        region.add(reply.values, region.attempts.get(box, 0) + late)
    elif late:
        region.attempts[box] = region.attempts.get(box, 0) + 1
    return "interrupted" if reply.status == "interrupted" else ""


def _learn(region: OpenBoxes, priority: Vector, caps: Vector, reply: Reply) -> None:
    """Boxes that an answer's bounds prove empty: better in one goal, no worse in earlier ones."""
    proven = list(caps)
    for goal in priority:
        better = list(proven)
        better[goal] = reply.bounds[goal] - 1
        region.exclude(tuple(better))
        proven[goal] = min(proven[goal], reply.values[goal])


def _result(region: OpenBoxes, points: int, stop: str, incumbents: list[Vector]) -> Tradeoffs:
    shown = list(region.points)
    if region.boxes:  # answers at hand are better than nothing
        extra = [k for k in incumbents if not any(_within(p, k) for p in shown)]
        best = [k for k in dict.fromkeys(extra) if not any(dominates(o, k) for o in extra)]
        shown = [p for p in shown if not any(dominates(k, p) for k in best)] + best
    shown.sort()
    tradeoffs = [region.tradeoff(p) for p in shown]
    proven = sum(t.is_proven for t in tradeoffs)
    complete = not region.boxes and len(tradeoffs) <= points
    if complete:
        stop = "complete" if tradeoffs else "infeasible"
    elif len(tradeoffs) > points:
        stop = stop or "points"
    at_least = max(proven, bool(tradeoffs))
    return Tradeoffs(tuple(spread(tradeoffs, points)), at_least, complete, stop or OUT_OF_TIME)


def spread(tradeoffs: list[Tradeoff], most: int) -> list[Tradeoff]:
    """So many of them: the ends, then again and again the one farthest from those taken."""
    if len(tradeoffs) <= most:
        return tradeoffs
    goals = range(len(tradeoffs[0].values))
    low = [min(t.values[k] for t in tradeoffs) for k in goals]
    span = [max(t.values[k] for t in tradeoffs) - low[k] or 1 for k in goals]

    def distance(a: Tradeoff, b: Tradeoff) -> float:
        return sum(abs(a.values[k] - b.values[k]) / span[k] for k in goals)

    ends = [min(tradeoffs, key=lambda t: (t.values[k], t.values)) for k in goals]
    taken = list(dict.fromkeys(ends))[:most]
    while len(taken) < most:
        rest = (t for t in tradeoffs if t not in taken)
        taken.append(max(rest, key=lambda t: min(distance(t, o) for o in taken)))
    return sorted(taken, key=lambda t: t.values)


# ---- the questions of a session ------------------------------------------------------------------
@dataclass
class _Asker:
    """Asks one session; answers are where the next search starts, and proofs are kept."""

    session: Session
    asked: Minimiser
    goals: tuple[str, ...]  # in the order of the numbers of a vector
    proven: dict[tuple[str, tuple[tuple[str, int], ...]], Least] = field(default_factory=dict)

    def values(self, answer: Answer) -> Vector:
        return tuple(self.asked.choice.value(g, answer) for g in self.goals)

    def __call__(self, priority: Vector, caps: Vector, seconds: float) -> Reply:
        stop = self.session.stop
        if stop is not None and stop.is_requested:
            return Reply(INTERRUPTED)
        goals, end = self.goals, elapsed() + seconds
        limits = dict(self.session.target.budget)
        limits |= {g: c for g, c in zip(goals, caps, strict=True) if c < OPEN}
        among = self._among(limits)
        if among is None:
            return Reply("infeasible")
        status, bounds, best = "optimal", [0] * len(goals), None
        for n, k in enumerate(priority):
            share = SHARES.goal if n + 1 < len(priority) else 1.0
            left = max(end - elapsed(), 0.1) * share
            least = self._least(goals[k], limits, among, left)
            if least.status == "infeasible":
                return (
                    Reply("infeasible") if best is None else self._reply(OUT_OF_TIME, best, bounds)
                )
            if least.best is None:
                return Reply("unknown")
            best, bounds[k] = least.best, least.bound
            value = self.values(best)[k]
            if value > least.bound:
                status = OUT_OF_TIME
            limits[goals[k]] = value
            within = least.within(value)
            among = among if within is None else within
        assert best is not None
        return self._reply(status, best, bounds)

    def _least(self, goal: str, limits: dict[str, int], among: Ints, seconds: float) -> Least:
        question = goal, tuple(sorted(limits.items()))
        if question not in self.proven:
            best = self._best(goal, limits)
            least = self.asked.least({goal: 1}, limits, among=among, best=best, seconds=seconds)
            if least.status not in ("optimal", "infeasible"):
                return least
            self.proven[question] = least
        return self.proven[question]

    def _among(self, limits: dict[str, int]) -> Ints | None:
        """Columns of answers within the limits, judged one by one; None: there is no answer."""
        asked = self.asked
        columns = asked.every
        for goal, cap in limits.items():
            if goal in asked.choice.facts.linear:
                alone = asked.relaxed_alone(goal)
                if alone is None or alone.bound > cap:
                    return None
                columns = np.intersect1d(columns, alone.within(cap))
        return columns

    def _best(self, goal: str, limits: dict[str, int]) -> Answer | None:
        """The best answer of all that keep the limits."""
        choice, k = self.asked.choice, self.goals.index(goal)
        within = [a for a in self.asked.answers if choice.keeps(a, limits)]
        return min(within, key=lambda a: (self.values(a)[k], self.values(a)), default=None)

    def _reply(self, status: str, best: Answer, bounds: list[int]) -> Reply:
        values = self.values(best)
        return Reply(status, values, tuple(map(min, bounds, values)))

    def answer(self, values: Vector) -> Answer:
        return next(a for a in self.asked.answers if self.values(a) == values)


def front_of(
    session: Session, goals: tuple[str, ...], *, points: int, seconds: float
) -> tuple[Tradeoffs, tuple[Selection, ...]]:
    """The trade-offs of these goals found within so many seconds, and a selection for each.

    A selection's bounds are those of its trade-off: what a goal is at least, in whatever order,
    while no other goal is worse. Budgets of the target hold for all of them. Where candidates were
    cut, nothing is proven and no front is complete.
    """
    start = elapsed()
    ask = _Asker(session, replace(session.questions(seconds), tells_fewest=True), goals)
    if session.best is not None:
        ask.asked.ordered(session.best.columns)
    budget = dict(session.target.budget)
    incumbents = [ask.values(a) for a in ask.asked.answers if ask.asked.choice.keeps(a, budget)]
    caps = tuple(budget.get(g, OPEN) for g in goals)
    floors = tuple(session.assembly.choice.floor(g) for g in goals)
    deadline = start + seconds
    tradeoffs = find_tradeoffs(
        ask, caps, floors, points=points, deadline=deadline, incumbents=incumbents
    )
    if session.assembly.cuts:
        stop = "cut" if tradeoffs.stop == "complete" else tradeoffs.stop
        exist = int(bool(tradeoffs.tradeoffs))
        tradeoffs = replace(tradeoffs, at_least=exist, complete=False, stop=stop)
    requests = tuple(GoalRequest(g) for g in goals)
    selections = []
    for t in tradeoffs.tradeoffs:
        bounds: dict[str, int] = dict(zip(goals, t.bounds, strict=True))
        outcome = Outcome("optimal" if t.is_proven else OUT_OF_TIME, ask.answer(t.values), bounds)
        selections.append(session.selection(outcome, requests, elapsed() - start))
    return tradeoffs, tuple(selections)
