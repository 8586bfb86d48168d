"""One e-graph searched twice: with what is known of a block used for equal ones, and without."""

from __future__ import annotations

from dataclasses import replace

from eqsat.api import Run
from eqsat.extract import extract
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.selection import Selection


def without_copies(egraph: EGraph) -> EGraph:
    """The same e-graph, whose blocks nobody takes for equal."""
    found = replace(egraph)
    vars(found)["shift"] = None
    return found


def differences(run: Run, seconds: float) -> list[str]:
    """What a search that copies nothing proves otherwise; nothing where either left things out."""
    assert run.egraph is not None and run.selection is not None
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
