"""Plans are made for the options that may be in a good answer, and for no others.

The relaxation is solved with floors of the times that need a plan. It stays a relaxation, so what
it rules out is ruled out; of what it chooses the plans are made, and it is asked again. Once it
chooses nothing but options whose plans are known, its bound is as tight as with all plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import numpy as np

from eqsat.extract.ragged import Ints, Mask
from eqsat.extract.solve.relax import Relaxation

LEAST = 64  # plans between two relaxations
PART = 8  # or this part of those that are not made
MANY = 20_000  # options: of more, a relaxation takes as long as thousands of plans
PART_OF_MANY = 3  # as `PART`, so that there are fewer relaxations


class Planned(Protocol):
    """Options, or columns that stand for several, of which some have plans."""

    def __len__(self) -> int: ...

    @property
    def is_asked(self) -> Mask: ...

    def asked(self, rows: Ints | None = None) -> Self: ...

    def within(self, relaxed: Relaxation, cap: int | None) -> Self: ...


P = TypeVar("P", bound=Planned)
P_contra = TypeVar("P_contra", bound=Planned, contravariant=True)


class Look(Protocol[P_contra]):
    """Looks for answers. cap: what others may be worth beside the best one; None: there is none."""

    @property
    def cap(self) -> int | None: ...

    def near(self, free: P_contra, relaxed: Relaxation) -> None: ...


def with_late_plans(free: P, relax: Callable[[P], Relaxation | None], look: Look[P]) -> P | None:
    """With their plans those options that answers within the cap of `look` hold, as far as known.

    None if they hold no answer.
    """
    while not free.is_asked.all():
        relaxed = relax(free)
        if relaxed is None:
            return None
        rows = _next(free, relaxed)
        if not len(rows):
            look.near(free, relaxed)
            return free.within(relaxed, look.cap).asked()
        free = free.asked(rows).within(relaxed, look.cap)
    return free


def _next(free: Planned, relaxed: Relaxation) -> Ints:
    """What the relaxation chooses without knowing its plan, and what it nearly chose."""
    chosen = np.zeros(len(free), dtype=bool)
    chosen[list(relaxed.support)] = True
    left = np.flatnonzero(~free.is_asked)
    if not chosen[left].any():
        return left[:0]
    near = np.array(relaxed.reduced)[left]
    order = np.lexsort((near, ~chosen[left]))
    part = PART_OF_MANY if len(free) > MANY else PART
    count = max(LEAST, int(chosen[left].sum()), len(left) // part)
    return left[order[:count]]
