"""A greedy answer: the cheapest known way to write each buffer, in the order of the steps.

After extraction-gym's greedy-DAG extractor: a way is the *set* of options it needs, so sharing is
counted once. Ways made of one-op dispatches only are kept beside the cheapest ones: they never
contradict each other, so there is an answer whenever one-op dispatches can give one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from eqsat.extract.solve.problem import Answer, ExtractionProblem
from eqsat.model.deadline import OutOfTime, tick

WAYS = 3  # kept per buffer
FIRST = 10**12  # picoseconds that one unit of another goal counts as


@dataclass(frozen=True)
class _Joined:
    """Options (a bit each) that together write some buffer; `blocked` is what they exclude."""

    cost: int
    chosen: int
    blocked: int


_NOTHING = _Joined(0, 0, 0)
_Table = dict[int, list[_Joined]]


class _Tables:
    """Tables of the greedy search; one pass over the options in step order."""

    def __init__(self, problem: ExtractionProblem, singles: frozenset[int], goal: str):
        self.problem = problem
        self.singles = singles
        self.costs = problem.coefficients("time")
        if goal in problem.linear and goal != "time":  # time decides between equals
            first = problem.coefficients(goal)
            self.costs = [FIRST * a + b for a, b in zip(first, self.costs, strict=True)]
        keys = [("n", n) for n in sorted({n for o in problem.options for n in o.exclusive})]
        keys += [("b", b) for b in sorted(problem.nbytes)]
        bit = {k: 1 << i for i, k in enumerate(keys)}
        self.blocks = [
            sum(bit["n", n] for n in o.exclusive) + sum(bit["b", b] for b in o.writes)
            for o in problem.options
        ]
        self.best: _Table = {}
        self.plain: _Table = {}

    def is_idle(self, option: int) -> bool:
        """Whether it makes or reads in the run what may be there from the start, for nothing."""
        o = self.problem.options[option]
        return not self.problem.either.isdisjoint((*o.reads, *o.writes))

    def join(self, a: _Joined, b: _Joined) -> _Joined | None:
        """Both ways together, shared options once; None if they contradict each other."""
        if a.chosen.bit_count() < b.chosen.bit_count():
            a, b = b, a
        cost, blocked, rest = a.cost, a.blocked, b.chosen & ~a.chosen
        while rest:
            low = rest & -rest
            i = low.bit_length() - 1
            if self.blocks[i] & blocked:
                return None
            cost, blocked, rest = cost + self.costs[i], blocked | self.blocks[i], rest ^ low
        return _Joined(cost, a.chosen | b.chosen, blocked)

    def all_of(self, buffers: tuple[int, ...], table: _Table) -> _Joined | None:
        """Ways of several buffers together; the first that fits, for each in turn."""
        total = _NOTHING
        for b in buffers:
            joined = (self.join(total, way) for way in table.get(b, ()))
            fits = next((way for way in joined if way is not None), None)
            if fits is None:
                return None
            total = fits
        return total

    def step(self, options: list[int]) -> None:
        """Options of one step: they read what earlier steps wrote."""
        news: list[tuple[_Table, int, _Joined]] = []
        for i in options:
            tick()
            if self.is_idle(i):
                continue
            reads = self.problem.options[i].reads
            tables = [self.best, self.plain] if i in self.singles else [self.best]
            for table in tables:
                way = self.all_of(reads, table)
                if way is None and table is self.best:
                    way = self.all_of(reads, self.plain)
                whole = way and self.join(way, _Joined(self.costs[i], 1 << i, self.blocks[i]))
                if whole:
                    news += [(table, b, whole) for b in self.problem.options[i].writes]
        for table, b, way in news:
            ways = table.setdefault(b, [])
            ways.append(way)
            ways.sort(key=lambda w: (w.cost, w.chosen))
            del ways[WAYS if table is self.best else 1 :]

    def answers(self) -> list[Answer]:
        """Legal answers found, the mixed one and the one of one-op dispatches."""
        found = []
        for table in (self.best, self.plain):
            way = self.all_of(self.problem.roots, table)
            if way:
                chosen = tuple(i for i in range(len(self.costs)) if way.chosen >> i & 1)
                found.append(self.problem.pruned(chosen))
        return [a for a in found if self.problem.is_legal(a)]


def greedy(problem: ExtractionProblem, singles: frozenset[int], goal: str) -> tuple[Answer, ...]:
    """Legal answers, without regard to budgets; `singles` are options with one op each.

    Where the deadline it is under ends the search: the answer of one-op dispatches alone.
    """
    try:
        search = _Tables(problem, singles, goal)
        steps = groupby(range(len(problem.options)), key=lambda i: problem.options[i].step)
        for _, options in steps:
            search.step(list(options))
        return tuple(search.answers())
    except OutOfTime:
        plain = _plain(problem, singles)
        return () if plain is None else (plain,)


def _plain(problem: ExtractionProblem, singles: frozenset[int]) -> Answer | None:
    """One-op dispatches, for each buffer the first that can write it; linear in the options."""
    writer: dict[int, int] = {}
    at: dict[int, int] = {}
    for i in sorted(singles, key=lambda i: (problem.options[i].step, i)):
        o = problem.options[i]
        if not problem.either.isdisjoint((*o.reads, *o.writes)):
            continue  # it may be there from the start, for nothing
        if all(at.get(b, o.step) < o.step for b in o.reads):
            for b in o.writes:
                writer.setdefault(b, i)
                at.setdefault(b, o.step)
    chosen: set[int] = set()
    waiting = list(problem.roots)
    while waiting:
        i = writer.get(waiting.pop())
        if i is not None and i not in chosen:
            chosen.add(i)
            waiting += problem.options[i].reads
    answer = problem.pruned(tuple(sorted(chosen)))
    return answer if problem.is_legal(answer) else None
