"""A program searched more than once: in orders that are free, or with other rules or goals."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsat.model.cycles import uncollected
from eqsat.model.egraph import EGraph
from eqsat.model.equalities import Equalities
from eqsat.model.family import Family
from eqsat.model.orders import AskedOrders
from eqsat.model.progress import Progress, heard
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.request.source import Source
from eqsat.run import Run
from eqsat.run.seconds import timed
from eqsat.search.orders import PLAIN_SHARE, in_best_orders
from eqsat.search.phases import at_sizes, saturated, searched

if TYPE_CHECKING:
    from eqsat.model.stopping import Stop


def searched_in_orders(
    run: Run, asked: AskedOrders, stop_after: str | None, stop: Stop | None, told: Progress
) -> tuple[Run, Run]:
    """Every stage in the orders that are free where that is better, and with plain arguments.

    Plain ones are searched first; both runs are the same where no order is free.
    """
    assert told.limit is not None
    end = told.begin + told.limit
    if not asked.free:
        plain = searched(run, stop_after, stop, end)
        return plain, plain
    plain = searched(run, stop_after, stop, told.begin + PLAIN_SHARE * told.limit)
    with timed(plain.seconds, "orders"), heard(None):
        return in_best_orders(plain, asked, _Phases(plain, stop), end), plain


@dataclass(frozen=True)
class _Phases:
    """The phases, for a search of orders."""

    plain: Run
    stop: Stop | None

    def search(self, source: Source, deadline: float) -> Run:
        """A run of the whole program in these layouts; its seconds are those of the plain one."""
        from eqsat.ops.spelling.passes import canonical as merged

        plain, none = self.plain, dict.fromkeys(self.plain.seconds)
        again = Run(
            source, merged(source.program), plain.target, plain.rules, plain.goals, none,
            plain.search, plain.limits, plain.rule_check,
        )  # fmt: skip
        return replace(searched(again, None, self.stop, deadline), seconds=plain.seconds)

    def graph(self, known: Equalities, deadline: float) -> EGraph:
        """The e-graph of the plain program with these equalities."""
        graph = saturated(self.plain, None, deadline, (known,)).egraph
        assert graph is not None
        return graph


def searched_again(
    run: Run,
    *,
    rules: RuleSet | None = None,
    target: Target | None = None,
    goals: tuple[GoalRequest, ...] | None = None,
    time_limit: float | None = None,
) -> Run:
    """The program of a finished run searched again, with what is given here in place of its own.

    Values stay on their devices; the rest is as requested before. Raises EqsatError as `optimize`
    does, exit_code 3 if nothing is admissible.
    """
    from eqsat.ops.spelling.passes import canonical as merged

    source, program = run.source, run.program
    if run.family is not None:
        program = run.family.program
        source = replace(source, program=program)
    if run.target.devices:  # with transfers, which only a map of devices tells
        canonical = run.canonical if run.family is None else run.family.canonical
    else:
        canonical = merged(program)
    seconds: dict[str, float | None] = dict.fromkeys(run.seconds)
    limit = {} if time_limit is None else {"time_limit": time_limit}
    rest = (seconds, run.search | limit, run.limits, run.rule_check)
    asked = (target or run.target, rules or run.rules, goals or run.goals)
    again = Run(source, canonical, *asked, *rest)
    if program.symbols:
        again = at_sizes(again, Family(program, canonical))
    deadline = time.monotonic() + again.search["time_limit"]
    with heard(None), uncollected():
        return searched(again, None, None, deadline)
