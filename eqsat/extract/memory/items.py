"""Liveness of columns in every order: which of them hold what while others run.

An *item* is a value that is computed at run time, in whatever layout, or a layout of a value that
is there from the start. Must-analysis over the columns (`choice.must`) tells which items every
answer makes, and which of them are made before which: with the readers of each item, this decides
what is live at the first dispatch that makes an item.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.legal import must
from eqsat.extract.ragged import Ragged
from eqsat.model.deadline import tick
from eqsat.model.sets import bits, by_key, mask, sum_bits


@dataclass(frozen=True)
class HeldItem:
    """An item (the number of its watch) that may be live at the first dispatch of another.

    It has `nbytes` in its smallest layout. It is not counted if the watched dispatch is one of
    `touching`: that reads or writes it itself. Two chosen `makers` mean that it may be made again
    later. It is live if it comes before the watched item and is read later: `always`, by one of
    the columns `readers` if that is chosen, or by the dispatch of one of the items `later` if that
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
class FirstMaking:
    """An item of every answer: the columns that make it, one of which is the first; what is held.

    `is_once`: only one of them can be chosen. `before` are the watches of items that are always
    made before it, or by the same dispatch, as bits.
    """

    options: tuple[int, ...]
    is_once: bool
    before: int
    held: tuple[HeldItem, ...]

    def is_after(self, other: int) -> bool:
        """Whether the item of another watch is always made before this one, or with it."""
        return bool(self.before >> other & 1)


