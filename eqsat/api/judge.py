"""`eqsat judge`: what another compiler chose, priced as the search prices its own, beside the best.

What is foreign is priced by itself: its ops and the dispatches it was cut into need no rule. What
of it an e-graph holds is found by structure, and only that is asked about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from eqsat.extract.selected import (
    TOLD,
    graph_of_program,
    groups_of_cut,
    priced_selection,
    read_weights,
)
from eqsat.model.compiled import CutProgram
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.files import read_text
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.selection import GoalResult, Group, Price, Question, Selection
from eqsat.ops.programs.cutting import UNKNOWN, with_leaves
from eqsat.report.alternatives import judged_lines
from eqsat.report.finished import claim_text, finished_stages
from eqsat.report.names import Names
from eqsat.run import Run
from eqsat.run.phases import place_temporaries
from eqsat.run.saved import load_folder
from eqsat.schedule import build
from eqsat.schedule.legal import faults

SAMPLES = 2  # of random arguments, to see whether it computes the same
CHECKED = 2e10  # operations that this may take: some seconds


@dataclass(frozen=True)
class Decision:
    """One thing the other compiler chose, and what the best program that does so costs more.

    price: None if this e-graph has no such value.
    """

    text: str
    question: Question
    price: Price | None = None

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "price": self.price and self.price.to_json()}


@dataclass(frozen=True)
class Judgement:
    """A foreign program beside the best one of a run: figures, decisions, and what it lacked.

    refused: what the target does not permit, with the key's place; missing: values that no rule of
    the run makes, first ones first.
    """

    foreign: Foreign
    run: Run
    selection: Selection  # of the foreign dispatches, priced by the run's target
    decisions: tuple[Decision, ...]
    refused: tuple[str, ...]
    missing: tuple[str, ...]
    sameness: str  # how it is known that it computes the same

    def gap(self, goal: str) -> float:
        """How far above the proven bound it is: 0 for the best; none is below what is allowed."""
        value = self.selection.goal(goal).value
        bound = self.best.goal(goal).bound
        return (value - bound) / value if value else 0.0

    @cached_property
    def best(self) -> Selection:
        return finished_stages(self.run)[1]

    def to_text(self) -> str:
        """Plain text for a terminal."""
        foreign, run = self.foreign, self.run
        head = (
            f"{foreign.source} on {run.target.name}, beside the best program of {run.program.name}"
        )
        sections = (
            (f"{run.target.name} does not permit", self.refused),
            ("not in this e-graph, so not asked about", self.missing),
            ("read otherwise than it is written", foreign.notes),
        )
        claim = claim_text(self.best, run.target, run.goals)
        sides = self.selection, self.best, foreign.labels, self.decisions
        return judged_lines(f"{head}\n{self.sameness}", claim, *sides, sections)

    __str__ = to_text

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints; figures in ps, bytes and counts."""
        goals = [n for n in TOLD if n in dict(self.best.goals)]
        return {
            "format": 1,
            "source": self.foreign.source,
            "program": self.run.program.name,
            "target": self.run.target.name,
            "goals": {
                n: {
                    "judged": self.selection.goal(n).value,
                    "best": self.best.goal(n).value,
                    "bound": self.best.goal(n).bound,
                    "gap": self.gap(n),
                }
                for n in goals
            },
            "claim": self.best.claim,
            "dispatches": [
                {"name": name, "time_ps": g.time_ps}
                for name, g in zip(self.foreign.labels, self.selection.groups, strict=True)
            ],
            "decisions": [d.to_json() for d in self.decisions],
            "refused": list(self.refused),
            "missing": list(self.missing),
            "same_results": self.sameness,
            "notes": list(self.foreign.notes),
        }


# ---- how it is judged ----------------------------------------------------------------------------
def judge(run: Run, foreign: Foreign, *, time_limit: float = 30.0) -> Judgement:
    """A foreign program by a run's target, beside the run's best program.

    time_limit: seconds for the prices of all decisions. EqsatError E347 if it returns other values
    than the run's program, E405 if the run stopped early.
    """
    egraph, _, _ = finished_stages(run)
    check_results(foreign, run)
    selection = priced_foreign(run, foreign)
    at = found_in(foreign.egraph, egraph)
    names = Names(egraph, run.canonical)
    asked = _decisions(foreign, at, names)
    prices = run.prices(time_limit, [d.question for d in asked])
    decisions = tuple(replace(d, price=p) for d, p in zip(asked, prices, strict=True))
    schedule = build(foreign.egraph, selection, run.target)
    refused = tuple(faults(schedule, replace(run.target, budget=())))
    missing = tuple(_missing(foreign, at, run))
    sameness = _sameness(foreign, at, run)
    return Judgement(foreign, run, selection, decisions, refused, missing, sameness)


