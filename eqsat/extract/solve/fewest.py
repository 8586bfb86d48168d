"""The least peak in any order, as far as it takes no search, told to a problem under an order.

What fits into fewer bytes than a known answer takes (`fits`) is all that better answers hold, under
whatever order. If it is nothing, or its linear relaxation is no better, the known answer is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.fits import fitting
from eqsat.extract.solve.problem import ExtractionProblem, Option
from eqsat.extract.solve.relax import MEMORY, relaxation

MOST = 0.75  # of the options: if as many fit, it says little
STEPS = 4  # caps between what is known to be too little and a known answer that are tried


def _same(option: Option) -> tuple[tuple[int, ...], ...]:
    """What an option is, whenever it runs."""
    return option.reads, option.writes, option.resident, option.exclusive, option.adds


def is_most(free: AnyOrder, kept: tuple[int, ...]) -> bool:
    """Whether nearly all options fit, so that it says little about bytes."""
    return len(kept) > MOST * len(free.options)


@dataclass(frozen=True)
class Fewest:
    """One choice under an order, and without one; `caps` are those on sums over dispatches."""

    problem: ExtractionProblem
    free: AnyOrder
    caps: Mapping[str, int]

    def is_least(self, value: int) -> bool:
        """Whether it is plain that no answer needs less, in any order; what was asked is known."""
        key = value, tuple(sorted(self.caps.items()))
        if key not in self.free.proven:
            self.free.proven[key] = self._is_least(value)
        return self.free.proven[key]

    def _is_least(self, value: int) -> bool:
        kept = fitting(self.free, value - 1)
        # a relaxation of equal blocks would be about answers in which these are alike
        if not kept or self.free.tied or is_most(self.free, kept):
            return not kept and bool(self.free.roots)
        found = relaxation(self.free.restricted(kept), {MEMORY: 1}, self.caps)
        return found is not None and found.bound >= value

    def within(self, cap: int) -> tuple[int, ...]:
        """Options under the order that answers of at most `cap` bytes may hold."""
        kept = fitting(self.free, cap)
        if len(kept) == len(self.free.options):
            return tuple(range(len(self.problem.options)))
        same = {_same(self.free.options[i]) for i in kept}
        return tuple(i for i, known in enumerate(self._known) if known in same)

    @cached_property
    def _known(self) -> list[tuple[tuple[int, ...], ...]]:
        return [_same(o) for o in self.problem.options]

    def lowest(self, value: int) -> tuple[int, ...]:
        """Options under the order that fit into hardly more than the fewest bytes, if they are few.

        A good answer is looked for among them first.
        """
        cap = self.free.fits.least_bytes
        for _ in range(STEPS):
            kept = fitting(self.free, cap) if cap < value else ()
            if kept or cap >= value:
                return self.within(cap) if kept and not is_most(self.free, kept) else ()
            cap = (cap + value) // 2
        return ()
