"""The interface of a goal that is a sum over dispatches, stated for the solver and for checks."""

from __future__ import annotations

from typing import Protocol

from eqsat.model.egraph import EGraph
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target


class Goal(Protocol):
    """A goal to be minimised; plugged in through the entry point group `eqsat.goals`.

    The two statements must agree on every selection: `value` = Σ `build` over its groups.
    """

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        """The coefficient of this dispatch in the objective: a whole number, not negative.

        Called for every dispatch the search considers, whose `step` is not known yet (0).
        """
        ...

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        """The value of a finished selection, computed from the selection and not by `build`."""
        ...
