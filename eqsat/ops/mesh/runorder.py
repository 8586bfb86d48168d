"""Nodes of a schedule that a call computes, in order: members of dispatches and views of values."""

from __future__ import annotations

from eqsat.model.ops import VIEWS
from eqsat.model.schedule import Schedule


def run_order(schedule: Schedule) -> dict[int, int]:
    """Node → the dispatch that first computes it, in the order of execution.

    A view that no dispatch has, such as a result that is a reshape of another value, belongs to the
    dispatch of what it views; one of an argument to the first.
    """
    program = schedule.program
    dispatch_of: dict[int, int] = {}
    for number, d in enumerate(schedule.dispatches):
        for m in d.members:
            dispatch_of.setdefault(m, number)
    needed = {o for m in dispatch_of for o in program.nodes[m].operands} | {*program.results}
    needed |= {o for i in needed for o in _viewed(schedule, i)}
    arguments, ahead = set(program.inputs), set(schedule.ahead)
    for i in sorted(needed - dispatch_of.keys() - ahead):
        n = program.nodes[i]
        if n.op in VIEWS and all(o in dispatch_of or o in arguments for o in n.operands):
            dispatch_of[i] = max(dispatch_of.get(o, 0) for o in n.operands)
    return dict(sorted(dispatch_of.items(), key=lambda item: (item[1], item[0])))


def _viewed(schedule: Schedule, node: int) -> list[int]:
    """The views that a view is seen through."""
    nodes, views = schedule.program.nodes, list[int]()
    while nodes[node].op in VIEWS:
        (node,) = nodes[node].operands
        views.append(node)
    return views
