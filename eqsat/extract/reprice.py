"""A selection that was searched at other sizes, as one of the same e-graph at these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker, check
from eqsat.extract.choice.linear import TIE_BREAK, linear_goals, value_stated
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalResult, Group, Selection
from eqsat.model.stopping import OTHER_SIZES
from eqsat.model.target import Target


def reprice(
    egraph: EGraph, target: Target, selection: Selection, number: Mapping[int, int], where: str
) -> Selection:
    """The same dispatches in the same order at this e-graph's sizes, with its own prices.

    number: nodes of the selection -> nodes of `egraph`. Nothing bounds the goals: nobody searched
    here. EqsatError E389 if a node does not exist at these sizes, or a limit of the target forbids
    a dispatch; `where` names the sizes.
    """
    groups = tuple(
        replace(g, members=_renumbered(g.members, number, where)) for g in selection.groups
    )
    ahead = _renumbered(selection.ahead, number, where)
    moved = replace(selection, groups=groups, ahead=ahead, removed=(), stop=OTHER_SIZES)
    checker = Checker(Space(egraph, target.padding), target, moved)
    priced = replace(moved, groups=tuple(_priced(checker, g) for g in groups))
    found = replace(priced, goals=_goals(egraph, target, priced))
    faults = check(egraph, target, found)
    if faults:
        why = f"the program that was found is not legal at {where}: {'; '.join(faults)}"
        raise fail("E389", why, help="search at these sizes: `--size`")
    return found


def _renumbered(nodes: Iterable[int], number: Mapping[int, int], where: str) -> tuple[int, ...]:
    found = tuple(nodes)
    if any(n not in number for n in found):
        why = f"an op of the program that was found does not exist at {where}"
        raise fail("E389", why, help="search at these sizes: `--size`")
    return tuple(number[n] for n in found)


def _priced(checker: Checker, g: Group) -> Group:
    """By the pipeline that is best at these sizes."""
    piped = replace(g, pipeline=checker.costs.of(g.members).pipeline_of(g.members))
    return replace(piped, time_ps=checker.price_ps(piped))


def _goals(
    egraph: EGraph, target: Target, selection: Selection
) -> tuple[tuple[str, GoalResult], ...]:
    linear = linear_goals(dict(selection.goals))
    values = {n: value_stated(n, g, egraph, target, selection) for n, g in linear.items()}
    checker = Checker(Space(egraph, target.padding), target, selection)
    values["memory"] = checker.peak_bytes()
    values |= {
        "resident": checker.weights.resident_bytes(),
        "load_peak": checker.weights.load_peak_bytes(),
    }
    return tuple((n, GoalResult(values[n], 0)) for n, _ in selection.goals if n != TIE_BREAK)