@dataclass(frozen=True)
class MemoryItems:
    """The makers and readers of items, and the order in which every answer makes them.

    An item is named by its value, or by its buffer with a minus and one off. Sets of them are bits.
    """

    choice: Columns

    @cached_property
    def _loose(self) -> frozenset[int]:
        """Values that may be had without computing them at run time."""
        c, value = self.choice, self.choice.facts.value_of
        loose = set(np.flatnonzero(c.facts.is_source).tolist())
        read = c.reads.mapped(value).tuples
        written = c.writes.mapped(value).tuples
        for computed, ins, outs in zip(c.computes.tuples, read, written, strict=True):
            loose.update(set(outs).difference(computed, ins))
        return frozenset(loose)

    @cached_property
    def of_buffer(self) -> list[int]:
        """Per buffer: the item that it is a layout of."""
        loose, value = self._loose, self.choice.facts.value_of.tolist()
        return [-1 - b if v in loose else v for b, v in enumerate(value)]

    def _items(self, buffers: Iterable[int]) -> set[int]:
        return {self.of_buffer[b] for b in buffers}

    @cached_property
    def outputs(self) -> list[set[int]]:
        """Per column: items it makes."""
        c, loose = self.choice, self._loose
        return [
            {v for v in computed if v not in loose} | {n for n in self._items(w) if n < 0}
            for computed, w in zip(c.computes.tuples, c.writes.tuples, strict=True)
        ]

    @cached_property
    def reads(self) -> list[set[int]]:
        return [self._items(r) for r in self.choice.reads.tuples]

    @cached_property
    def written(self) -> list[set[int]]:
        """Per column: items it makes or converts, and writes."""
        return [self._items(w) for w in self.choice.writes.tuples]

    @cached_property
    def touched(self) -> list[set[int]]:
        """Per column: items it makes, or reads or writes a layout of."""
        return [m | r | w for m, r, w in zip(self.outputs, self.reads, self.written, strict=True)]

    @cached_property
    def _touched_with(self) -> dict[int, set[int]]:
        """Per needed item: items that some of its makers make, read or write."""
        return {
            n: set[int]().union(*(self.touched[i] for i in self.makers[n])) for n in self.needed
        }

    @cached_property
    def bit(self) -> dict[int, int]:
        items = dict.fromkeys(n for outputs in self.outputs for n in sorted(outputs))
        return {n: 1 << i for i, n in enumerate(items)}

    @cached_property
    def output_bits(self) -> list[int]:
        """Per column: `outputs` as bits."""
        return [sum_bits(self.bit[n] for n in outputs) for outputs in self.outputs]

    @cached_property
    def before(self) -> list[int]:
        """Per column: items that are made before it, however what it reads is provided, as bits."""
        return self._needs[0]

    @cached_property
    def _needs(self) -> tuple[list[int], dict[int, int]]:
        """Per column the items made before it, per buffer those made until it is written."""
        place, every = {n: i for i, n in enumerate(self.bit)}, (1 << len(self.bit)) - 1
        does = Ragged.of([tuple(sorted(place[n] for n in outputs)) for outputs in self.outputs])
        necessary = must(self.choice, does)

        def numbers(words: np.ndarray) -> list[int]:
            return [int.from_bytes(w.tobytes(), "little") & every for w in words]

        written = np.flatnonzero(self.choice.writers.counts)
        until = zip(written.tolist(), numbers(necessary.until[written]), strict=True)
        return numbers(necessary.before), dict(until)

    @cached_property
    def makers(self) -> dict[int, tuple[int, ...]]:
        return _by_item(self.outputs)

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        return _by_item(self.reads)

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Items every answer makes."""
        _, held = self._needs
        total = sum_bits(held.get(r, 0) for r in self.choice.facts.roots.tolist())
        items = tuple(self.bit)
        return tuple(items[i] for i in bits(total))

    @cached_property
    def need(self) -> dict[int, int]:
        """Per needed item: those made before it or with it, as bits."""
        before = self.before
        need, everything = {}, (1 << len(self.bit)) - 1
        for n in self.needed:
            tick()
            new = everything
            for i in self.makers[n]:
                new &= before[i] | self.output_bits[i]
            need[n] = new | self.bit[n]
        return need

    @cached_property
    def _behind(self) -> dict[int, int]:
        """Per needed item: the needed ones made behind it or with it, as bits."""
        later: dict[int, list[int]] = {n: [] for n in self.needed}
        items = tuple(self.bit)
        for n in self.needed:
            tick()
            at = self.bit[n].bit_length() - 1
            for i in bits(self.need[n]):
                if items[i] in later:
                    later[items[i]].append(at)
        return {n: mask(behind) for n, behind in later.items()}

    @cached_property
    def nbytes(self) -> dict[int, int]:
        """Per item: bytes of its smallest layout; results are counted elsewhere."""
        sizes: dict[int, int] = {}
        nbytes = self.choice.facts.temporary
        for b in np.flatnonzero(self.choice.writers.counts).tolist():
            item, size = self.of_buffer[b], int(nbytes[b])
            sizes[item] = min(size, sizes.get(item, size))
        return sizes

    @cached_property
    def always_read(self) -> dict[int, list[int]]:
        """Per item: the needed items whose makers all read it, or make it themselves."""
        readers: dict[int, list[int]] = {}
        for z in self.needed:
            tick()
            sets = [self.outputs[i] | self.reads[i] for i in self.makers[z]]
            for a in set.intersection(*sets) - {z}:
                readers.setdefault(a, []).append(z)
        return readers

    @cached_property
    def once(self) -> frozenset[int]:
        """Needed items that one chosen column makes, and no other."""
        return frozenset(n for n in self.needed if self.is_once(n))

    def is_once(self, item: int) -> bool:
        """Whether at most one chosen column makes it."""
        held = [set(self.choice.exclusive.tuples[i]) for i in self.makers[item]]
        return item < 0 or len(held) == 1 or bool(set.intersection(*held))

    @cached_property
    def watches(self) -> tuple[FirstMaking, ...]:
        """Items every answer makes, with what may be live meanwhile."""
        number = {n: i for i, n in enumerate(self.needed)}
        items = tuple(self.bit)
        held: dict[int, list[HeldItem]] = {n: [] for n in self.needed}
        for a in self.needed:
            if not self.nbytes.get(a):
                continue
            makers = () if a in self.once else self.makers[a]
            always, perhaps = self._live_while(a)
            for i in bits(always | perhaps):
                v = items[i]
                held[v].append(self._held(a, v, number, makers, always=bool(always >> i & 1)))
        place = {self.bit[n].bit_length() - 1: i for n, i in number.items()}
        before = {
            n: mask(place[i] for i in bits(self.need[n] & ~self.bit[n]) if i in place)
            for n in self.needed
        }
        return tuple(
            FirstMaking(self.makers[v], v in self.once, before[v], tuple(held[v]))
            for v in self.needed
        )

    @cached_property
    def _needed_bits(self) -> int:
        return sum_bits(self.bit[n] for n in self.needed)

    def _live_while(self, a: int) -> tuple[int, int]:
        """Needed items, as bits, at whose first dispatch an item is read later always; or may be.

        Neither of them holds what is always made before the item.
        """
        tick()
        others = self._needed_bits & ~self.need[a]
        direct = self.always_read.get(a, ())
        always = sum_bits(self.need[z] & ~self.bit[z] for z in direct) & others
        perhaps = sum_bits(others & ~self._behind[z] & ~self.bit[z] for z in direct)
        behind = self._behind[a] & others
        if behind & ~(always | perhaps):
            before = self.before
            perhaps |= sum_bits(before[h] for h in self.readers.get(a, ())) & behind
        return always, perhaps & ~always

    def _held(
        self, a: int, v: int, number: dict[int, int], makers: tuple[int, ...], *, always: bool
    ) -> HeldItem:
        later: tuple[int, ...] = ()
        readers: tuple[int, ...] = ()
        if not always:
            direct = self.always_read.get(a, ())
            later = tuple(number[z] for z in direct if z != v and not self.need[v] & self.bit[z])
            if self.need[v] & self.bit[a]:
                before = self.before
                readers = tuple(h for h in self.readers.get(a, ()) if before[h] & self.bit[v])
        touched = self._touched_with[v]
        touching = tuple(i for i in self.makers[v] if a in self.touched[i]) if a in touched else ()
        return HeldItem(number[a], self.nbytes[a], touching, makers, always, readers, later)


def _by_item(sets: list[set[int]]) -> dict[int, tuple[int, ...]]:
    by_item = by_key((n, i) for i, items in enumerate(sets) for n in sorted(items))
    return {n: tuple(columns) for n, columns in by_item.items()}
