"""Which options fit into so many bytes, in any order, and how many bytes every answer needs.

Bytes are those of what is there all the time (arguments, results, weights), and of what is live
when a dispatch runs. Of both, must-analysis (`watch.PeakFacts`) tells what no answer does without:

* a weight is kept if some needed item is made from it by every option that may do so;
* when an option runs, what it reads and writes is live, and so is an item that was made before, and
  that something which always comes later reads.

An option that needs more than the cap with all that is in no answer that keeps the cap. Nor is one
that leaves no room for what has to be carried meanwhile (`carried`). What is left needs more, so
this is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.solve.carried import Moment, Room
from eqsat.extract.solve.presolve import presolve
from eqsat.extract.solve.watch import PeakFacts
from eqsat.model.bitsets import bits, sum_bits
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.solve.anyorder import AnyOrder

ROUNDS = 8  # each takes options away, or it was the last
ENOUGH = 0.3  # of the options: if more are left, a further round is not worth its time


@dataclass(frozen=True)
class Fits:
    """What must-analysis says about the bytes of one problem."""

    problem: AnyOrder

    @property
    def facts(self) -> PeakFacts:
        return self.problem.facts

    # ---- weights -----------------------------------------------------------------------------
    @cached_property
    def weights(self) -> list[dict[int, int]]:
        """Per option: bytes of each weight it keeps, in the layouts it reads."""
        p, known = self.problem, dict[tuple[int, ...], dict[int, int]]()
        for o in p.options:
            if o.resident not in known:
                found = known[o.resident] = {}
                for b in o.resident:
                    found[p.value_of[b]] = found.get(p.value_of[b], 0) + p.kept_bytes(b)
        return [known[o.resident] for o in p.options]

    @cached_property
    def kept(self) -> dict[int, int]:
        """Weights every answer keeps, and their bytes at the least."""
        found: dict[int, int] = {}
        for n in self.facts.needed:
            tick()
            every = {id(w): w for w in (self.weights[i] for i in self.facts.makers[n])}
            sides = list(every.values())
            for w in set(sides[0]).intersection(*sides[1:]):
                found[w] = max(found.get(w, 0), min(s[w] for s in sides))
        return found

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes that are there all the time in every answer."""
        return self.problem.fixed_bytes + sum(self.kept.values())

    @cached_property
    def extra(self) -> list[int]:
        """Per option: bytes of weights beyond those."""
        known: dict[int, int] = {}
        for w in self.weights:
            if id(w) not in known:
                known[id(w)] = sum(max(n - self.kept.get(v, 0), 0) for v, n in w.items())
        return [known[id(w)] for w in self.weights]

    # ---- temporaries -------------------------------------------------------------------------
    @cached_property
    def _read_later(self) -> dict[int, int]:
        """Per item: items that are surely read behind its first making, or with it."""
        facts, found = self.facts, dict[int, int]()
        for a, users in facts.always_read.items():
            if a in facts.once and facts.nbytes.get(a):
                tick()
                for v in bits(sum_bits(facts.need[z] for z in users)):
                    found[v] = found.get(v, 0) | facts.bit[a]
        return found

    @cached_property
    def _sizes(self) -> list[int]:
        """Bytes of an item by the place of its bit; 0 if it may be made twice."""
        facts = self.facts
        return [facts.nbytes.get(n, 0) if n in facts.once else 0 for n in facts.bit]

    def _held(self, option: int, later: int) -> int:
        facts = self.facts
        held = later & facts.before[option] & ~self._touched[option]
        return sum(self._sizes[n] for n in bits(held)) if held else 0

    @cached_property
    def _touched(self) -> list[int]:
        bit = self.facts.bit
        return [sum_bits(bit.get(n, 0) for n in t) for t in self.facts.touched]

    def _later(self, item: int) -> int:
        return self._read_later.get(self.facts.bit[item].bit_length() - 1, 0)

    @cached_property
    def live(self) -> list[int]:
        """Per option: bytes of temporaries that are live when it runs, at the least."""
        facts, p, found = self.facts, self.problem, []
        for i, made in enumerate(facts.made):
            tick()
            later = sum_bits(self._later(n) for n in made if n in facts.once)
            found.append(p.own_bytes(i) + self._held(i, later))
        return found

    @cached_property
    def least(self) -> list[tuple[int, int]]:
        """Per needed item: (bytes live when it is first made, at the least; the item)."""
        facts, p, found = self.facts, self.problem, []
        for n in facts.needed:
            tick()
            later = self._later(n)
            first = (
                max(self.live[i], p.own_bytes(i) + self._held(i, later)) + self.extra[i]
                for i in facts.makers[n]
            )
            found.append((min(first), n))
        return found

    @property
    def least_bytes(self) -> int:
        """A proven lower bound of peak bytes, in any order."""
        return self.fixed_bytes + max((n for n, _ in self.least), default=0)

    # ---- under a cap -------------------------------------------------------------------------
    def within(self, cap: int) -> tuple[int, ...]:
        """Options that answers of at most `cap` bytes may hold."""
        room = cap - self.fixed_bytes
        kept = {i for i, n in enumerate(self.live) if n + self.extra[i] <= room}
        if any(kept.isdisjoint(self.facts.makers[n]) for n in self.facts.needed):
            return ()
        for moment in self._moments(kept, room):
            kept -= moment.excluded()
            if not kept:
                break
        return tuple(sorted(kept))

    def _moments(self, kept: set[int], room: int) -> Iterator[Moment]:
        """Items whose makers leave less room than the largest item takes, the tightest first."""
        facts = self.facts
        needs = [self.problem.own_bytes(i) + n for i, n in enumerate(self.extra)]
        sides, large = Room(facts, room, needs), max(facts.nbytes.values(), default=0)
        for _, item in sorted(self.least, reverse=True):
            makers = tuple(i for i in facts.makers[item] if i in kept)
            tight = tuple(i for i in makers if room - needs[i] < large)
            if tight:
                yield Moment(sides, item, tight, len(tight) == len(makers))


