"""A dispatch writes nothing that nobody reads, where no goal gets worse by that."""

from __future__ import annotations

from functools import cache

import pytest

import eqsat
from eqsat.extract.check import Checker, check
from eqsat.extract.selected import priced_selection, with_read_results
from eqsat.extract.session import Session, prepare
from eqsat.lang.programs import parse_program
from eqsat.model.selection import GoalRequest, Group, Selection
from eqsat.saturate import saturate

# what the product is computed with; `e` is of no use to anybody
TEXT = """program p
input x: f32[16, 16]
weight w: f32[16, 16]
m = matmul(x, w)
e = exp(m)
h = add(m, x)
y = neg(h)
return y
"""
GOALS = ("time", "memory", "dispatches")
TARGET = eqsat.target("avx512-xla")


@cache
def session() -> Session:
    program = parse_program(TEXT, "p.eqs")
    graph = saturate(program, eqsat.rules("layout/transpose"), TARGET)
    return prepare(graph, TARGET, tuple(GoalRequest(n) for n in GOALS))


def selection(*dispatches: tuple[str, str, str]) -> Selection:
    """Of members, reads and writes, each named by letters."""
    graph = session().egraph
    number = dict(zip("xwmehy", graph.values, strict=True))
    own = {n.eclass: i for i, n in enumerate(graph.nodes) if n.rule == -1}
    groups: list[Group] = []
    for members, reads, writes in dispatches:
        nodes = tuple(own[number[c]] for c in members)
        ends = (tuple(number[c] for c in named) for named in (reads, writes))
        groups.append(Group(nodes, *ends, 0, len(groups)))
    return priced_selection(graph, TARGET, groups, session().assembly.ahead(tuple(groups)), GOALS)


def fewer(found: Selection) -> Selection:
    return with_read_results(session().assembly, TARGET, found)


LEAN = (("mh", "xw", "h"), ("y", "h", "y"))


def test_a_value_from_inside_is_not_written_for_nobody():
    found, lean = selection(("mh", "xw", "mh"), LEAN[1]), selection(*LEAN)
    assert check(session().egraph, TARGET, found) == []
    assert found.goal("time").value > lean.goal("time").value
    assert found.goal("memory").value > lean.goal("memory").value
    assert fewer(found) == lean


def test_what_is_computed_for_nobody_goes_too():
    found = selection(("meh", "xw", "eh"), LEAN[1])
    assert check(session().egraph, TARGET, found) == []
    assert fewer(found) == selection(*LEAN)


def test_what_is_read_stays():
    for found in (selection(*LEAN), selection(("m", "xw", "m"), ("h", "mx", "h"), LEAN[1])):
        assert fewer(found) is found


def test_a_dispatch_that_would_cost_more_stays(monkeypatch: pytest.MonkeyPatch):
    """Without the result it may be a kernel, and XLA's op the cheaper one by the model."""
    found = selection(("mh", "xw", "mh"), LEAN[1])
    dearer = found.groups[0].time_ps + 1
    monkeypatch.setattr(Checker, "price_ps", lambda self, g: dearer)
    assert fewer(found) is found