def _sameness(foreign: Foreign, at: Mapping[int, int], run: Run) -> str:
    """How it is known that a foreign program computes the same; EqsatError E347 if it does not.

    Where rules do not say so it is computed in float64, on random arguments.
    """
    assert run.egraph is not None
    if [at.get(r) for r in foreign.egraph.roots] == list(run.egraph.roots):
        return "its results are those of the program: the rules prove it"
    from eqsat.execute.draw import drawn_weights
    from eqsat.execute.reference import WorkBudget, reference
    from eqsat.execute.verify import verify

    program = foreign.program
    run_weights = {**run.weights, **drawn_weights(run.canonical, run.weights)}
    weights = {**run_weights, **foreign.weights}
    if any(program.leaf(w).key not in weights for w in program.weights):
        return "whether it computes the same is not verified: the file has no values of its weights"

    def call(*inputs: Any) -> Sequence[Any]:
        return reference(program, inputs, weights, run.source.opaque, WorkBudget(CHECKED))

    verification = verify(
        run.canonical, call, run_weights, run.source.opaque, samples=SAMPLES, work_limit=CHECKED
    )
    if verification.outcome == "unproven":
        return f"whether it computes the same is not verified: {verification.reason}"
    if not verification.ok:
        both = f"{foreign.source} computes other values than `{run.program.name}`"
        message = f"{both}: {verification.where}"
        raise fail("E347", message, help="give the program that the file was compiled from")
    return (
        f"its results are those of the program on {verification.samples} random samples, in float64"
    )


def found_in(foreign: EGraph, egraph: EGraph) -> dict[int, int]:
    """Class → the class of another e-graph that holds the same, as far as a node says so."""
    classes: dict[int, int] = {}
    waiting = list(foreign.nodes)
    while waiting:
        later = []
        for n in waiting:
            if n.eclass in classes:
                continue
            if not all(c in classes for c in n.children):
                later.append(n)
                continue
            i = egraph.find(n.op, n.attr, tuple(classes[c] for c in n.children))
            if i is not None:
                classes[n.eclass] = egraph.nodes[i].eclass
        if len(later) == len(waiting):
            break
        waiting = later
    return classes


def _decisions(foreign: Foreign, at: Mapping[int, int], names: Names) -> list[Decision]:
    """Decisions: values kept in memory, made ahead, and computed inside of a dispatch."""
    decisions: dict[Question, Decision] = {}
    results = {names.logical[r] for r in names.egraph.roots}
    for n in (foreign.egraph.nodes[i] for i in foreign.ahead):
        if n.op not in LEAVES and n.op != "reshape" and n.eclass in at:
            c = at[n.eclass]
            _add(decisions, f"{names.of(c)} made ahead of time", Question("resident", c))
    for number, g in enumerate(foreign.groups):
        written = {names.logical[at[w]] for w in g.writes if w in at}
        for w in g.writes:
            if w in at and names.logical[at[w]] not in results:
                text = f"{names.logical_name(at[w])} kept in memory as {names.type_of(at[w])}"
                _add(decisions, f"{text} by dispatch {number}", Question("written", at[w]))
        for c in _inside(foreign, g):
            if c in at and names.logical[at[c]] not in written | results:
                text = f"{names.logical_name(at[c])} computed inside of dispatch {number}"
                _add(decisions, text, Question("inside", at[c]))
    return list(decisions.values())


def _add(decisions: dict[Question, Decision], text: str, question: Question) -> None:
    decisions.setdefault(question, Decision(text, question))


def _inside(foreign: Foreign, g: Group) -> Iterator[int]:
    """Values that a dispatch computes and does not write."""
    for m in g.members:
        n = foreign.egraph.nodes[m]
        is_value = n.op not in LEAVES | VIEWS | CONVERSIONS
        if is_value and n.eclass not in g.writes and len(foreign.egraph.types[n.eclass]) == 1:
            yield n.eclass


def _missing(foreign: Foreign, at: Mapping[int, int], run: Run) -> Iterator[str]:
    """Values that no rule makes, where all that they are computed from is there."""
    names = Names(foreign.egraph, foreign.program)
    nodes = foreign.egraph.nodes
    used = {*(m for g in foreign.groups for m in g.members), *foreign.ahead}
    seen: set[int] = set()
    unknown = [
        n for i, n in enumerate(nodes) if i in used and n.op == "weight" and n.eclass not in at
    ]
    if unknown:
        listed = ", ".join(names.of(n.eclass) for n in unknown)
        yield f"which weights of {run.program.name} these are, the file does not tell: {listed}"
    for n in (nodes[i] for i in sorted(used)):
        is_first = n.op != "weight" and all(c in at for c in n.children)
        if is_first and n.eclass not in at and n.eclass not in seen:
            seen.add(n.eclass)
            text = f"{names.of(n.eclass)} = {names.node_text(n)} : {names.type_of(n.eclass)}"
            by = f"rule of {run.rules.name}, with what {run.target.name} has, makes it"
            yield f"{text}: no {by} of what is there"


