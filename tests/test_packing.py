"""Where time cuts candidates short, there is an answer better than the input program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import eqsat
from eqsat.extract import session
from eqsat.extract.search import extract
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.deadline import OutOfTime
from eqsat.model.egraph import EGraph
from eqsat.model.selection import TIME_LIMIT, Cut, GoalRequest
from eqsat.ops.spelling.passes import canonical
from eqsat.saturate import saturate

TIME, MEMORY = GoalRequest("time"), GoalRequest("memory")
TARGET = load_target("avx512")


@pytest.fixture(scope="module")
def layer() -> EGraph:
    """Of a layer whose products are faster on packed weights."""
    program = parse_program(
        "input x: f32[128, 384]\nweight w: f32[384, 1536]\nweight v: f32[1536, 384]\n"
        "h = relu(matmul(x, w))\ny = matmul(h, v)\nreturn y\n"
    )
    return saturate(canonical(program), load_rulesets(["default"]), TARGET)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is over before anything is known of all candidates."""

    def choices(pool: Any, *args: Any, baseline: Any = (), **options: Any) -> Any:
        if baseline:
            raise OutOfTime
        return found(pool, *args, baseline=baseline, **options)

    found = session.choices
    monkeypatch.setattr(session, "choices", choices)


@pytest.mark.usefixtures("ended")
def test_it_is_the_answer_where_time_ends(layer: EGraph) -> None:
    selection, baseline = extract(layer, TARGET, (TIME, MEMORY))
    assert baseline is not None
    assert selection.goal("time").value < baseline.goal("time").value
    assert selection.groups != baseline.groups
    assert selection.goal("time").bound <= selection.goal("time").value
    assert selection.stop == "candidate time"


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time left some candidate out."""

    def choices(pool: Any, *args: Any, baseline: Any = (), **options: Any) -> Any:
        there = found(pool, *args, baseline=baseline, **options)
        cuts = (Cut("groups", 1, TIME_LIMIT),) if baseline else ()
        return replace(there, cuts=(*there.cuts, *cuts))

    found = session.choices
    monkeypatch.setattr(session, "choices", choices)


def test_it_is_not_looked_for_where_all_candidates_are_there(
    layer: EGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(session, "packing")
    assert session.prepare(layer, TARGET, (TIME,)).start is None


@pytest.mark.usefixtures("cut")
def test_the_search_starts_from_it(layer: EGraph) -> None:
    found = session.prepare(layer, TARGET, (TIME,))
    assert found.start is not None and found.baseline is not None
    few, answer = found.start
    value = few.choice.value("time", answer)
    assert value < found.baseline.goal("time").value
    assert found.best is not None
    assert found.assembly.choice.value("time", found.best) <= value


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("goals", [(MEMORY, TIME)])
def test_it_is_about_sums(layer: EGraph, goals: tuple[GoalRequest, ...]) -> None:
    assert session.prepare(layer, TARGET, goals).start is None


@pytest.mark.usefixtures("cut")
def test_nothing_is_packed_where_that_is_no_faster() -> None:
    target = load_target("reference")
    read = eqsat.read("experiments/programs/three_readers.eqs")
    graph = saturate(canonical(read.program), load_rulesets(["default"]), target)
    found = session.prepare(graph, target, (TIME,))
    assert found.start is None and found.baseline is not None
