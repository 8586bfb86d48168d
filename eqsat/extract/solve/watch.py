"""What options say about the peak in every order: which of them hold what while others run.

An *item* is a value that is computed at run time, in whatever layout, or a layout of a value that
is there from the start. Must-analysis over the options (no e-graph here) tells which items every
answer makes, and which of them are made before which: that, and who reads what, is all that is
needed to see what is live at the first dispatch that makes an item.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.extract.solve.presolve import made_before
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.solve.anyorder import AnyOrder

COPIES = 32  # layouts of arguments that are watched


@dataclass(frozen=True)
class Held:
    """An item (the number of its watch) that may be live at the first dispatch of another.

    It has `nbytes` in its smallest layout. It is not counted if the watched dispatch is one of
    `touching`: that reads or writes it itself. Two chosen `makers` mean that it may be made again
    later. It is live if it comes before the watched item and is read later: `always`, by one of
    the options `readers` if that is chosen, or by the dispatch of one of the items `later` if that
    does not come before the watched one.
    """

    item: int
    nbytes: int
    touching: tuple[int, ...]
    makers: tuple[int, ...]
    always: bool
    readers: tuple[int, ...]
    later: tuple[int, ...]


@dataclass(frozen=True)
class Watch:
    """An item of every answer: the options that make it, one of which is the first; what is held.

    `is_once`: only one of them can be chosen. `before` are the watches of items that are always
    made before it, or by the same dispatch.
    """

    options: tuple[int, ...]
    is_once: bool
    before: frozenset[int]
    held: tuple[Held, ...]


@dataclass(frozen=True)
class Copy:
    """A layout of a value that is there from the start, which not every answer makes.

    Per watch that only one chosen option can make: which of them write it, and which read it.
    """

    buffer: int
    nbytes: int
    writers: tuple[tuple[int, tuple[int, ...]], ...]
    readers: tuple[tuple[int, tuple[int, ...]], ...]


def copies(problem: AnyOrder) -> tuple[Copy, ...]:
    """The largest few, in the order of their buffers."""
    found = problem.facts.copies()
    largest = sorted(found, key=lambda c: (-c.nbytes, c.buffer))[:COPIES]
    return tuple(sorted(largest, key=lambda c: c.buffer))


def watches(problem: AnyOrder) -> tuple[Watch, ...]:
    """Items every answer makes, with what may be live meanwhile."""
    return problem.facts.watches()


@dataclass(frozen=True)
class Facts:
    """Who makes and reads which items, and in what order they are made in every answer.

    An item is named by its value, or by its buffer with a minus and one off. Sets of them are bits.
    """

    problem: AnyOrder

    @cached_property
    def _loose(self) -> frozenset[int]:
        """Values that may be had without computing them at run time."""
        p = self.problem
        found = set(p.sources)
        for o, computed in zip(p.options, p.computes, strict=True):
            there = {*computed, *(p.value_of[b] for b in o.reads)}
            found |= {p.value_of[b] for b in o.writes} - there
        return frozenset(found)

    def _items(self, buffers: Iterable[int]) -> set[int]:
        value = self.problem.value_of
        return {-1 - b if value[b] in self._loose else value[b] for b in buffers}

    @cached_property
    def made(self) -> list[set[int]]:
        """Per option: items it makes."""
        p = self.problem
        return [
            {v for v in computed if v not in self._loose}
            | {n for n in self._items(o.writes) if n < 0}
            for o, computed in zip(p.options, p.computes, strict=True)
        ]

    @cached_property
    def reads(self) -> list[set[int]]:
        return [self._items(o.reads) for o in self.problem.options]

    @cached_property
    def written(self) -> list[set[int]]:
        """Per option: items it makes or converts, and writes."""
        return [self._items(o.writes) for o in self.problem.options]

    @cached_property
    def touched(self) -> list[set[int]]:
        """Per option: items it makes, or reads or writes a layout of."""
        return [m | r | w for m, r, w in zip(self.made, self.reads, self.written, strict=True)]

    @cached_property
    def bit(self) -> dict[int, int]:
        items = dict.fromkeys(n for made in self.made for n in sorted(made))
        return {n: 1 << i for i, n in enumerate(items)}

    @cached_property
    def made_bits(self) -> list[int]:
        """Per option: `made` as bits."""
        return [sum(self.bit[n] for n in made) for made in self.made]

    @cached_property
    def before(self) -> list[int]:
        """Per option: items that are made before it, however what it reads is provided, as bits."""
        return self._needs[0]

    @cached_property
    def _needs(self) -> tuple[list[int], dict[int, int]]:
        """Per option the items made before it, per buffer those made until it is written."""
        p, everything = self.problem, sum(self.bit.values())
        before = made_before(p, self.made_bits, everything)
        held = dict.fromkeys(p.writers, everything)
        for i, o in enumerate(p.options):
            for b in o.writes:
                held[b] &= before[i] | self.made_bits[i]
        return before, held

    @cached_property
    def makers(self) -> dict[int, tuple[int, ...]]:
        return _by_item(self.made)

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        return _by_item(self.reads)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Items every answer makes."""
        _, held = self._needs
        total = 0
        for r in self.problem.roots:
            total |= held.get(r, 0)
        return tuple(n for n, bit in self.bit.items() if total & bit)

    @cached_property
    def need(self) -> dict[int, int]:
        """Per needed item: those made before it or with it, as bits."""
        before, found = self.before, {}
        for n in self.needed:
            tick()
            new = sum(self.bit.values())
            for i in self.makers[n]:
                new &= before[i] | self.made_bits[i]
            found[n] = new | self.bit[n]
        return found

    @cached_property
    def nbytes(self) -> dict[int, int]:
        """Per item: bytes of its smallest layout; results are counted elsewhere."""
        p, found = self.problem, {}
        for b in p.writers:
            (item,) = self._items([b])
            size = 0 if b in p.roots else p.nbytes[b]
            found[item] = min(size, found.get(item, size))
        return found

    @cached_property
    def always_read(self) -> dict[int, list[int]]:
        """Per item: the needed items whose makers all read it, or make it themselves."""
        found: dict[int, list[int]] = {}
        for z in self.needed:
            tick()
            sets = [self.made[i] | self.reads[i] for i in self.makers[z]]
            for a in set.intersection(*sets) - {z}:
                found.setdefault(a, []).append(z)
        return found

    @cached_property
    def once(self) -> frozenset[int]:
        """Needed items that one chosen option makes, and no other."""
        return frozenset(n for n in self.needed if self.is_once(n))

    def is_once(self, item: int) -> bool:
        """Whether at most one chosen option makes it."""
        held = [set(self.problem.options[i].exclusive) for i in self.makers[item]]
        return item < 0 or len(held) == 1 or bool(set.intersection(*held))

    def watches(self) -> tuple[Watch, ...]:
        number = {n: i for i, n in enumerate(self.needed)}
        found = []
        for v in self.needed:
            held = [
                self._held(a, v, number, () if a in self.once else self.makers[a])
                for a in self.needed
                if a != v and not self.need[a] & self.bit[v] and self.nbytes.get(a)
            ]
            kept = tuple(h for h in held if h.always or h.readers or h.later)
            before = frozenset(
                number[a] for a in self.needed if a != v and self.need[v] & self.bit[a]
            )
            found.append(Watch(self.makers[v], v in self.once, before, kept))
        return tuple(found)

    def copies(self) -> list[Copy]:
        p, found = self.problem, []
        once = {n: set(self.makers[n]) for n in self.needed if n in self.once}
        number = {n: i for i, n in enumerate(self.needed)}
        for b, writers in p.writers.items():
            tick()
            is_item = -1 - b in number or p.value_of[b] not in self._loose
            if is_item or b in p.roots or not p.nbytes[b]:
                continue
            sides = []
            for options in (set(writers), set(p.readers.get(b, ()))):
                both = ((number[n], tuple(sorted(made & options))) for n, made in once.items())
                sides.append(tuple((n, o) for n, o in both if o))
            if all(sides):
                found.append(Copy(b, p.nbytes[b], *sides))
        return found

    def _held(self, a: int, v: int, number: dict[int, int], makers: tuple[int, ...]) -> Held:
        tick()
        direct = [z for z in self.always_read.get(a, ()) if z != v]
        always = any(self.need[z] & self.bit[v] for z in direct)
        later: tuple[int, ...] = ()
        readers: tuple[int, ...] = ()
        if not always:
            later = tuple(number[z] for z in direct if not self.need[v] & self.bit[z])
            if self.need[v] & self.bit[a]:
                before, bit = self.before, self.bit[v]
                readers = tuple(h for h in self.readers.get(a, ()) if before[h] & bit)
        touching = tuple(i for i in self.makers[v] if a in self.touched[i])
        return Held(number[a], self.nbytes[a], touching, makers, always, readers, later)


def _by_item(sets: list[set[int]]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for i, items in enumerate(sets):
        for n in sorted(items):
            found.setdefault(n, []).append(i)
    return {n: tuple(f) for n, f in found.items()}