# ---- what is foreign: read, checked, priced ------------------------------------------------------
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
    from eqsat.frontends.mlir.dispatches import is_flow, read_flow
    from eqsat.lang.hlotext import MOST_BYTES, is_hlo

    text = read_text(path, "E345", MOST_BYTES)
    if is_hlo(text):
        from eqsat.frontends.hlo import read_hlo

        return foreign_cut(read_hlo(text, str(path)), run)
    if is_flow(text):
        return foreign_cut(read_flow(text, str(path)), run)
    help = "XLA's: `jax.jit(f).lower(*args).compile().as_text()`; IREE's: `iree-compile"
    help += " --compile-to=dispatch-creation`; or the folder of a run"
    raise fail("E345", f"`{path}` is no HLO text and has no dispatches of IREE", help=help)


def check_results(foreign: Foreign, run: Run) -> None:
    """EqsatError E347 if a foreign program returns other values than the run's program."""
    result_types = [foreign.egraph.types[r] for r in foreign.egraph.roots]
    wanted = [run.canonical.nodes[r].types for r in run.canonical.results]
    if result_types != wanted:
        sides = [
            ", ".join(str(t) for types in side for t in types) for side in (result_types, wanted)
        ]
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
    program = with_leaves(cut, _leaves(cut.program, run.canonical, cut.source))
    labels = tuple(f"{i} {d.name} ({d.at})" for i, d in enumerate(program.dispatches))
    egraph = graph_of_program(program.program)
    rest = groups_of_cut(program), read_weights(program), labels, program.notes, program.weights
    return Foreign(cut.source, egraph, program.program, *rest)


def _leaves(foreign: Program, program: Program, source: str) -> dict[int, Node]:
    """The run's leaves for the inputs of a foreign program: by number, or by name and type.

    Weights whose values are not told are those of their type, where there is only one.
    """
    leaves = {i: program.nodes[i] for i in (*program.inputs, *program.weights)}
    if len(foreign.inputs) == len(program.inputs):
        pairs = list(zip(foreign.inputs, program.inputs, strict=True))
    else:
        names = {program.leaf(i).name: i for i in leaves}
        pairs = [
            (i, names[foreign.leaf(i).name])
            for i in foreign.inputs
            if foreign.leaf(i).name in names
        ]
        if len(pairs) < len(foreign.inputs):
            counts = f"{len(foreign.inputs)} arguments, `{program.name}` has {len(leaves)}"
            help = "give the program that the file was compiled from, with the same arguments"
            raise fail("E347", f"{source} compiled another function: it has {counts}", help=help)
    matched: dict[int, Node] = {}
    for mine, theirs in pairs:
        if foreign.nodes[mine].types != program.nodes[theirs].types:
            both = f"{foreign.nodes[mine].type} and {program.nodes[theirs].type}"
            name = program.leaf(theirs).name
            raise fail("E347", f"{source} compiled another function: `{name}` is {both}")
        matched[mine] = program.nodes[theirs]
    return matched | _known_weights(foreign, program)


def _known_weights(foreign: Program, program: Program) -> dict[int, Node]:
    """Weights by their values, or by their types where each has one of its own."""
    by_key = {program.leaf(w).key: program.nodes[w] for w in program.weights}
    matched: dict[int, Node] = {}
    for w in foreign.weights:
        leaf = foreign.leaf(w)
        if leaf.key in by_key:
            matched[w] = by_key[leaf.key]
        elif leaf.key.startswith(UNKNOWN):
            same = [program.nodes[x] for x in program.weights if program.leaf(x).type == leaf.type]
            mine = [x for x in foreign.weights if foreign.leaf(x).type == leaf.type]
            matched |= {w: same[0]} if len(same) == len(mine) == 1 else {}
    return matched


def foreign_content(foreign: Foreign) -> str:
    """The foreign program as text: its ops and dispatches, the key of a kept answer."""
    parts = [foreign.egraph.to_json(), [vars(g) for g in foreign.groups], list(foreign.ahead)]
    return json.dumps(parts)


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
    priced = priced_foreign(run, foreign)
    bounds = dict(best.goals)
    goals = tuple(
        (n, GoalResult(r.value, min(r.value, bounds[n].bound if n in bounds else 0)))
        for n, r in priced.goals
    )
    selection = replace(priced, goals=goals, cuts=best.cuts, stop=_stop(best))
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
