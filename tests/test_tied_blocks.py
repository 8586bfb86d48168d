"""Equal blocks get equal dispatches, where no goal gets worse by that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.extract.blockcopies import BlockCopies, group_work
from eqsat.extract.blockruns import Chosen
from eqsat.extract.check import check
from eqsat.extract.given import priced_selection
from eqsat.extract.ordered import SearchLimits
from eqsat.extract.session import Session, prepare
from eqsat.extract.solve.linear import TIE_BREAK, value_stated
from eqsat.extract.tiedblocks import with_equal_blocks
from eqsat.lang.programs import parse_program
from eqsat.model.selection import GoalRequest, Group, Selection
from eqsat.saturate import saturate

# the sum may be computed with one product or with the other, which costs the same
LAYER = """weight w{i}: f32[16, 16]
weight v{i}: f32[16, 16]
m{i} = matmul(h{i}, w{i})
n{i} = matmul(h{i}, v{i})
h{j} = add(m{i}, n{i})"""
FIRST, SECOND, APART = range(3)  # what the sum is computed with; alone it costs more
COUNT = 5
GOALS = tuple(GoalRequest(n) for n in ("time", "memory", "dispatches"))
TARGET = eqsat.target("reference")


def text_of(count: int, behind: str = "") -> str:
    body = "\n".join(LAYER.format(i=i, j=i + 1) for i in range(count))
    return f"program p\ninput h0: f32[16, 16]\n{body}\nreturn h{count}{behind}\n"


@cache
def session_of(count: int = COUNT, behind: str = "") -> Session:
    program = parse_program(text_of(count, behind), "p.eqs")
    graph = saturate(program, eqsat.rules("layout/transpose"), TARGET)
    return prepare(graph, TARGET, GOALS)


def chosen(ways: Sequence[int], count: int = COUNT, behind: str = "") -> tuple[Session, Selection]:
    """The selection that computes the sum of every layer in the way that is named."""
    session = session_of(count, behind)
    graph, wanted = session.egraph, {0, *graph_roots(session)}
    own = {n.eclass: i for i, n in enumerate(graph.nodes) if n.rule == -1}
    groups: list[Group] = []

    def add(members: list[int], reads: list[int]) -> None:
        writes = [c for c in members[:-1] if c in wanted] + members[-1:]
        nodes = tuple(own[c] for c in members)
        groups.append(Group(nodes, tuple(reads), tuple(writes), 0, len(groups)))

    h, at = graph.values[0], 1
    for way in ways:
        w, v, m, n, after = graph.values[at : at + 5]
        if way != FIRST:
            add([m], [h, w])
        if way != SECOND:
            add([n], [h, v])
        reads = {FIRST: [h, w, n], SECOND: [h, v, m], APART: [m, n]}[way]
        add([*{FIRST: [m], SECOND: [n], APART: []}[way], after], reads)
        h, at = after, at + 5
    ahead = session.assembly.ahead(tuple(groups))
    return session, priced_selection(graph, TARGET, groups, ahead, [g.name for g in GOALS])


def graph_roots(session: Session) -> set[int]:
    return set(session.egraph.roots)


def alike(session: Session, found: Selection, seconds: float = 60.0) -> Selection:
    limits = SearchLimits(time.monotonic() + seconds, 0)
    return with_equal_blocks(session.assembly, TARGET, found, session.linear, limits)


def ways_of(session: Session, found: Selection) -> list[int]:
    """How the sum of every layer is computed."""
    values = session.egraph.values
    makers = {session.egraph.nodes[m].eclass: g for g in found.groups for m in g.members}
    layers = [values[1 + 5 * k :][2:5] for k in range(len(values) // 5)]
    pairs = [[makers[m] is makers[h], makers[n] is makers[h]] for m, n, h in layers]
    return [[*fused, True].index(True) for fused in pairs]


def worth(session: Session, found: Selection) -> dict[str, int]:
    ties = session.linear[TIE_BREAK]
    value = value_stated(TIE_BREAK, ties, session.egraph, TARGET, found)
    return {n: r.value for n, r in found.goals} | {TIE_BREAK: value}


def test_the_ways_are_tied():
    every = [worth(*chosen([w] * COUNT)) for w in (FIRST, SECOND, APART)]
    assert every[0] == every[1]
    assert every[0]["time"] < every[2]["time"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([FIRST, SECOND, APART]), min_size=COUNT, max_size=COUNT))
def test_all_layers_are_alike_and_no_goal_is_worse(ways: list[int]):
    session, found = chosen(ways)
    assert ways_of(session, found) == ways
    assert check(session.egraph, TARGET, found) == []
    made = alike(session, found)
    before, after = worth(session, found), worth(session, made)
    assert all(after[n] <= before[n] for n in before)
    assert check(session.egraph, TARGET, made) == []
    if APART not in ways:
        assert after == before
    inner = ways_of(session, made)[1:-1]
    assert len(set(inner)) == 1
    if len(set(ways)) == 1:
        assert made is found


def test_it_is_deterministic():
    ways = [FIRST, SECOND, SECOND, FIRST, SECOND]
    assert alike(*chosen(ways)) == alike(*chosen(ways))


def test_a_layer_that_cannot_be_like_the_others_stays():
    """Both products of a middle layer are results, so the sum is computed alone."""
    ways = [FIRST, SECOND, SECOND, FIRST, APART, SECOND, FIRST, SECOND]
    session, found = chosen(ways, 8, ", m4, n4")
    made = alike(session, found)
    assert made is not found
    assert check(session.egraph, TARGET, made) == []
    assert worth(session, made) == worth(session, found)
    result = session.egraph.values[5 * 4 + 5]
    assert work_of(made, result) == work_of(found, result)
    after = ways_of(session, made)
    assert len(set(after[:4])) == 1
    assert len(set(after[5:])) == 1


def work_of(found: Selection, written: int) -> Any:
    """The dispatch that writes a class, wherever it stands."""
    return next(group_work(g) for g in found.groups if written in g.writes)


def test_nothing_repeats():
    program = parse_program("program p\ninput x: f32[8]\nreturn exp(x)\n", "p.eqs")
    graph = saturate(program, eqsat.rules("layout/transpose"), TARGET)
    assert graph.shift is None
    session = prepare(graph, TARGET, GOALS)
    assert session.baseline is not None
    assert alike(session, session.baseline) is session.baseline


def test_without_time_nothing_is_tried():
    session, found = chosen([FIRST, SECOND, FIRST, SECOND, FIRST])
    assert alike(session, found, seconds=0.0) is found


def test_a_search_gives_equal_layers_one_program(monkeypatch: pytest.MonkeyPatch):
    """It is worth what the search says, and claims what it claims without."""
    program = parse_program(text_of(COUNT), "p.eqs")
    options: dict[str, Any] = {"rules": "layout/transpose", "target": TARGET}
    found = eqsat.optimize(program, **options).selection
    seen: list[Selection] = []

    def as_found(assembly: Any, target: Any, selection: Selection, *rest: Any) -> Selection:
        seen.append(selection)
        return selection

    monkeypatch.setattr("eqsat.extract.session.with_equal_blocks", as_found)
    before = eqsat.optimize(program, **options).selection
    assert found is not None
    assert before is not None
    assert seen
    assert (found.goals, found.stop, found.cuts) == (before.goals, before.stop, before.cuts)
    session = session_of()
    copies = BlockCopies(session.assembly.pool.space, session.egraph.shift)
    for cut in copies.cuts(found.groups):
        variants = Chosen(found.groups, copies, cut).variants
        assert len({variants[k] for k in sorted(variants)[1:-1]}) == 1
