"""What a goal that is a sum over dispatches has to state: once for the solver, once to check it."""

from __future__ import annotations

from typing import Protocol

from eqsat.model.egraph import EGraph
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target


class Goal(Protocol):
    """Less is better; plugged in through the entry point group `eqsat.goals`.

    The two statements must agree on every selection: `value` = Σ `build` over its groups.
    """

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        """What choosing this dispatch adds: a whole number, not negative.

        Called for every dispatch the search considers, whose `step` is not known yet (0).
        """
        ...

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        """What a finished selection is worth, from its own facts and not by `build`."""
        ...
