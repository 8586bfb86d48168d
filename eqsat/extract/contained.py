"""A rule set that contains another one is never worse for it, however soon its search ends.

Saturation applies the contained set first and marks what only the other rules reach
(`ENode.extra`). Where the search of all that proves nothing in its share of the time, the rest of
the e-graph is searched alone: any answer of that is one of the whole, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.extract.choice.requests import limit, weigh
from eqsat.model.egraph import EGraph
from eqsat.model.selection import GoalRequest, GoalResult, Selection

DONE = ("optimal", "gap", "cut")  # why a search ends that looked at all it was to look at


def contained(egraph: EGraph) -> EGraph | None:
    """What the contained rule set reaches alone; None if there is none, or no rule is beside it.

    Nodes keep their numbers; the others are there, and may not be chosen.
    """
    if not any(n.extra for n in egraph.nodes):
        return None
    nodes = (replace(n, subsumed=True) if n.extra else n for n in egraph.nodes)
    return replace(egraph, nodes=tuple(nodes))


def may_be_beaten(found: Selection | None, goals: tuple[GoalRequest, ...]) -> bool:
    """Whether an answer that fewer rules reach could be better."""
    if found is None or found.cuts:
        return True
    return found.stop != "optimal" and any(found.goal(g.name).gap for g in goals)


def better_of(
    whole: Selection,
    part: Selection,
    goals: tuple[GoalRequest, ...],
    reference: Mapping[str, int] | None,
) -> Selection:
    """The answer of all rules, or that of the contained ones if it is better.

    Bounds are those of all rules; `reference` are the values of the baseline.
    """
    if not _is_better(part, whole, goals, dict(reference or {})):
        return whole
    bounds = dict(whole.goals)
    own = tuple((n, bounded_by(r, bounds[n])) for n, r in part.goals)
    return replace(
        part,
        goals=own,
        stop=whole.stop if part.stop in DONE else part.stop,
        removed=whole.removed,
        cuts=whole.cuts,
        candidates=max(whole.candidates, part.candidates),
        seconds=whole.seconds + part.seconds,
    )


def bounded_by(own: GoalResult, found: GoalResult) -> GoalResult:
    """A value with the bound, and what proved it, of an answer to the same question."""
    if own.value == found.value:
        return found
    return GoalResult(own.value, min(own.value, found.bound))


def _is_better(
    one: Selection, other: Selection, goals: tuple[GoalRequest, ...], reference: dict[str, int]
) -> bool:
    """By the goals in their order, each within its tolerance, or by their weighted sum."""
    if goals[0].weight is not None:
        weights = weigh(goals, reference)
        sums = [sum(w * s.goal(g).value for g, w in weights.items()) for s in (one, other)]
        return sums[0] < sums[1]
    for g in goals:
        values = [s.goal(g.name).value for s in (one, other)]
        if max(values) > limit(g, min(values), reference):
            return values[0] < values[1]
    return False
