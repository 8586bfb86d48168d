"""A finished run asked again: searched with other rules or goals, or applied to other sizes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.model.cycles import uncollected
from eqsat.model.diag import fail
from eqsat.model.family import Family
from eqsat.model.progress import heard
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.symbols import resized, sizes_of
from eqsat.model.target import Target
from eqsat.ops.programs.binding import BoundGraph, bind_graph
from eqsat.run import Run, RunUse
from eqsat.run.phases import at_sizes, searched
from eqsat.run.schedules import with_schedules

if TYPE_CHECKING:
    pass


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
    request = (target or run.target, rules or run.rules, goals or run.goals)
    again = Run(source, canonical, *request, *rest)
    if program.symbols:
        again = at_sizes(again, Family(program, canonical))
    deadline = time.monotonic() + again.search["time_limit"]
    with heard(None), uncollected():
        return searched(again, None, None, deadline)


# ---- at other sizes ------------------------------------------------------------------------------
def bind(run: Run, sizes: Mapping[str, int]) -> Run:
    """The run's choices at other sizes, without a search; symbols not named keep their size.

    The e-graph is valid for every admissible size, so the program is correct at these. The choices
    were optimal at the sizes of the search, so nothing is proven about them here (`stop` is
    `sizes`). EqsatError: E385 for a name the program does not have, E386 for a size its divisor
    does not divide, E389 if a chosen op or dispatch does not exist at these sizes, E405 if the run
    stopped before its selection.
    """
    family, selection = run.family, run.selection
    if family is None:
        raise fail("E385", "the program has no symbols: all its sizes are known")
    if family.egraph is None or selection is None:
        raise fail("E405", "this run stopped before a choice was made")
    new = family.resized(resized(family.symbols, sizes))
    rebound = at_sizes(_emptied(run), new)
    graph = bind_graph(family.egraph, sizes_of(new.symbols))
    rebound = replace(rebound, egraph=graph.egraph)
    number = _renumbering(family, graph)
    base = None if run.baseline is None else _repriced(rebound, run.baseline, number)
    chosen = _repriced(rebound, selection, number)
    return with_schedules(replace(rebound, selection=chosen, baseline=base))


def _emptied(run: Run) -> Run:
    """The run without what depends on sizes."""
    nothing = dict.fromkeys(run.seconds)
    return replace(
        run, egraph=None, selection=None, schedule=None, baseline=None, baseline_schedule=None,
        measured=None, packed_file=None, seconds=nothing, use=RunUse(dict(run.use.weights)),
    )  # fmt: skip


def _renumbering(family: Family, graph: BoundGraph) -> dict[int, int]:
    """Nodes of the run's e-graph -> nodes of the new one, through those of the family's."""
    assert family.egraph is not None
    old = bind_graph(family.egraph, sizes_of(family.symbols)).number
    return {old[i]: n for i, n in graph.number.items() if i in old}


def _repriced(run: Run, selection: Selection, number: Mapping[int, int]) -> Selection:
    from eqsat.extract import reprice

    assert run.egraph is not None
    assert run.family is not None
    where = ", ".join(f"{s.name} = {s.size}" for s in run.family.symbols)
    return reprice(run.egraph, run.target, selection, number, where)
