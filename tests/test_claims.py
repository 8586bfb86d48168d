"""What is called proven says over what: every candidate, or those that were looked at."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import eqsat
from eqsat.lab.results import CellResult, Results
from eqsat.lab.store.record import record_of
from eqsat.lang.experiments import Cell
from eqsat.model.selection import CAP, TIME_LIMIT, Cut, GoalResult, Selection
from eqsat.report.explain import explained
from eqsat.report.facts import RunFacts
from eqsat.report.finished import ELSEWHERE, stop_warnings
from eqsat.report.page.runpage import page
from eqsat.report.pareto import FrontReport, count_sentence, front_json, is_proven, plot_data
from eqsat.report.text import cut_lines, goal_cells, summary_text

BEST = "best of 1,234 candidates, 5 places cut"
CUTS = (Cut("groups", 3, CAP), Cut("merges", 2, CAP))


@pytest.fixture(scope="module")
def proven() -> eqsat.Run:
    return eqsat.optimize(eqsat.read("transposed_pack"), target="reference")


def capped(run: eqsat.Run, stop: str = "cut", cuts: tuple[Cut, ...] = CUTS) -> eqsat.Run:
    """The run as if candidates had been left out."""
    assert run.selection is not None
    goals = tuple((n, GoalResult(g.value, g.bound)) for n, g in run.selection.goals)
    found = replace(run.selection, goals=goals, stop=stop, cuts=cuts, candidates=1234)
    return replace(run, selection=found)


def with_gap(run: eqsat.Run) -> eqsat.Run:
    assert run.selection is not None
    goals = tuple((n, replace(g, bound=g.value // 2)) for n, g in run.selection.goals)
    return replace(run, selection=replace(run.selection, goals=goals))


def test_a_search_of_all_candidates_is_called_optimal(proven: eqsat.Run) -> None:
    found = proven.selection
    assert found is not None
    assert found.claim == "optimal"
    assert (found.among, found.capped, found.is_capped) == ("", 0, False)
    assert found.candidates >= len(found.groups)
    assert f"(optimal {ELSEWHERE})" in summary_text(proven)
    assert cut_lines(proven) == []
    assert proven.summary()["claim"] == "optimal"
    assert proven.summary()["candidates"] == found.candidates


def test_where_candidates_were_left_out_every_place_says_so(proven: eqsat.Run) -> None:
    run = capped(proven)
    text = summary_text(run)
    assert f"({BEST} {ELSEWHERE})" in text
    assert "optimal" not in text
    (line,) = cut_lines(run)
    assert line.startswith(f"{BEST}; a cap left out groups behind 3 e-nodes")
    assert line in text
    asked = {g.name for g in run.goals}
    assert {r[-1] for r in goal_cells(RunFacts(run)) if r[0] in asked} == {BEST}
    told = run.summary()
    assert (told["claim"], told["candidates"], told["stop"]) == (BEST, 1234, "cut")
    assert sum(c["count"] for c in told["cuts"]) == 5
    html = page(run)
    assert BEST in html
    assert "proven: nothing better" not in html
    assert "proven" not in explained(run).title
    assert BEST in explained(run).title


def test_a_gap_among_capped_candidates_is_one_of_these(proven: eqsat.Run) -> None:
    run = with_gap(capped(proven))
    assert run.selection is not None
    over = "1,234 candidates, 5 places cut"
    assert run.selection.claim == f"best found of {over}"
    assert f"from the best of {over}" in explained(run).title
    warned = [w.message for w in stop_warnings(run) if w.code == "E401"]
    assert len(warned) == 3
    assert all(f"is possible among {over} (gap" in w for w in warned)
    assert {r[-1] for r in goal_cells(RunFacts(run))} == {""}


def test_bounds_hold_for_what_the_time_limit_left_out(proven: eqsat.Run) -> None:
    run = capped(proven, "time", (Cut("groups", 1, TIME_LIMIT),))
    assert run.selection is not None
    assert run.selection.claim == "best found of 1,234 candidates, 1 place cut"
    assert f"({run.selection.claim}; time)" in summary_text(run)
    assert not run.selection.is_capped
    assert "from the best of this e-graph" in explained(with_gap(run)).title
    assert {r[-1] for r in goal_cells(RunFacts(run))} == {""}


def test_a_row_of_an_experiment_says_so(proven: eqsat.Run) -> None:
    cell = Cell("a", "transposed_pack", "reference")
    outcome = CellResult(cell, record_of("", capped(proven), ()))
    results = Results("x", "", (outcome,))
    assert "not proven to be the best" in results.to_text()
    assert outcome.status_text().endswith(BEST)
    assert results.rows()[0]["claim"] == BEST


def test_a_front_of_capped_candidates_is_not_proven(proven: eqsat.Run) -> None:
    found = (capped(proven), proven)
    front, whole = (
        FrontReport("x", (r,), 1, s == "complete", s, 0.0, None)
        for r, s in zip(found, ("cut", "complete"), strict=True)
    )
    assert count_sentence(front) == f"1 point ({BEST}: there may be others)"
    assert not is_proven(front, front.runs[0])
    assert [p["isProven"] for p in plot_data(front)["points"]] == [False]
    assert front_json(front)["among"] == "1,234 candidates, 5 places cut"
    assert count_sentence(whole) == f"1 point (proven {ELSEWHERE}: there is no other)"
    assert is_proven(whole, whole.runs[0])
    assert front_json(whole)["among"] is None


def test_the_count_is_kept(proven: eqsat.Run) -> None:
    found = capped(proven).selection
    assert found is not None
    data = json.loads(json.dumps(found.to_json()))
    assert Selection.from_json(data) == found
    del data["candidates"]
    assert Selection.from_json(data).candidates == 0  # a run of before
