"""Which columns fit into so many bytes, in any order, and how many bytes every answer needs.

Bytes are those of what is there all the time (arguments, results, weights), and of what is live
when a dispatch runs. Of both, must-analysis (`items`) tells what no answer does without:

* a weight is kept if some needed item is made from it by every column that may do so;
* when a column runs, what it reads and writes is live, and so is an item that was made before, and
  that something which always comes later reads.

A column that needs more than the cap with all that is in no answer that keeps the cap. Nor is one
that leaves no room for what has to be carried meanwhile (`carried`). What is left needs more, so
this is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.legal import presolved
from eqsat.extract.memory.items import MemoryItems
from eqsat.extract.memory.liveacross import Moment, Room, Ways
from eqsat.extract.ragged import Ints
from eqsat.model.deadline import tick
from eqsat.model.sets import bits, sum_bits

ENOUGH = 0.3  # of the columns: if more are left, a further round is not worth its time


@dataclass(frozen=True)
class Fits:
    """Must-analysis of the bytes of one choice; it remembers what it was asked."""

    choice: Columns
    fitting: dict[int, Ints] = field(default_factory=dict)  # per cap: columns that fit

    @cached_property
    def facts(self) -> MemoryItems:
        return MemoryItems(self.choice)

    # ---- weights -----------------------------------------------------------------------------
    @cached_property
    def weights(self) -> list[dict[int, int]]:
        """Per column: bytes of each weight it keeps, in the layouts it reads."""
        facts, by_set = self.choice.facts, dict[tuple[int, ...], dict[int, int]]()
        value, nbytes = facts.value_of.tolist(), facts.kept_bytes.tolist()
        for resident in self.choice.resident.tuples:
            if resident not in by_set:
                sizes = by_set[resident] = {}
                for b in resident:
                    sizes[value[b]] = sizes.get(value[b], 0) + nbytes[b]
        return [by_set[resident] for resident in self.choice.resident.tuples]

    @cached_property
    def least_weights(self) -> dict[int, int]:
        """Weights every answer keeps, and their bytes at the least."""
        least: dict[int, int] = {}
        for n in self.facts.needed:
            tick()
            every = {id(w): w for w in (self.weights[i] for i in self.facts.makers[n])}
            sides = list(every.values())
            for w in set(sides[0]).intersection(*sides[1:]):
                least[w] = max(least.get(w, 0), min(s[w] for s in sides))
        return least

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes that are there all the time in every answer."""
        return self.choice.facts.fixed_bytes + sum(self.least_weights.values())

    @cached_property
    def extra(self) -> list[int]:
        """Per column: bytes of weights beyond those."""
        extra: dict[int, int] = {}
        for w in self.weights:
            if id(w) not in extra:
                extra[id(w)] = sum(max(n - self.least_weights.get(v, 0), 0) for v, n in w.items())
        return [extra[id(w)] for w in self.weights]

    # ---- temporaries -------------------------------------------------------------------------
    @cached_property
    def _read_later(self) -> dict[int, int]:
        """Per item: items that are surely read behind its first making, or with it."""
        facts, later = self.facts, dict[int, int]()
        for a, users in facts.always_read.items():
            if a in facts.once and facts.nbytes.get(a):
                tick()
                for v in bits(sum_bits(facts.need[z] for z in users)):
                    later[v] = later.get(v, 0) | facts.bit[a]
        return later

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
    def touched(self) -> list[int]:
        return self.choice.touched_bytes.tolist()

    @cached_property
    def live(self) -> list[int]:
        """Per column: bytes of temporaries that are live when it runs, at the least."""
        facts, touched, live = self.facts, self.touched, []
        for i, outputs in enumerate(facts.outputs):
            tick()
            later = sum_bits(self._later(n) for n in outputs if n in facts.once)
            live.append(touched[i] + self._held(i, later))
        return live

    @cached_property
    def least(self) -> list[tuple[int, int]]:
        """Per needed item: (bytes live when it is first made, at the least; the item)."""
        facts, touched, least = self.facts, self.touched, []
        for n in facts.needed:
            tick()
            later = self._later(n)
            first = (
                max(self.live[i], touched[i] + self._held(i, later)) + self.extra[i]
                for i in facts.makers[n]
            )
            least.append((min(first), n))
        return least

    @property
    def least_bytes(self) -> int:
        """A proven lower bound of peak bytes, in any order."""
        return self.fixed_bytes + max((n for n, _ in self.least), default=0)

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self.facts)

    # ---- under a cap -------------------------------------------------------------------------
    def _within(self, cap: int) -> Ints:
        """Columns that answers of at most `cap` bytes may hold, after one round."""
        room = cap - self.fixed_bytes
        columns = {i for i, n in enumerate(self.live) if n + self.extra[i] <= room}
        if any(columns.isdisjoint(self.facts.makers[n]) for n in self.facts.needed):
            return np.zeros(0, dtype=np.int64)
        for moment in self._moments(columns, room):
            columns -= moment.excluded()
            if not columns:
                break
        return np.array(sorted(columns), dtype=np.int64)

    def _moments(self, columns: set[int], room: int) -> Iterator[Moment]:
        """Items whose makers leave less room than the largest item takes, the tightest first."""
        facts = self.facts
        needs = [n + more for n, more in zip(self.touched, self.extra, strict=True)]
        sides, large = Room(self._ways, room, needs), max(facts.nbytes.values(), default=0)
        for _, item in sorted(self.least, reverse=True):
            makers = tuple(i for i in facts.makers[item] if i in columns)
            tight = tuple(i for i in makers if room - needs[i] < large)
            if tight:
                yield Moment(sides, item, tight, len(tight) == len(makers))

    def within(self, cap: int) -> Ints:
        """Columns that answers of at most `cap` bytes may hold, in any order; none: no answer.

        (Or, of a program without dispatches, nothing to choose.) What fits into fewer bytes fits
        into more: where those are nearly all columns, the others are left in without a look.
        """
        if cap not in self.fitting:
            fewer = max((c for c in self.fitting if c < cap), default=None)
            is_told = fewer is not None and self.is_most(self.fitting[fewer])
            self.fitting[cap] = np.arange(len(self.choice)) if is_told else self._settled(cap)
        return self.fitting[cap]

    def _settled(self, cap: int) -> Ints:
        fits, columns = self, np.arange(len(self.choice))
        for _ in range(8):  # each takes columns away, or it was the last
            before = len(columns)
            fitting = fits._within(cap)
            if len(fitting) < before:
                small = fits.choice.take(fitting)
                useful = presolved(small, in_both=False)
                columns, fits = columns[fitting[useful]], Fits(small.take(useful))
            if not fits.choice.has_writers:
                return columns[:0]
            if len(columns) > ENOUGH * before:
                break
        return columns

    def is_most(self, columns: Ints) -> bool:
        """Whether nearly all columns fit, so that it says little about bytes."""
        return len(columns) > 0.75 * len(self.choice)  # if as many fit, it says little

    def excludes(self, cap: int) -> bool:
        """Whether no answer fits into so many bytes, in any order."""
        return not len(self.within(cap)) and len(self.choice.facts.roots) > 0


def least_fitting(fits: Fits, cap: int) -> int | None:
    """The fewest bytes, `cap` at most, that something fits into; None if nothing fits into it.

    No answer of at most `cap` bytes needs less, in any order.
    """
    low, unit = fits.least_bytes, fits.choice.byte_unit
    if low > cap or not len(fits.within(cap)):
        return None
    if len(fits.within(low)):
        return low
    steps = -(-(cap - low) // unit)  # something fits into so many units more; low is too little
    none, some = 0, steps
    while some - none > 1:
        middle = (none + some) // 2
        if len(columns := fits.within(low + middle * unit)):
            some = middle
            if len(columns) < ENOUGH * len(fits.choice):
                fits = Fits(fits.choice.take(columns))  # what is left out fits into no less either
        else:
            none = middle
    return min(low + some * unit, cap)