def fitting(problem: AnyOrder, cap: int) -> tuple[int, ...]:
    """Options that answers of at most `cap` bytes may hold, in any order; none if there is none.

    A problem remembers what it was asked.
    """
    if cap not in problem.fitting:
        problem.fitting[cap] = _fitting(problem, cap)
    return problem.fitting[cap]


def _fitting(problem: AnyOrder, cap: int) -> tuple[int, ...]:
    kept = tuple(range(len(problem.options)))
    for _ in range(ROUNDS):
        before = len(kept)
        found = problem.fits.within(cap)
        if len(found) < before:
            small = problem.restricted(found)
            useful = presolve(small)
            kept, problem = tuple(kept[found[i]] for i in useful), small.restricted(useful)
        if not problem.writers.keys() >= set(problem.roots):
            return ()
        if len(kept) > ENOUGH * before:
            break
    return kept


def least_fitting(problem: AnyOrder, cap: int, guess: int | None = None) -> int | None:
    """The fewest bytes, `cap` at most, that something fits into; None if nothing fits into it.

    No answer of at most `cap` bytes needs less, in any order. guess: what is tried first.
    """
    low, unit = problem.fits.least_bytes, problem.byte_unit
    if low > cap or not fitting(problem, cap):
        return None
    if fitting(problem, low):
        return low
    steps = -(-(cap - low) // unit)  # something fits into so many units more; low is too little
    none, some = 0, steps
    tried = [] if guess is None else [(guess - low) // unit, (guess - low) // unit - 1]
    while some - none > 1:
        middle = tried.pop(0) if tried else (none + some) // 2
        if not none < middle < some:
            continue
        if kept := fitting(problem, low + middle * unit):
            some = middle
            if len(kept) < ENOUGH * len(problem.options):
                problem = problem.restricted(kept)  # what is left out fits into no less either
        else:
            none = middle
    return min(low + some * unit, cap)
