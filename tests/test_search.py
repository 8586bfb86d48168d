"""The search as a whole: capped candidates, the baseline as the last resort, ends without time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fuzz.searches import search
from graphs import chain, reference
from runnable import or_as_ops
from seeds import seeds

import eqsat
from eqsat.extract.groups import enumeration
from eqsat.extract.minimiser import Outcome
from eqsat.extract.search import _never_worse, _unbeaten, extract
from eqsat.extract.session import Session, prepare
from eqsat.model.deadline import CANDIDATE_TIME, ORDER_TIME, OUT_OF_TIME, SEARCH_TIME
from eqsat.model.selection import TIME_LIMIT, Cut, GoalRequest, GoalResult, Selection
from eqsat.model.target import Fusion

TIME = (GoalRequest("time"),)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups per op, and the input program's own."""
    monkeypatch.setattr(enumeration, "GROUPS_PER_NODE", 2)


def run_of(**options: object) -> eqsat.Run:
    source = eqsat.read("experiments/programs/residual.eqs")
    return eqsat.optimize(source, target="avx512-xla", **options)  # type: ignore[arg-type]


def test_capped_candidates_are_named_and_the_baseline_is_among_them(few: None) -> None:
    run = run_of()
    assert run.selection is not None and run.baseline is not None
    assert any(r.limit_name == "candidates" for r in run.selection.removed)
    assert run.selection.goal("time").value <= run.baseline.goal("time").value


def test_more_candidates_are_never_worse(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    capped = run_of().selection
    monkeypatch.undo()
    whole = run_of().selection
    assert capped is not None and whole is not None
    assert whole.goal("time").value <= capped.goal("time").value


@or_as_ops("avx512-vnni")
@pytest.mark.parametrize("seed", seeds(1, range(0, 24, 2)))
def test_random_programs_with_few_candidates_are_never_worse(few: None, seed: int) -> None:
    assert search(seed, 6.0).failure == ""


def test_a_better_baseline_is_the_answer() -> None:
    run = run_of()
    assert run.selection is not None and run.baseline is not None
    own = run.baseline.goal("time").value
    worse = replace(run.selection, goals=(("time", GoalResult(own + 5, own + 3, "search")),))
    base = replace(run.baseline, goals=(("time", GoalResult(own, 0)),))
    assert run.egraph is not None
    session = replace(prepare(run.egraph, run.target, TIME), baseline=base)
    found = _never_worse(session, worse, TIME)
    assert found.groups == run.baseline.groups
    assert found.goal("time") == GoalResult(own, own)
    own_looked_at = replace(base, candidates=worse.candidates + 7)  # the search was cut before
    kept = _never_worse(replace(session, baseline=own_looked_at), worse, TIME)
    assert kept.candidates == own_looked_at.candidates
    assert _never_worse(replace(session, baseline=worse), base, TIME) is base
    assert _never_worse(replace(session, baseline=None), worse, TIME) is worse


def test_a_search_that_finds_nothing_in_time_gives_the_baseline_and_what_none_avoids() -> None:
    run = run_of()
    assert run.baseline is not None
    assert run.egraph is not None
    session = prepare(run.egraph, run.target, TIME)
    own = replace(run.baseline, candidates=10**6)
    assert _unbeaten(session, own, "unknown").candidates == 10**6
    found = _unbeaten(session, run.baseline, "unknown")
    assert found.stop == OUT_OF_TIME
    assert all(g.bound == min(g.value, session.floors.get(n, 0)) for n, g in found.goals)
    assert 0 < found.goal("time").bound <= found.goal("time").value


@pytest.mark.parametrize(
    ("answered", "late", "cuts", "word"),
    [
        (OUT_OF_TIME, "time", (), SEARCH_TIME),
        (OUT_OF_TIME, "memory", (), ORDER_TIME),
        (OUT_OF_TIME, "memory", (Cut("groups", 3, TIME_LIMIT),), CANDIDATE_TIME),
        ("optimal", "", (), "optimal"),
    ],
)
def test_a_search_that_time_ends_says_which_step_it_was(
    answered: str, late: str, cuts: tuple[Cut, ...], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of()
    assert run.egraph is not None
    answer, selection = Session.answer, Session.selection

    def ends(self: Session, *asked: Any) -> Outcome:
        return replace(answer(self, *asked), status=answered, late=late)

    def cut(self: Session, *asked: Any) -> Selection:
        return replace(selection(self, *asked), cuts=cuts)

    monkeypatch.setattr(Session, "answer", ends)
    monkeypatch.setattr(Session, "selection", cut)
    found, _ = extract(run.egraph, run.target, TIME)
    assert found.stop == word


def test_without_time_there_is_an_answer_and_its_bound() -> None:
    from eqsat.extract import extract

    selection, baseline = extract(chain(6), reference(Fusion()), TIME, time_limit=0.0)
    assert baseline is not None
    assert selection.goal("time").value <= baseline.goal("time").value
    assert 0 < selection.goal("time").bound <= selection.goal("time").value
