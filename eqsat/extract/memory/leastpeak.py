"""The least peak of memory in any order: mostly without a row of bytes, at last with such rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eqsat.extract.choice.columns import MEMORY, Answer
from eqsat.extract.choice.legal import presolved
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.choice.statement import Statement, Terms
from eqsat.extract.memory.items import FirstMaking, HeldItem, MemoryItems
from eqsat.extract.memory.memoryfilter import Fits, least_fitting
from eqsat.extract.ragged import Ints
from eqsat.model.deadline import INTERRUPTED, OUT_OF_TIME, elapsed, tick
from eqsat.model.sets import bits, by_key, mask

if TYPE_CHECKING:
    from eqsat.extract.choice.relax import Least
    from eqsat.extract.minimisation import Minimisation


PAIRS = 3_000  # of items in either order: with more, none gets a literal


def _peak(statement: Statement, caps: Mapping[str, int]) -> tuple[int, int, Terms]:
    """(the amount, its unit, what weights add)."""
    choice = statement.choice
    unit = choice.byte_unit
    peak = statement.amount(MEMORY, caps.get(MEMORY, choice.most_bytes), unit)
    weights = statement.kept_weights()
    statement.bound(weights, choice.facts.fixed_bytes, peak, unit)
    return peak, unit, weights


def unordered_pairs(items: MemoryItems) -> list[tuple[int, int]]:
    """Pairs of watches of which necessity tells no order, both ways; not many too many."""
    behind: list[list[int]] = [[] for _ in items.watches]
    for n, w in enumerate(items.watches):
        for u in bits(w.before):
            behind[u].append(n)
    everything, pairs = (1 << len(behind)) - 1, []
    for n, w in enumerate(items.watches):
        free = everything & ~(w.before | mask(behind[n]) | 1 << n)
        pairs += [(n, other) for other in bits(free)]
        if len(pairs) > PAIRS:
            break
    return pairs


class InAnyOrder:
    """peak >= fixed bytes + weights + what is live at the first making of each item.

    pairs: those of which necessity does not tell which comes first, so that a literal does
    (`unordered_pairs`). is_short: only what is certain to be live, which is what a linear
    relaxation gets.
    """

    def __init__(
        self,
        items: MemoryItems,
        caps: Mapping[str, int],
        *,
        pairs: Sequence[tuple[int, int]] = (),
        is_short: bool = False,
    ):
        self.items, self.caps, self.pairs, self.is_short = items, caps, pairs, is_short

    def __call__(self, statement: Statement) -> None:
        self.statement, choice = statement, statement.choice
        self.first: dict[tuple[int, int], int] = {}  # (a, b): a is computed before b, or with it
        self._again: dict[tuple[int, ...], int] = {}
        self.peak, self.unit, self.weights = _peak(statement, self.caps)
        self.touched = choice.touched_bytes.tolist()
        self._orders()
        watched: set[int] = set()
        for n, w in enumerate(self.items.watches):
            if w.is_once or not self.is_short:
                self._watch(n, w)
            watched.update(w.options if w.is_once else ())
        by_write = by_key(
            (writes[0], (i, self.touched[i]))
            for i, writes in enumerate(choice.writes.tuples)
            if i not in watched and self.touched[i]
        )
        for terms in by_write.values():  # one of them at most
            self._at_most(terms)

    def _at_most(self, terms: Terms, base: int = 0) -> None:
        fixed = self.statement.choice.facts.fixed_bytes
        self.statement.bound(terms + self.weights, fixed + base, self.peak, self.unit)

    def _orders(self) -> None:
        """Literals for pairs in either order, and that they make an order with what is known."""
        watches, statement = self.items.watches, self.statement
        self.first = first = {pair: statement.literal() for pair in self.pairs}
        for (a, b), literal in first.items():
            tick()
            if a < b:
                statement.some([literal, first[b, a]])
            for u in bits(watches[a].before):
                if (u, b) in first:
                    statement.some([first[u, b]], [literal])
                if (b, u) in first and (b, a) in first:
                    statement.some([first[b, a]], [first[b, u]])
        triples = 0
        for (a, b), literal in first.items():
            tick()
            for c in range(len(watches)):
                # so many of them are kept from running in a circle
                if (b, c) in first and (a, c) in first and triples < 20_000:
                    triples += 1
                    statement.some([first[a, c]], [literal, first[b, c]])

    def _watch(self, number: int, watch: FirstMaking) -> None:
        statement = self.statement
        first = {i: i for i in watch.options}
        if not watch.is_once and len(first) > 1:
            first = {i: statement.literal() for i in watch.options}
            for i, v in first.items():
                statement.some([i], [v])
            statement.rows.add(1, 1, first.values())
        terms: Terms = [(v, self.touched[i]) for i, v in first.items()]
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
        live = self.statement.literal()
        for unless, needs in reasons:
            self.statement.some([live, *excuses, *unless], [*negated, *needs])
        return live

    def _reasons(self, number: int, held: HeldItem) -> list[tuple[list[int], list[int]]]:
        """Each: the value is read behind the watched one, unless one of some literals is true, or
        one of others false."""
        if held.always:
            return [([], [])]
        later = [self.first[z, number] for z in held.later if (z, number) in self.first]
        reasons: list[tuple[list[int], list[int]]] = [([v], []) for v in later]
        if held.readers:
            read = self.statement.any_of(np.array(held.readers, dtype=np.int64))
            reasons.append(([], [read]))
        return reasons

    def _computed_again(self, makers: tuple[int, ...]) -> int:
        if makers not in self._again:
            again = self.statement.literal()
            self.statement.rows.add(0, float("inf"), makers, [again, again])
            self._again[makers] = again
        return self._again[makers]


# ---- the search ----------------------------------------------------------------------------------
# What fits into fewer bytes than a known answer takes (`memory.fits`) is all that better answers
# hold. If it is nothing, the known answer is proven. Else a few caps between what is known to be
# too little and the known peak are tried: of what fits into one, what converts least is put into
# its best order, then the fastest.
FEW = 200  # columns: with fewer, every byte of a peak is proven


def peak(asked: Minimisation, places: Ints) -> Least:
    """The least peak within the caps, of answers made of these columns."""
    of = asked.of
    if asked.best is None:
        first = of.least({"time": 1}, asked.caps, among=places, is_look=asked.is_look)
        if first.best is None:
            return first
        asked.offer(first.best)
    if of.quick:
        return asked.as_least("gap", places)
    places = places[presolved(of.choice.take(places))]
    question = _Peak(asked, places, of.fits_among(places))
    status = question.settled()
    fitting = places[question.fits.within(asked.value)]
    of.fitted[asked.value] = fitting
    return replace(asked.as_least(status, fitting), proof="search", most=asked.value)


@dataclass
class _Peak:
    """The question about these columns; `fits` is of them alone."""

    asked: Minimisation
    places: Ints
    fits: Fits

    def settled(self) -> str:
        """How the question ended; what is found is the best answer of `asked`."""
        asked, status = self.asked, "gap"
        asked.raise_to(self.fits.least_bytes, "search")
        low = asked.bound
        # where four equal blocks of all were hunted through, rows tell what a hunt cannot
        is_hunted = MEMORY in asked.of.proven and self._may_ask_rows()
        for n in range(3):
            value = asked.value
            if self._is_least():
                asked.raise_to(value, "search")
                break
            if is_hunted:
                break
            self._hunt(low)
            if n == 0 and asked.of.tells_fewest and not asked.is_met:
                low = max(low, least_fitting(self.fits, asked.value) or 0)
                self._hunt(low)
            if asked.value == value or asked.is_met:
                break
        if not asked.is_met and self._may_ask_rows():
            status = asked.with_rows(self.places, asked.value - self.fits.choice.byte_unit)
            if status == "infeasible":
                asked.raise_to(asked.value, "search")
        return status if status in ("optimal", OUT_OF_TIME, INTERRUPTED) else "gap"

    def _may_ask_rows(self) -> bool:
        """Whether rows of bytes are worth it: of a small choice, or one that is not nearly told."""
        asked = self.asked
        is_told = _is_close(asked.bound, asked.value) and len(asked.of.choice) >= FEW
        # with more columns, a peak is not searched for that is hardly less
        return asked.proves and not (is_told or asked.is_look or len(self.places) >= 2_000)

    def _is_least(self) -> bool:
        """Whether it is plain that no answer needs less, in any order."""
        fitting = self.fits.within(self.asked.value - 1)
        if not len(fitting):
            return len(self.fits.choice.facts.roots) > 0
        # a relaxation of equal blocks would be about answers in which these are alike
        if not self.asked.proves or self.fits.is_most(fitting):
            return False
        small = Fits(self.fits.choice.take(fitting))
        rows = InAnyOrder(small.facts, self.asked.caps, is_short=True)
        relaxed = relaxation(small.choice, {MEMORY: 1}, self.asked.sums, rows)
        return relaxed is not None and relaxed.bound >= self.asked.value

    def _hunt(self, low: int) -> None:
        """Caps between what is known to be too little and the best peak."""
        asked, unit = self.asked, self.fits.choice.byte_unit
        none = hard = low - 1  # none: too little; nothing was found within `hard`
        cap = low
        while not _is_close(hard + 1, asked.value) and elapsed() <= asked.end:
            fitting = self.places[self.fits.within(cap)]
            status, best = self._look(fitting, cap) if len(fitting) else ("infeasible", None)
            if status == "infeasible" and (not len(fitting) or asked.proves):
                none = max(none, cap)
            asked.offer(best)
            if best is None or best.peak_bytes > cap:
                hard = cap
                if status != "infeasible":
                    break
            cap = (hard + asked.value) // 2
        asked.raise_to(-(-(none + 1) // unit) * unit, "search")

    def _look(self, places: Ints, cap: int) -> tuple[str, Answer | None]:
        """How a look among these ended, and the answer of the least peak that it found."""
        asked, status, best = self.asked, "", None
        for goal in (TIE_BREAK, "time"):
            sides = {"among": places, "seconds": asked.seconds, "is_look": True}
            least = asked.of.least({goal: 1}, asked.sums, **sides)
            status = status or least.status
            there = least.best
            if there is not None and (best is None or there.peak_bytes < best.peak_bytes):
                best = there
            if best is None or best.peak_bytes <= cap:
                break
        return status, best


def _is_close(least: int, value: int) -> bool:
    """Whether a peak is hardly less: by less than a ten-thousandth."""
    return least >= value - value // 10_000
