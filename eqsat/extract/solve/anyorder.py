"""The extraction problem without an order: its peak is a bound that holds in every order.

The options have no steps: a read asks only that something chosen writes it. What is live when an
item is made, whatever the order, is told by what every answer needs before it (`watch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar

from eqsat.extract.solve.firsts import first_entries
from eqsat.extract.solve.fits import Fits
from eqsat.extract.solve.problem import Answer, ExtractionProblem, Supply
from eqsat.extract.solve.watch import FirstMaking, PeakFacts, watches
from eqsat.model.bitsets import bits, mask

PAIRS = 3_000  # of items in either order: with more, none gets a literal


@dataclass(frozen=True)
class AnyOrder(ExtractionProblem):
    """Choose options as in an ExtractionProblem, in any order; peak bytes are a lower bound.

    `computes` says per option which values it computes anew, `value_of` per buffer which value it
    is a layout of; `sources` are values that are there from the start, in some layout.
    """

    is_ordered: ClassVar[bool] = False

    computes: tuple[tuple[int, ...], ...] = ()
    value_of: Mapping[int, int] = field(default_factory=dict)
    sources: frozenset[int] = frozenset()

    @cached_property
    def supplies(self) -> tuple[Supply, ...]:
        """Options that may write the first layout of a value, and those that read one."""
        return tuple(first_entries(self))

    @cached_property
    def facts(self) -> PeakFacts:
        """What must-analysis tells about its items."""
        return PeakFacts(self)

    @cached_property
    def watches(self) -> tuple[FirstMaking, ...]:
        """Items every answer makes, with what is held meanwhile."""
        return watches(self)

    @cached_property
    def unordered(self) -> list[tuple[int, int]]:
        """Pairs of watches of which necessity tells no order, both ways; not many too many."""
        behind: list[list[int]] = [[] for _ in self.watches]
        for n, w in enumerate(self.watches):
            for u in bits(w.before):
                behind[u].append(n)
        everything, found = (1 << len(behind)) - 1, []
        for n, w in enumerate(self.watches):
            free = everything & ~(w.before | mask(behind[n]) | 1 << n)
            found += [(n, other) for other in bits(free)]
            if len(found) > PAIRS:
                break
        return found

    @cached_property
    def fits(self) -> Fits:
        """What must-analysis tells about its bytes."""
        return Fits(self)

    @cached_property
    def fitting(self) -> dict[int, tuple[int, ...]]:
        """Per cap that was asked about: options that fit into so many bytes (`fits`)."""
        return {}

    @cached_property
    def proven(self) -> dict[object, bool]:
        """Per peak and caps that were asked about: whether no answer needs less (`fewest`)."""
        return {}

    def own_bytes(self, option: int) -> int:
        """Temporaries a dispatch reads or writes."""
        o, roots = self.options[option], set(self.roots)
        return sum(self.nbytes[b] for b in {*o.reads, *o.writes} if b not in roots)

    def peak_bytes(self, answer: Answer) -> int:
        """A lower bound of bytes in any order of these options (the rows say more: `anyrows`)."""
        chosen = set(answer)
        resident = {b for i in answer for b in self.options[i].resident}
        worst = max((self.own_bytes(i) for i in answer), default=0)
        for w in self.watches:
            first = [self._live_at(i, w, chosen) for i in w.options if i in chosen]
            worst = max(worst, min(first, default=0))
        return self.fixed_bytes + sum(map(self.kept_bytes, resident)) + worst

    def _live_at(self, first: int, watch: FirstMaking, chosen: set[int]) -> int:
        return self.own_bytes(first) + sum(
            h.nbytes
            for h in watch.held
            if first not in h.touching
            and watch.is_after(h.item)
            and len(chosen.intersection(h.makers)) < 2
            and (h.always or not chosen.isdisjoint(h.readers))
        )

    def is_legal(self, answer: Answer) -> bool:
        """Whether an answer keeps every rule but the order: it may wait for itself."""
        options = [self.options[i] for i in answer]
        written = {b for o in options for b in o.writes}
        needed = {*self.roots, *(b for o in options for b in o.reads)}
        return self._is_disjoint(answer) and needed <= written and self._is_tied(answer)

    def without(self, barred: tuple[tuple[int, ...], int]) -> AnyOrder:
        """With so many of some options at most; what is known of bytes stays."""
        found = replace(self, barred=(*self.barred, barred))
        known = ("supplies", "facts", "watches", "unordered", "fits", "fitting", "proven")
        found.__dict__.update((k, self.__dict__[k]) for k in known if k in self.__dict__)
        return found

    def restricted(self, kept: tuple[int, ...]) -> AnyOrder:
        """The problem with these options only, numbered by their place in `kept`."""
        small = super().restricted(kept)
        assert isinstance(small, AnyOrder)
        return replace(small, computes=tuple(self.computes[i] for i in kept))


def any_order(
    problem: ExtractionProblem,
    computes: tuple[tuple[int, ...], ...],
    value_of: Mapping[int, int],
    sources: frozenset[int],
) -> AnyOrder:
    """A problem with its steps forgotten, and what its options and buffers stand for."""
    known = {f.name: getattr(problem, f.name) for f in fields(problem)}
    return AnyOrder(**known, computes=computes, value_of=value_of, sources=sources)
