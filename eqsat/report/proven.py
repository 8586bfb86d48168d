"""How far an answer is proven, in the words that are printed, and whose figures that is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eqsat.lang.targettext import differences
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Target

ELSEWHERE = "for figures not measured here"
MEASURED = ("memory", "launch", "kernels")  # keys of a target's file that `calibrate` writes
FIGURES = (*MEASURED, "rates", "relayout", "tiles", "untiled", "untiled_rate", "elementwise_rate")


def claim_text(selection: Selection, target: Target, goals: Iterable[GoalRequest]) -> str:
    """`optimal for figures not measured here`: what is claimed, and by whose figures."""
    claim = selection.claim
    is_proof = claim == "optimal" or claim.startswith("best of")
    return f"{claim}{by_figures(target, goals)}" if is_proof else claim


def proof_text(
    selection: Selection, goal: str, target: Target, goals: Iterable[GoalRequest]
) -> str:
    """`proven for figures not measured here`, over which candidates it is the best, or a gap."""
    gap = selection.goal(goal).gap
    if gap >= 0.001:
        return f"gap {gap:.1%}"
    word = f"best of {selection.among}" if selection.cuts else "proven"
    return f"{word}{' to 0.1 %' if gap else ''}{by_figures(target, goals)}"


def is_best(selection: Selection, goals: Sequence[GoalRequest]) -> bool:
    """Whether nothing that the rules reach is better by the first goal, or by the weighted sum."""
    is_met = goals[0].weight is None and selection.goal(goals[0].name).gap == 0
    return selection.stop == "optimal" or (is_met and not selection.cuts)


def by_figures(target: Target, goals: Iterable[GoalRequest]) -> str:
    """What is said behind a proof: ` for figures not measured here`; "" if all of them were.

    ` for 5 figures measured here` where these scale all others. Also "" where no time is proven:
    bytes and counts of dispatches follow from no measured figure.
    """
    if not any(g.name == "time" for g in goals):
        return ""
    if not is_measured_here(target):
        return f" {ELSEWHERE}"
    count = max(t.measured_on.figures if t.measured_on else 0 for t in _parts(target))
    return f" for {count} figures measured here" if count else ""


def is_measured_here(target: Target) -> bool:
    """Whether a target's figures were measured on this machine, all or those that scale all."""
    return all(_is_measured_here(t) for t in _parts(target))


def _parts(target: Target) -> tuple[Target, ...]:
    return (target, *(t for _, t in target.devices))


def _is_measured_here(target: Target) -> bool:
    """Whether the figures are still those of the file that says where they were measured: here."""
    if target.measured_on is None or differences(target.measured_on):
        return False
    places = dict(target.places)
    file = _file(places.get("measured_on", ""))
    is_set = any(
        at.startswith("--set") and key.split(".")[0] in FIGURES for key, at in places.items()
    )
    return not is_set and all(_file(places[k]) == file for k in MEASURED if k in places)


def _file(place: str) -> str:
    """`targets/host.yaml:3:1` → `targets/host.yaml`."""
    return place.rsplit(":", 2)[0]
