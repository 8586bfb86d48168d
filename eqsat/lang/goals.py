"""Goals as a user writes them: names, weights and slack → `GoalRequest`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eqsat.model.diag import did_you_mean, fail
from eqsat.model.selection import GoalRequest
from eqsat.plugins import plugged_in

GOALS = ("time", "memory", "dispatches", "relayout", "resident", "load_peak")
_NUMBER = r"\d+(?:\.\d+)?"
_GOAL = re.compile(rf"(\w+)(?::(?:(?P<weight>{_NUMBER})|within=(?P<within>{_NUMBER})\s*%))?")


def parse_goals(texts: Sequence[str]) -> tuple[GoalRequest, ...]:
    """`time`, `memory:within=1%`, or all of them with weights: `time:2`, `memory:1`.

    E264 if a goal cannot be read, E404 if some have weights and some have not.
    """
    goals = tuple(_goal(t) for t in texts)
    weighted = [g.weight is not None for g in goals]
    if any(weighted) and not all(weighted):
        message = "goals have weights either all or none"
        raise fail("E404", message, help="without weights the first goal is minimised first")
    names = [g.name for g in goals]
    if len(set(names)) < len(names):
        raise fail("E264", "a goal is named twice")
    return goals


def _goal(text: str) -> GoalRequest:
    match = _GOAL.fullmatch(text.strip())
    known = (*GOALS, *plugged_in("goals"))
    word = text.partition(":")[0].strip()
    if word not in known:
        raise fail("E264", f"no goal named `{word}`", help=did_you_mean(word, known))
    if match is None:
        hint = f"write `{word}:0.5` or `{word}:within=1%`"
        raise fail("E264", f"cannot read the goal `{text}`", help=hint)
    weight = None if match["weight"] is None else float(match["weight"])
    return GoalRequest(word, weight, float(match["within"] or 0) / 100)
