"""One e-graph searched twice: with four of its equal blocks, and with all of them."""

from __future__ import annotations

from dataclasses import replace

from eqsat.api import Run
from eqsat.extract import extract
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.selection import Selection


def with_all_blocks(egraph: EGraph) -> EGraph:
    """The same e-graph, whose blocks nobody takes for equal."""
    found = replace(egraph)
    vars(found)["shift"] = None
    return found


def differences(run: Run, seconds: float) -> list[str]:
    """What is otherwise in a search of all blocks; nothing where either left things out."""
    assert run.egraph is not None and run.selection is not None
    try:
        egraph, seed = with_all_blocks(run.egraph), run.search["seed"]
        whole, _ = extract(egraph, run.target, run.goals, time_limit=seconds, seed=int(seed))
    except EqsatError as error:
        return [] if run.selection.cuts else [f"with all blocks: {error}"]
    return contradictions(run, run.selection, whole)


def contradictions(run: Run, short: Selection, whole: Selection) -> list[str]:
    """Values that are proven on both sides and differ; goals count in their order."""
    if short.cuts or whole.cuts:
        return []
    if run.goals[0].weight is not None or any(g.within for g in run.goals):
        return []  # only the weighted sum, or the first goal's value, would have to be equal
    for goal in run.goals:
        a, b = short.goal(goal.name), whole.goal(goal.name)
        if a.gap or b.gap:
            break
        if a.value != b.value:
            what = f"{a.value} with four of the blocks, {b.value} with all"
            return [f"the optimum of `{goal.name}` is {what}"]
    return []
