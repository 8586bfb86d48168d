"""What of a schedule is computed in a call, in order: members of dispatches and views of values."""

from __future__ import annotations

from eqsat.model.ops import VIEWS
from eqsat.model.schedule import Schedule


def run_order(schedule: Schedule) -> dict[int, int]:
    """Node → the dispatch that first computes it, in the order of execution.

    A view that no dispatch has, such as a result that is a reshape of another value, belongs to the
    dispatch of what it views; one of an argument to the first.
    """
    program = schedule.program
    found: dict[int, int] = {}
    for number, d in enumerate(schedule.dispatches):
        for m in d.members:
            found.setdefault(m, number)
    needed = {o for m in found for o in program.nodes[m].operands} | {*program.results}
    needed |= {o for i in needed for o in _viewed(schedule, i)}
    arguments, ahead = set(program.inputs), set(schedule.ahead)
    for i in sorted(needed - found.keys() - ahead):
        n = program.nodes[i]
        if n.op in VIEWS and all(o in found or o in arguments for o in n.operands):
            found[i] = max(found.get(o, 0) for o in n.operands)
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def _viewed(schedule: Schedule, node: int) -> list[int]:
    """The views that a view is seen through."""
    nodes, found = schedule.program.nodes, list[int]()
    while nodes[node].op in VIEWS:
        (node,) = nodes[node].operands
        found.append(node)
    return found
