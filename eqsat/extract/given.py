"""Dispatches that somebody else chose, priced as the search prices its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.extract.candidates.space import Space
from eqsat.extract.check import Checker
from eqsat.extract.choice.linear import TIE_BREAK, linear_goals, value_stated
from eqsat.extract.dispatch.prices import Costs
from eqsat.model.cut import CutProgram
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.program import Program
from eqsat.model.selection import GoalResult, Group, Selection
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
    bare = Selection(made, ahead, (), "optimal")
    names = dict.fromkeys([*goals, *TOLD])
    checker = Checker(space, target, bare)
    values = {"memory": checker.peak_bytes()}
    weights = checker.weights
    kept = {"resident": weights.resident_bytes, "load_peak": weights.load_peak_bytes}
    values |= {n: value() for n, value in kept.items() if n in names}
    linear = linear_goals(dict.fromkeys(n for n in names if n not in values))
    sides = egraph, target, bare
    values |= {n: value_stated(n, g, *sides) for n, g in linear.items() if n != TIE_BREAK}
    results = tuple((n, GoalResult(values[n], 0)) for n in names)
    return replace(bare, goals=results, stop="gap")


def _priced(costs: Costs, g: Group) -> Group:
    here = costs.of(g.members)
    pipeline = here.pipeline_of(g.members)
    time_ps = here.group_ps(g.members, g.reads, g.writes, pipeline)
    return replace(g, time_ps=time_ps, pipeline=pipeline)
