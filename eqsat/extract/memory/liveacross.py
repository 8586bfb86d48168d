"""Sets of items that are live across the moment when an item is first made.

At that moment the answer's dispatches fall into those before, the maker itself, and the later ones.
What a later one reads is carried over the moment, or touched by the maker, or made again later,
from what is carried in its turn. So there is a family of least sets of items that are enough for
all that always comes later; an answer carries one of them, in whatever layouts. A maker, or a later
option, with which no set leaves room is in no answer. Moments that look the same, as those of equal
layers do, are solved once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from eqsat.extract.memory.items import MemoryItems
from eqsat.model.deadline import tick
from eqsat.model.sets import bits, by_key, mask, sum_bits

Family = tuple[int, ...]  # least sets of items, as bits
FREE: Family = (0,)  # nothing needs to be carried
Reads = tuple[int, ...]  # items
Way = tuple[int, Reads]  # items an option makes, as bits, and what it reads
FOR_NOTHING: list[Reads] = [()]  # ways to make an item that nothing is asked for


@dataclass(frozen=True)
class Ways:
    """Ways to make items from items, whatever room there is."""

    facts: MemoryItems

    @cached_property
    def once(self) -> int:
        """Items that one chosen option makes, and no other, as bits."""
        return sum_bits(self.facts.bit[n] for n in self.facts.once)

    @cached_property
    def makers(self) -> dict[int, tuple[Way, ...]]:
        """Per item: ways to make it."""
        return self._ways(self.facts.outputs)

    @cached_property
    def providers(self) -> dict[int, tuple[Way, ...]]:
        """Per item: ways to make it and write it."""
        facts = self.facts
        return self._ways([m & w for m, w in zip(facts.outputs, facts.written, strict=True)])

    def _ways(self, items: list[set[int]]) -> dict[int, tuple[Way, ...]]:
        ways: dict[int, dict[Way, None]] = {}
        for i, outputs in enumerate(items):
            way = self.facts.output_bits[i], tuple(sorted(self.facts.reads[i]))
            for n in outputs:
                ways.setdefault(n, {})[way] = None
        return {n: tuple(w) for n, w in ways.items()}

    @cached_property
    def kinds(self) -> list[tuple[frozenset[int], int]]:
        """Items that options read, and those that read just these, as bits."""
        readers = by_key((frozenset(reads), i) for i, reads in enumerate(self.facts.reads))
        return [(reads, mask(options)) for reads, options in readers.items()]

    @cached_property
    def reading(self) -> dict[int, list[int]]:
        """Per item: the numbers of the kinds that read it."""
        return by_key((n, k) for k, (reads, _) in enumerate(self.kinds) for n in reads)

    def after(self, item: int) -> int:
        """Options that run after an item is made, whenever they do, as bits."""
        at = self.facts.bit[item].bit_length() - 1
        column = self._before[:, at >> 3] >> (at & 7) & 1
        return int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little")

    @cached_property
    def _before(self) -> np.ndarray:
        """Items made before an option, a row of bytes each."""
        width = (len(self.facts.bit) + 7) // 8
        rows = b"".join(b.to_bytes(width, "little") for b in self.facts.before)
        return np.frombuffer(rows, dtype=np.uint8).reshape(-1, width)

    @cached_property
    def following(self) -> dict[int, list[int]]:
        """Per needed item: those that come after it, or with it, the nearest first."""
        need = self.facts.need
        place = {bit.bit_length() - 1: n for n, bit in self.facts.bit.items()}
        needed = sorted(self.facts.needed, key=lambda n: (need[n].bit_count(), n))
        return by_key((place[v], n) for n in needed for v in bits(need[n]) if place[v] != n)


@dataclass(frozen=True)
class Room:
    """Bytes there are for temporaries; `needs`: per option, bytes of its own while it runs."""

    ways: Ways
    nbytes: int
    needs: list[int]
    answers: dict[_Question, tuple[tuple[bool, ...], tuple[bool, ...]]] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class _Question:
    """Makers and later options of one moment, items numbered from 0: equal ones have one answer.

    `ways`: per item, what is read where it is made again later. `needed`: the same for each item
    that is made later whatever is chosen. `makers`: bytes left beside what a maker touches, and
    that, as bits. `later`: what later options read.
    """

    nbytes: tuple[int, ...]
    ways: tuple[tuple[Reads, ...], ...]
    needed: tuple[tuple[Reads, ...], ...]
    makers: tuple[tuple[int, int], ...]
    later: tuple[Reads, ...]

    def answer(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Which makers, and which later options, leave room for what has to be carried."""
        try:
            return _Families(self).answer()
        except _TooMuch:
            return (True,) * len(self.makers), (True,) * len(self.later)


class _TooMuch(Exception):
    """More sets than there is time for."""


class _RoomFor(dict[int, bool]):
    """Whether there is room for a set, asked once."""

    def __init__(self, ask: Callable[[int], bool]):
        super().__init__()
        self._ask = ask

    def __missing__(self, items: int) -> bool:
        self[items] = answer = self._ask(items)
        return answer


