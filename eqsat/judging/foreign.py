"""What another compiler made of a program, as far as a run can hold it: read, checked, priced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eqsat.extract.selected import (
    graph_of_program,
    groups_of_cut,
    priced_selection,
    read_weights,
)
from eqsat.model.cut import CutProgram
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.program import Node, Program
from eqsat.model.selection import GoalResult, Group, Selection
from eqsat.model.textfile import read_text
from eqsat.ops.programs.cutting import UNKNOWN, with_leaves
from eqsat.report.finished import finished_stages
from eqsat.run import Run
from eqsat.run.loading import load_folder
from eqsat.schedule import build
from eqsat.search.schedules import place_temporaries


@dataclass(frozen=True)
class Foreign:
    """A program that somebody else chose: an e-graph that holds it, its dispatches, who they are.

    labels: what each dispatch is called there, with its place.
    """

    source: str
    egraph: EGraph
    program: Program  # whose values the e-graph's are
    groups: tuple[Group, ...]
    ahead: tuple[int, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()
    weights: Mapping[str, Any] = field(default_factory=dict)  # by content hash


# ---- which file it is ----------------------------------------------------------------------------
def read_foreign(path: Path, run: Run) -> Foreign:
    """The folder of a run, XLA's HLO text, or IREE's dispatches, beside this run.

    EqsatError: E309 not a run, E345 none of these, E346 what is not read of it, E347 another
    program; E370 … E379 for what a dispatch of IREE computes.
    """
    if path.is_dir():
        return foreign_run(load_folder(path), str(path))
    from eqsat.frontends.hlo.text import MOST_BYTES, is_hlo
    from eqsat.frontends.mlir.dispatches import is_flow, read_flow

    text = read_text(path, "E345", MOST_BYTES)
    if is_hlo(text):
        from eqsat.frontends.hlo.read import read_hlo

        return foreign_cut(read_hlo(text, str(path)), run)
    if is_flow(text):
        return foreign_cut(read_flow(text, str(path)), run)
    help = "XLA's: `jax.jit(f).lower(*args).compile().as_text()`; IREE's: `iree-compile"
    help += " --compile-to=dispatch-creation`; or the folder of a run"
    raise fail("E345", f"`{path}` is no HLO text and has no dispatches of IREE", help=help)


def check_results(foreign: Foreign, run: Run) -> None:
    """EqsatError E347 if a foreign program returns other values than the run's program."""
    own = [foreign.egraph.types[r] for r in foreign.egraph.roots]
    wanted = [run.canonical.nodes[r].types for r in run.canonical.results]
    if own != wanted:
        sides = [", ".join(str(t) for types in side for t in types) for side in (own, wanted)]
        message = f"{foreign.source} returns {sides[0]}, `{run.program.name}` {sides[1]}"
        raise fail("E347", message, help="give the program that it was compiled from")


def foreign_run(other: Run, name: str) -> Foreign:
    """A saved run as somebody else's choice; EqsatError E405 if it stopped early."""
    egraph, selection, schedule = finished_stages(other)
    labels = tuple(f"{d.name}: {d.ops}" for d in schedule.dispatches)
    source = f"{name} ({other.rules.name} on {other.target.name})"
    return Foreign(source, egraph, other.canonical, selection.groups, selection.ahead, labels)


def foreign_cut(cut: CutProgram, run: Run) -> Foreign:
    """A program cut by another compiler, its arguments taken for those of the run's program.

    EqsatError E347 if it has others.
    """
    found = with_leaves(cut, _leaves(cut.program, run.canonical, cut.source))
    labels = tuple(f"{i} {d.name} ({d.at})" for i, d in enumerate(found.dispatches))
    egraph = graph_of_program(found.program)
    rest = groups_of_cut(found), read_weights(found), labels, found.notes, found.weights
    return Foreign(cut.source, egraph, found.program, *rest)


def _leaves(own: Program, program: Program, source: str) -> dict[int, Node]:
    """The run's leaves for the inputs of a foreign program: by number, or by name and type.

    Weights whose values are not told are those of their type, where there is only one.
    """
    leaves = {i: program.nodes[i] for i in (*program.inputs, *program.weights)}
    if len(own.inputs) == len(program.inputs):
        pairs = list(zip(own.inputs, program.inputs, strict=True))
    else:
        names = {program.leaf(i).name: i for i in leaves}
        pairs = [(i, names[own.leaf(i).name]) for i in own.inputs if own.leaf(i).name in names]
        if len(pairs) < len(own.inputs):
            counts = f"{len(own.inputs)} arguments, `{program.name}` has {len(leaves)}"
            help = "give the program that the file was compiled from, with the same arguments"
            raise fail("E347", f"{source} compiled another function: it has {counts}", help=help)
    found: dict[int, Node] = {}
    for mine, theirs in pairs:
        if own.nodes[mine].types != program.nodes[theirs].types:
            both = f"{own.nodes[mine].type} and {program.nodes[theirs].type}"
            name = program.leaf(theirs).name
            raise fail("E347", f"{source} compiled another function: `{name}` is {both}")
        found[mine] = program.nodes[theirs]
    return found | _known_weights(own, program)


def _known_weights(own: Program, program: Program) -> dict[int, Node]:
    """Weights by their values, or by their types where each has one of its own."""
    by_key = {program.leaf(w).key: program.nodes[w] for w in program.weights}
    found: dict[int, Node] = {}
    for w in own.weights:
        leaf = own.leaf(w)
        if leaf.key in by_key:
            found[w] = by_key[leaf.key]
        elif leaf.key.startswith(UNKNOWN):
            same = [program.nodes[x] for x in program.weights if program.leaf(x).type == leaf.type]
            mine = [x for x in own.weights if own.leaf(x).type == leaf.type]
            found |= {w: same[0]} if len(same) == len(mine) == 1 else {}
    return found


def foreign_content(foreign: Foreign) -> str:
    """What it is, as text: its ops and its dispatches, by which a kept answer is known."""
    said = [foreign.egraph.to_json(), [vars(g) for g in foreign.groups], list(foreign.ahead)]
    return json.dumps(said)


# ---- its price -----------------------------------------------------------------------------------
def priced_foreign(run: Run, foreign: Foreign) -> Selection:
    """The foreign dispatches by a run's target, whether it permits them or not; no bounds."""
    goals = [g.name for g in run.goals]
    return priced_selection(foreign.egraph, run.target, foreign.groups, foreign.ahead, goals)


def with_foreign(run: Run, foreign: Foreign) -> Run:
    """A finished run with what another compiler chose as its answer.

    Bounds are those of the run's own search, so a gap is that to the optimum.
    """
    _, best, _ = finished_stages(run)
    found = priced_foreign(run, foreign)
    bounds = dict(best.goals)
    goals = tuple(
        (n, GoalResult(r.value, min(r.value, bounds[n].bound if n in bounds else 0)))
        for n, r in found.goals
    )
    selection = replace(found, goals=goals, cuts=best.cuts, stop=_stop(best))
    schedule = place_temporaries(build(foreign.egraph, selection, run.target))
    weights = {**run.source.weights, **foreign.weights}
    source = replace(run.source, weights=weights)
    return replace(
        run, source=source, canonical=foreign.program, egraph=foreign.egraph,
        selection=selection, schedule=schedule, measured=None, bodies={},
        judged=True,
    )  # fmt: skip


def _stop(best: Selection) -> str:
    """Why nothing better is claimed: it was not searched for, whatever the best is proven to be."""
    return "gap" if best.stop == "optimal" else best.stop
