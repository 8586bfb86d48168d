"""Who writes the first of some layouts: what keeps layouts from being converted in a circle.

Without an order, dispatches could wait for each other: one writes a layout while it reads another,
and the other way round. But of any set of buffers somebody writes the first one, and reads none of
them: if one of them is read, one of these *entries* is chosen. After the cuts of arborescences
(Edmonds 1967); stated for all layouts of a value, and for those that are converted into each other,
they make the relaxation of encoder layers exact.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.solve.anyorder import AnyOrder
    from eqsat.extract.solve.problem import Supply


def first_entries(problem: AnyOrder) -> list[Supply]:
    """(options that may write the first of some buffers, options that read one of them), per set.

    A reader needs one of the former. A value that is not there from the start is computed by who
    writes its first layout.
    """
    layouts: dict[int, set[int]] = {}
    for b in (*problem.writers, *problem.readers):
        layouts.setdefault(problem.value_of[b], set()).add(b)
    ways = _conversions(problem)
    found: list[Supply] = []
    for v, buffers in sorted(layouts.items()):
        tick()
        first, readers = _entry(problem, buffers)
        is_source = v in problem.sources
        first = tuple(i for i in first if is_source or v in problem.computes[i])
        sets = circles(ways[v]) if v in ways else ()
        found += [(first, readers), *(_entry(problem, s) for s in sets)]
    return [(first, readers) for first, readers in found if readers]


def _conversions(problem: AnyOrder) -> dict[int, dict[int, set[int]]]:
    """Per value: the layouts that some option writes while it reads a layout of it."""
    value, found = problem.value_of, dict[int, dict[int, set[int]]]()
    for o in problem.options:
        for a in o.reads:
            for b in o.writes:
                if value[a] == value[b]:
                    found.setdefault(value[a], {}).setdefault(a, set()).add(b)
    return found


def circles(ways: dict[int, set[int]]) -> list[frozenset[int]]:
    """Layouts that can be converted into each other, in one step or more."""
    reached = {a: _reached(ways, a) for a in ways}
    sets = (frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in ways)
    return sorted({s for s in sets if len(s) > 1}, key=sorted)


def _reached(ways: dict[int, set[int]], layout: int) -> set[int]:
    found: set[int] = set()
    waiting = [layout]
    while waiting:
        news = ways.get(waiting.pop(), set()) - found
        found |= news
        waiting += news
    return found


def _entry(problem: AnyOrder, among: Set[int]) -> Supply:
    options = problem.options
    writers = {i for b in among for i in problem.writers.get(b, ())}
    readers = sorted({i for b in among for i in problem.readers.get(b, ())})
    first = sorted(i for i in writers if among.isdisjoint(options[i].reads))
    return tuple(first), tuple(readers)