class _Families:
    """Least sets of items that are enough, per item and for all that is needed."""

    def __init__(self, question: _Question):
        self.question = question
        self.most = max(room for room, _ in question.makers)
        self.free = sum_bits(touched for _, touched in question.makers)
        self.work = 20_000  # sets that are looked at for one question, before it is given up
        self.sizes: dict[int, int] = {}
        self.has_room = _RoomFor(self._has_room)
        self.together: dict[tuple[Family, Family], Family] = {}
        self.of = [self._least([1 << n]) for n in range(len(question.nbytes))]
        self.changes = 0  # so far
        self.changed = [0] * len(self.of)  # per item: at which change its family became what it is
        self.sets: dict[Reads, tuple[int, Family]] = {}  # what was enough, and after which change

    def _nbytes(self, items: int) -> int:
        if items not in self.sizes:
            self.sizes[items] = sum(self.question.nbytes[n] for n in bits(items))
        return self.sizes[items]

    def _has_room(self, items: int) -> bool:
        """Whether the maker with the most room leaves enough, whatever of it makers touch."""
        return self._nbytes(items & ~self.free) <= self.most

    def _least(self, sets: Iterable[int]) -> Family:
        """The least sets for which there is room: they contain no other one."""
        unique = set(sets)
        self.work -= len(unique)
        if self.work < 0:
            raise _TooMuch
        minimal: list[int] = []
        has_room = self.has_room
        fitting = [s for s in unique if has_room[s]]
        if len(fitting) < 2:
            return tuple(fitting)
        for s in sorted(sorted(fitting), key=int.bit_count):
            for k in minimal:
                if k & s == k:
                    break
            else:
                if len(minimal) == 64:  # sets of a family; if there are more, none is asked for
                    return FREE
                minimal.append(s)
        return tuple(minimal)

    def _all_of(self, families: Iterable[Family]) -> Family:
        """One set of each, together."""
        total = FREE
        for family in families:
            if total == FREE:
                total = family
            elif family not in (FREE, total):
                total = self._both(total, family)
        return total

    def _both(self, one: Family, other: Family) -> Family:
        """One set of each, together: where a set holds one of the other family, that is enough."""
        key = (one, other)
        if key not in self.together:
            alone, apart = _holding_none(one, other), _holding_none(other, one)
            sets = {a | b for a in alone for b in apart}
            sets.update(set(one).difference(alone), set(other).difference(apart))
            self.together[key] = self._least(sets)
        return self.together[key]

    def _read(self, reads: Reads) -> Family:
        """All that is read; stated again only if the family of an item has changed."""
        last = max((self.changed[n] for n in reads), default=0)
        stated, family = self.sets.get(reads, (-1, FREE))
        if stated < last:
            family = self._all_of(self.of[n] for n in reads)
            self.sets[reads] = self.changes, family
        return family

    def _made(self, ways: Iterable[Reads]) -> set[int]:
        return {s for reads in ways for s in self._read(reads)}

    def answer(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        question = self.question
        self._settle()
        total = FREE
        for ways in question.needed:
            total = self._all_of((total, self._least(self._made(ways))))
        makers = tuple(self._fits(m, total) for m in question.makers)
        fitting = [m for m, fits in zip(question.makers, makers, strict=True) if fits]
        later = tuple(
            any(self._fits(m, sets) for m in fitting)
            for sets in (self._all_of((total, self._read(r))) for r in question.later)
        )
        return makers, later

    def _settle(self) -> None:
        """The least fixpoint over the ways to make an item again: nothing is made from itself.

        Of an item only those ways are looked at again that read something whose family changed:
        what the others give is in its family already, or more than a set of it.
        """
        read_by: list[list[tuple[int, Reads]]] = [[] for _ in self.of]
        for n, ways in enumerate(self.question.ways):
            for reads in ways:
                for m in reads:
                    read_by[m].append((n, reads))
        waiting = [set(ways) for ways in self.question.ways]  # those that give something else now
        while any(waiting):
            tick()
            for n, ways in enumerate(waiting):
                if not ways:
                    continue
                waiting[n] = set()
                new = self._least({*self.of[n], *self._made(ways)})
                if new != self.of[n]:
                    self.changes += 1
                    self.of[n], self.changed[n] = new, self.changes
                    for h, reads in read_by[n]:
                        waiting[h].add(reads)

    def _fits(self, maker: tuple[int, int], sets: Family) -> bool:
        room, touched = maker
        return any(self._nbytes(s & ~touched) <= room for s in sets)


def _holding_none(sets: Family, family: Family) -> list[int]:
    """Sets of which no set of the family is part."""
    without = list[int]()
    for items in sets:
        for s in family:
            if s & items == s:
                break
        else:
            without.append(items)
    return without


@dataclass
class Moment:
    """The first making of a needed item, in answers that keep to the room.

    `makers` are those it is about: if not `is_whole`, there are others, and only makers may be
    found to be in no answer.
    """

    room: Room
    item: int
    makers: tuple[int, ...]
    is_whole: bool

    @property
    def facts(self) -> MemoryItems:
        return self.room.ways.facts

    @cached_property
    def _not_later(self) -> int:
        """Items of which no maker runs later."""
        return self.facts.need[self.item] & self.room.ways.once

    def _later_ways(self, ways: Iterable[Way]) -> list[Reads]:
        return list(
            dict.fromkeys(reads for outputs, reads in ways if not outputs & self._not_later)
        )

    @cached_property
    def _needed(self) -> list[list[Reads]]:
        """Ways to make the nearest items that are made later whatever is chosen."""
        outputs = set[int]().union(*(self.facts.outputs[i] for i in self.makers))
        items = [z for z in self.room.ways.following.get(self.item, ()) if z not in outputs]
        # so many later items are asked for, and no more
        return [self._later_ways(self.room.ways.makers[z]) for z in items[:32]]

    @cached_property
    def _ways(self) -> dict[int, list[Reads]]:
        """Per item that has to come from something: ways to make it again, later."""
        ways = {n: w for n, w in self._every_way.items() if n not in self._free}
        return {n: self._least_ways(w) for n, w in ways.items()}

    @cached_property
    def _free(self) -> frozenset[int]:
        """Items that can be made again from nothing that is asked for: no set holds them."""
        free, left = set[int](), dict(self._every_way)
        while more := [n for n, w in left.items() if any(free.issuperset(r) for r in w)]:
            free.update(more)
            for n in more:
                del left[n]
        return frozenset(free)

    def _least_ways(self, ways: Iterable[Reads]) -> list[Reads]:
        """The least reads of ways, without free items; none contains another one.

        What is enough for more is enough for less, so the least sets are the same.
        """
        asked = sorted({frozenset(r) - self._free for r in ways}, key=len)
        least = list[frozenset[int]]()
        for reads in asked:
            if not any(other <= reads for other in least):
                least.append(reads)
        return [tuple(sorted(reads)) for reads in least]

    @cached_property
    def _every_way(self) -> dict[int, list[Reads]]:
        """Per item that may be asked for: ways to make it again, later.

        To go further back does not exclude more, and moments would not look the same.
        """
        waiting = {n for ways in self._needed for reads in ways for n in reads}
        way_of: dict[int, list[Reads]] = {}
        # what is made again from what is made again is not followed further: it costs nothing
        for _ in range(3):
            for n in waiting:
                way_of[n] = self._later_ways(self.room.ways.providers.get(n, ()))
            waiting = {m for n in waiting for reads in way_of[n] for m in reads} - way_of.keys()
        return dict(sorted((way_of | dict.fromkeys(waiting, FOR_NOTHING)).items()))

    @cached_property
    def _number(self) -> dict[int, int]:
        return {n: k for k, n in enumerate(self._ways)}

    def _numbered(self, reads: Iterable[int]) -> Reads:
        return tuple(self._number[n] for n in sorted(reads))

    @cached_property
    def _alike(self) -> dict[tuple[int, int], int]:
        """Makers, as bits, by the bytes left beside what they touch, and that, as bits."""
        by_room: dict[tuple[int, int], int] = {}
        for i in self.makers:
            touched = sum(1 << self._number[n] for n in self.facts.touched[i] & self._number.keys())
            key = self.room.nbytes - self.room.needs[i], touched
            by_room[key] = by_room.get(key, 0) | 1 << i
        return by_room

    @cached_property
    def _later(self) -> dict[Reads, int]:
        """Options that run later, if they are chosen, as bits, by what they read of all this."""
        if not self.is_whole:
            return {}
        ways = self.room.ways
        later, kinds = ways.after(self.item), ways.kinds
        by_reads: dict[Reads, int] = {}
        reading = chain.from_iterable(ways.reading.get(n, ()) for n in self._ways)
        for k in dict.fromkeys(reading):
            reads, options = kinds[k]
            if options & later:
                key = self._numbered(reads & self._number.keys())
                by_reads[key] = by_reads.get(key, 0) | options & later
        return by_reads

    def _question(self) -> _Question:
        def numbered(ways: Iterable[Reads]) -> tuple[Reads, ...]:
            return tuple(sorted(self._numbered(reads) for reads in ways))

        needed = map(self._least_ways, self._needed)
        return _Question(
            tuple(self.facts.nbytes.get(n, 0) for n in self._ways),
            tuple(numbered(ways) for ways in self._ways.values()),
            tuple(sorted({numbered(ways) for ways in needed if () not in ways})),
            tuple(self._alike),
            tuple(self._later),
        )

    def excluded(self) -> set[int]:
        """Options that no answer holds for which there is room; all, if there is no answer."""
        question, answers = self._question(), self.room.answers
        if question not in answers:
            answers[question] = question.answer()
        makers, later = answers[question]
        if self.is_whole and not any(makers):
            return set(range(len(self.facts.outputs)))
        excluded = _without(self._later, later)
        if self.item in self.facts.once:  # else it may be made there again
            excluded |= _without(self._alike, makers)
        return excluded


def _without(groups: Mapping[Any, int], fits: tuple[bool, ...]) -> set[int]:
    """Options of the groups for which there is no room."""
    pairs = zip(groups.values(), fits, strict=True)
    return {i for options, is_kept in pairs if not is_kept for i in bits(options)}
