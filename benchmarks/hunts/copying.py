"""One e-graph searched twice: with what is known of a block used for equal ones, and without."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from eqsat.api import Run
from eqsat.extract import extract
from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.enumeration import enumerated
from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.selection import Selection
from eqsat.model.target import Target


def without_copies(egraph: EGraph) -> EGraph:
    """The same e-graph, whose blocks nobody takes for equal."""
    found = replace(egraph)
    vars(found)["shift"] = None
    return found


def candidates(egraph: EGraph, target: Target, asked: frozenset[str]) -> set[object] | None:
    """Every dispatch there is to choose from, whatever the order and the shapes of its parts.

    None if some are left out. asked: names of the goals and budgets. OutOfTime under a deadline.
    """
    space = Space(egraph)
    found = enumerated(Pool(Legality(space, target), False, asked), Costs(space, target))
    return None if found.cuts else {_told(space, c) for c in found.all}


def _told(space: Space, c: Candidate) -> object:
    sides = (frozenset(space.buffer[x] for x in side) for side in (c.reads, c.writes, c.exposable))
    return frozenset(c.members), *sides, c.time_ps, c.slack_ps


def differences(run: Run, seconds: float) -> list[str]:
    """What is otherwise in a search that copies nothing; nothing where either left things out."""
    assert run.egraph is not None and run.selection is not None
    asked = frozenset((*(g.name for g in run.goals), *dict(run.target.budget)))
    with suppress(OutOfTime), until(time.monotonic() + seconds):
        copied = candidates(run.egraph, run.target, asked)
        direct = candidates(without_copies(run.egraph), run.target, asked)
        if copied is not None and direct is not None and copied != direct:
            more, less = len(copied - direct), len(direct - copied)
            return [f"copies of blocks: {more} candidates that are none, {less} missing"]
    try:
        egraph, seed = without_copies(run.egraph), run.search["seed"]
        direct, _ = extract(egraph, run.target, run.goals, time_limit=seconds, seed=int(seed))
    except EqsatError as error:
        return [] if run.selection.cuts else [f"without copies of blocks: {error}"]
    return contradictions(run, run.selection, direct)


def contradictions(run: Run, copied: Selection, direct: Selection) -> list[str]:
    """Values that are proven on both sides and differ; goals count in their order."""
    if copied.cuts or direct.cuts:
        return []
    if run.goals[0].weight is not None or any(g.within for g in run.goals):
        return []  # only the weighted sum, or the first goal's value, would have to be equal
    for goal in run.goals:
        a, b = copied.goal(goal.name), direct.goal(goal.name)
        if a.gap or b.gap:
            break
        if a.value != b.value:
            what = f"{a.value} with copies of blocks, {b.value} without"
            return [f"the optimum of `{goal.name}` is {what}"]
    return []
