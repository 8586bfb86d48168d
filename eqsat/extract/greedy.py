"""A greedy answer: the cheapest known way to write each buffer, in the order of the steps.

After extraction-gym's greedy-DAG extractor: a way is the *set* of options it needs, so sharing is
counted once. Ways made of one-op dispatches only are kept beside the cheapest one: they never
contradict each other, so there is an answer whenever one-op dispatches can give one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from eqsat.extract.problem import Answer, ExtractionProblem


@dataclass(frozen=True)
class _Way:
    """Options (a bit each) that together write some buffer; `blocked` are nodes and buffers."""

    cost: int
    chosen: int
    blocked: int
    extras: frozenset[tuple[int, int]]  # (option, buffer it writes as an extra)


_NOTHING = _Way(0, 0, 0, frozenset())


class _Search:
    """Tables of the greedy search; one pass over the options in step order."""

    def __init__(self, problem: ExtractionProblem, singles: frozenset[int], per_option: int):
        self.problem = problem
        self.singles = singles
        self.costs = [o.time_ps + per_option for o in problem.options]
        keys = sorted({("n", n) for o in problem.options for n in o.exclusive})
        keys += sorted(("b", b) for b in problem.nbytes)
        self.bit = {k: 1 << i for i, k in enumerate(keys)}
        self.blocks = [
            sum({self.bit["n", n] for n in o.exclusive} | {self.bit["b", w] for w in o.writes})
            for o in problem.options
        ]
        self.best: dict[int, _Way] = {}
        self.plain: dict[int, _Way] = {}

    def join(self, a: _Way, b: _Way) -> _Way | None:
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
        for i, buffer in sorted(b.extras - a.extras):
            if self.bit["b", buffer] & blocked:
                return None
            cost += dict(self.problem.options[i].extras)[buffer]
            blocked |= self.bit["b", buffer]
        extras = a.extras | b.extras
        if any(
            sum(1 for j, _ in extras if j == i) > self.problem.options[i].slack for i, _ in extras
        ):
            return None
        return _Way(cost, a.chosen | b.chosen, blocked, extras)

    def all_of(self, buffers: tuple[int, ...], table: dict[int, _Way]) -> _Way | None:
        """The ways of several buffers together."""
        total: _Way | None = _NOTHING
        for b in buffers:
            if total is None or b not in table:
                return None
            total = self.join(total, table[b])
        return total

    def step(self, options: list[int]) -> None:
        """Options of one step: they read what earlier steps wrote."""
        news: list[tuple[dict[int, _Way], int, _Way]] = []
        for i in options:
            reads = self.problem.options[i].reads
            way = self.all_of(reads, self.best) or self.all_of(reads, self.plain)
            own = _Way(self.costs[i], 1 << i, self.blocks[i], frozenset())
            way = way and self.join(way, own)
            if way:
                news += [(self.best, b, w) for b, w in self._written(i, way)]
            if i in self.singles:
                plain = self.all_of(reads, self.plain)
                plain = plain and self.join(plain, own)
                if plain:
                    news += [(self.plain, b, plain) for b in self.problem.options[i].writes]
        for table, b, way in news:
            if b not in table or way.cost < table[b].cost:
                table[b] = way

    def _written(self, i: int, way: _Way) -> list[tuple[int, _Way]]:
        found = [(b, way) for b in self.problem.options[i].writes]
        for b, _ in self.problem.options[i].extras:
            more = self.join(way, _Way(0, 0, 0, frozenset({(i, b)})))
            found += [(b, more)] if more else []
        return found

    def answers(self) -> list[Answer]:
        """Legal answers found, the mixed one and the one of one-op dispatches."""
        found = []
        for table in (self.best, self.plain):
            way = self.all_of(self.problem.roots, table)
            if way:
                chosen = [i for i in range(len(self.costs)) if way.chosen >> i & 1]
                answer = {i: tuple(sorted(b for j, b in way.extras if j == i)) for i in chosen}
                found.append(self.problem.pruned(answer))
        return [a for a in found if self.problem.is_legal(a)]


def greedy(
    problem: ExtractionProblem, singles: frozenset[int], goal: str
) -> list[Answer]:
    """Legal answers, without regard to budgets; `singles` are options with one op each."""
    per_option = 10**12 if goal == "dispatches" else 0
    search = _Search(problem, singles, per_option)
    steps = groupby(range(len(problem.options)), key=lambda i: problem.options[i].step)
    for _, options in steps:
        search.step(list(options))
    return search.answers()
