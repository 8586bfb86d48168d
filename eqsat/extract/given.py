"""Dispatches that nobody searched here, priced as the search prices its own: given ones, or found
at other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker, check
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.dispatch.prices import Costs
from eqsat.model.cut import CutProgram
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.program import Program
from eqsat.model.selection import GoalResult, Group, Selection
from eqsat.model.stopping import OTHER_SIZES
from eqsat.model.target import Target

TOLD = ("time", "memory", "dispatches")  # goals that are told of every program


def graph_of_program(program: Program) -> EGraph:
    """An e-graph that holds one program and nothing else: class i is node i."""
    nodes = tuple(ENode(n.op, n.attr, n.operands, i) for i, n in enumerate(program.nodes))
    types = tuple(n.types for n in program.nodes)
    every = tuple(range(len(nodes)))
    return EGraph(nodes, types, program.results, every, (), 0, "saturated", 0.0)


def groups_of_cut(cut: CutProgram) -> tuple[Group, ...]:
    """Its dispatches, one step after the other, not priced yet."""
    return tuple(
        Group(d.members, d.reads, d.writes, 0, step) for step, d in enumerate(cut.dispatches)
    )


def read_weights(cut: CutProgram) -> tuple[int, ...]:
    """The weights that are there before the first dispatch, as a selection's `ahead`."""
    read = {r for d in cut.dispatches for r in d.reads} | set(cut.program.results)
    return tuple(w for w in cut.program.weights if w in read)


def priced_selection(
    egraph: EGraph,
    target: Target,
    groups: Sequence[Group],
    ahead: tuple[int, ...] = (),
    goals: Sequence[str] = TOLD,
) -> Selection:
    """These dispatches with what they cost on a target, whether it allows them or not.

    Values only: no bound is claimed.
    """
    space = Space(egraph, target.padding)
    costs = Costs(space, target)
    steps = {s: n for n, s in enumerate(sorted({g.step for g in groups}))}
    made = tuple(_priced(costs, replace(g, step=steps[g.step])) for g in groups)
    bare = Selection(made, ahead, (), "gap")
    values = Checker(space, target, bare).goal_values((*goals, *TOLD))
    return replace(bare, goals=tuple((n, GoalResult(v, 0)) for n, v in values.items()))


def reprice(
    egraph: EGraph, target: Target, selection: Selection, number: Mapping[int, int], where: str
) -> Selection:
    """The same dispatches in the same order at other sizes: this e-graph's, with its own prices.

    number: nodes of the selection -> nodes of `egraph`. Nothing bounds the goals: nobody searched
    here. EqsatError E389 if a node does not exist at these sizes, or a limit of the target forbids
    a dispatch; `where` names the sizes.
    """
    groups = [replace(g, members=_renumbered(g.members, number, where)) for g in selection.groups]
    ahead = _renumbered(selection.ahead, number, where)
    goals = [n for n, _ in selection.goals if n != TIE_BREAK]
    priced = priced_selection(egraph, target, groups, ahead, goals)
    found = replace(
        selection, groups=priced.groups, goals=priced.goals, ahead=ahead, removed=(),
        stop=OTHER_SIZES,
    )  # fmt: skip
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


def _priced(costs: Costs, g: Group) -> Group:
    here = costs.of(g.members)
    pipeline = here.pipeline_of(g.members)
    time_ps = here.group_ps(g.members, g.reads, g.writes, pipeline)
    return replace(g, time_ps=time_ps, pipeline=pipeline)
