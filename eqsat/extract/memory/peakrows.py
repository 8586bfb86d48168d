"""Peak bytes as rows of a statement: exactly under an order, and at least in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from eqsat.extract.choice.columns import MEMORY
from eqsat.extract.choice.rows import cliques_of
from eqsat.extract.choice.statement import Statement, Terms
from eqsat.extract.memory.items import FirstMaking, HeldItem, MemoryItems
from eqsat.extract.ragged import Ints
from eqsat.model.bitsets import bits, mask
from eqsat.model.deadline import tick

PAIRS = 3_000  # of items in either order: with more, none gets a literal
TRIPLES = 20_000  # of them that are kept from running in a circle


def _peak(told: Statement, caps: Mapping[str, int]) -> tuple[int, int, Terms]:
    """(the amount, its unit, what weights add)."""
    choice = told.choice
    unit = choice.byte_unit
    peak = told.amount(MEMORY, caps.get(MEMORY, choice.most_bytes), unit)
    weights = told.kept_weights()
    told.bound(weights, choice.facts.fixed_bytes, peak, unit)
    return peak, unit, weights


# ---- under an order ------------------------------------------------------------------------------
def under_an_order(told: Statement, caps: Mapping[str, int]) -> None:
    """peak >= fixed bytes + weights + what is live, at each step.

    A temporary is live from the step that writes it to the last step that reads it. "Still read at
    a step" is one literal per buffer and step with readers, monotone over the steps.
    """
    choice, (peak, unit, weights) = told.choice, _peak(told, caps)
    assert choice.step is not None
    live = _Live(told, choice.step)
    nbytes = choice.facts.temporary
    for b in np.flatnonzero((choice.writers.counts > 0) & (nbytes > 0)).tolist():
        live.buffer(b, int(nbytes[b]))
    for step in sorted({*live.written, *live.held}):
        tick()
        terms = [*live.written.get(step, {}).items(), *live.held.get(step, ())]
        told.bound(terms + weights, choice.facts.fixed_bytes, peak, unit)


@dataclass
class _Live:
    """Per step: bytes that its columns write, and of buffers that are still read."""

    told: Statement
    step: Ints
    written: dict[int, dict[int, int]] = field(default_factory=dict)
    held: dict[int, Terms] = field(default_factory=dict)

    @cached_property
    def every(self) -> Ints:
        return np.unique(self.step)

    def buffer(self, buffer: int, size: int) -> None:
        choice, step = self.told.choice, self.step
        at: dict[int, list[int]] = {}
        for i in choice.writers[buffer].tolist():
            at.setdefault(int(step[i]), []).append(i)
            own = self.written.setdefault(int(step[i]), {})
            own[i] = own.get(i, 0) + size
        read = self._still_read(buffer)
        first, last_write = min(at), max(at)
        last = max(last_write, max(read, default=-1))
        known: dict[tuple[int, int], int] = {}
        before: list[int] = []
        reads = sorted(read)
        for now in self._steps(first, last):
            tick()
            later = next((read[s] for s in reads if s >= now), None)
            if later is not None and before:
                live = later
                if now <= last_write:
                    key = len(before), later
                    if key not in known:
                        known[key] = self.told.both(later, tuple(before))
                    live = known[key]
                self.held.setdefault(now, []).append((live, size))
            before += at.get(now, ())

    def _steps(self, first: int, last: int) -> list[int]:
        steps = self.every
        return steps[np.searchsorted(steps, first) : np.searchsorted(steps, last, "right")].tolist()

    def _still_read(self, buffer: int) -> dict[int, int]:
        """Per step with readers: the literal "read here or later"."""
        readers = self.told.choice.readers[buffer]
        found: dict[int, int] = {}
        later: int | None = None
        for step in np.unique(self.step[readers])[::-1].tolist():
            tick()
            seen = readers[self.step[readers] >= step]
            news = set(readers[self.step[readers] == step].tolist())
            cliques = cliques_of(self.told.choice, seen)
            later = self.told.true_with([c for c in cliques if not news.isdisjoint(c)], later)
            found[step] = later
        return found


# ---- in any order --------------------------------------------------------------------------------
def unordered_pairs(items: MemoryItems) -> list[tuple[int, int]]:
    """Pairs of watches of which necessity tells no order, both ways; not many too many."""
    behind: list[list[int]] = [[] for _ in items.watches]
    for n, w in enumerate(items.watches):
        for u in bits(w.before):
            behind[u].append(n)
    everything, found = (1 << len(behind)) - 1, []
    for n, w in enumerate(items.watches):
        free = everything & ~(w.before | mask(behind[n]) | 1 << n)
        found += [(n, other) for other in bits(free)]
        if len(found) > PAIRS:
            break
    return found


class InAnyOrder:
    """peak >= fixed bytes + weights + what is live at the first making of each item.

    pairs: where necessity does not tell which of two items comes first, a literal does. is_short:
    only what is certain to be live, which is what a linear relaxation gets.
    """

    def __init__(
        self,
        items: MemoryItems,
        caps: Mapping[str, int],
        *,
        pairs: bool = False,
        is_short: bool = False,
    ):
        self.items, self.caps, self.pairs, self.is_short = items, caps, pairs, is_short

    def __call__(self, told: Statement) -> None:
        self.told, choice = told, told.choice
        self.first: dict[tuple[int, int], int] = {}  # (a, b): a is computed before b, or with it
        self._again: dict[tuple[int, ...], int] = {}
        self.peak, self.unit, self.weights = _peak(told, self.caps)
        self.own = choice.touched_bytes.tolist()
        if self.pairs:
            self._orders()
        watched: set[int] = set()
        for n, w in enumerate(self.items.watches):
            if w.is_once or not self.is_short:
                self._watch(n, w)
            watched.update(w.options if w.is_once else ())
        by_write: dict[int, Terms] = {}
        for i, writes in enumerate(choice.writes.tuples):
            if i not in watched and self.own[i]:
                by_write.setdefault(writes[0], []).append((i, self.own[i]))
        for terms in by_write.values():  # one of them at most
            self._at_most(terms)

    def _at_most(self, terms: Terms, base: int = 0) -> None:
        fixed = self.told.choice.facts.fixed_bytes
        self.told.bound(terms + self.weights, fixed + base, self.peak, self.unit)

    def _orders(self) -> None:
        """Literals for pairs in either order, and that they make an order with what is known."""
        watches, told, free = self.items.watches, self.told, unordered_pairs(self.items)
        if len(free) > PAIRS:
            return
        self.first = first = {pair: told.literal() for pair in free}
        for (a, b), literal in first.items():
            tick()
            if a < b:
                told.some([literal, first[b, a]])
            for u in bits(watches[a].before):
                if (u, b) in first:
                    told.some([first[u, b]], [literal])
                if (b, u) in first and (b, a) in first:
                    told.some([first[b, a]], [first[b, u]])
        triples = 0
        for (a, b), literal in first.items():
            tick()
            for c in range(len(watches)):
                if (b, c) in first and (a, c) in first and triples < TRIPLES:
                    triples += 1
                    told.some([first[a, c]], [literal, first[b, c]])

    def _watch(self, number: int, watch: FirstMaking) -> None:
        told = self.told
        first = {i: i for i in watch.options}
        if not watch.is_once and len(first) > 1:
            first = {i: told.literal() for i in watch.options}
            for i, v in first.items():
                told.some([i], [v])
            told.rows.add(1, 1, first.values())
        terms: Terms = [(v, self.own[i]) for i, v in first.items()]
        base = 0
        for h in watch.held:
            live = self._live(number, watch, h, first)
            if live is None:
                base += h.nbytes
            elif live >= 0:
                terms.append((live, h.nbytes))
        self._at_most(terms, base)

    def _live(
        self, number: int, watch: FirstMaking, held: HeldItem, first: Mapping[int, int]
    ) -> int | None:
        """A literal that is true if the value is live: there before, read later, not touched here
        nor computed again; None: it always is; -1: nothing says so."""
        tick()
        excuses, negated = [first[i] for i in held.touching], list[int]()
        if len(held.makers) > 1:
            excuses.append(self._computed_again(held.makers))
        if not watch.is_after(held.item):
            if (held.item, number) not in self.first:
                return -1
            negated.append(self.first[held.item, number])
        if self.is_short and (len(held.makers) > 1 or negated):
            return -1
        if held.always and not excuses and not negated:
            return None
        reasons = self._reasons(number, held)
        if not reasons or (self.is_short and held.touching and not held.always):
            return -1
        live = self.told.literal()
        for unless, needs in reasons:
            self.told.some([live, *excuses, *unless], [*negated, *needs])
        return live

    def _reasons(self, number: int, held: HeldItem) -> list[tuple[list[int], list[int]]]:
        """Each: the value is read behind the watched one, unless one of some literals is true, or
        one of others false."""
        if held.always:
            return [([], [])]
        later = [self.first[z, number] for z in held.later if (z, number) in self.first]
        found: list[tuple[list[int], list[int]]] = [([v], []) for v in later]
        if held.readers:
            read = self.told.any_of(np.array(held.readers, dtype=np.int64))
            found.append(([], [read]))
        return found

    def _computed_again(self, makers: tuple[int, ...]) -> int:
        if makers not in self._again:
            again = self.told.literal()
            self.told.rows.add(0, float("inf"), makers, [again, again])
            self._again[makers] = again
        return self._again[makers]
