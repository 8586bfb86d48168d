"""The time limit holds from the end of reading to the schedule, and what it cut is told."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator

import pytest
from graphs import ALL, chain, diamond, reference
from seeds import one_in, seeds

import eqsat
from eqsat.extract import check, extract
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.floors import floors
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.model import deadline
from eqsat.model.deadline import (
    CANDIDATE_TIME,
    OutOfTime,
    Stop,
    elapsed,
    seconds_left,
    tick,
    until,
    whatever_it_takes,
)
from eqsat.model.egraph import EGraph
from eqsat.model.progress import Progress, heard
from eqsat.model.selection import TIME_LIMIT, Selection
from eqsat.model.target import Fusion, Target
from eqsat.report.text import cut_lines

# where a search of the programs below is when its time ends: from "at once" to "never"
ENDS = (0, 1, 3, 10, 30, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Time that ends after so many ticks instead of seconds: `left`."""
    count = {"left": 1 << 60}

    def is_over(scope: deadline._Scope) -> bool:
        if scope.at == math.inf:
            return False
        count["left"] -= 1
        return count["left"] < 0

    monkeypatch.setattr(deadline._Scope, "is_over", property(is_over))
    yield count
    monkeypatch.undo()


def test_a_deadline_is_kept_by_what_is_called_below_it() -> None:
    tick()
    assert seconds_left() == math.inf
    with until(elapsed() + 1000):
        tick()
        assert 0 < seconds_left() < 1000.001  # sums of floats
        with until(math.inf):
            assert seconds_left() < 1000.001  # an inner scope ends with its outer one
        with until(elapsed() - 1):
            with pytest.raises(OutOfTime):
                tick()
            with whatever_it_takes():
                tick()
            assert deadline.is_over()
        tick()
    assert seconds_left() == math.inf


def test_the_clock_counts_work_whole_and_waiting_by_a_fifth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"wall": 100.0, "cpu": 7.0}
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now["wall"])
    monkeypatch.setattr(deadline.time, "process_time", lambda: now["cpu"])
    clock = deadline._Clock()
    for wall, cpu, counted in (
        (2.0, 2.0, 2.0),
        (10.0, 0.0, 2.0),
        (10.0, 3.0, 3.0),
        (1.0, 2.0, 2.0),
    ):
        before = clock.elapsed()
        now["wall"], now["cpu"] = now["wall"] + wall, now["cpu"] + cpu
        assert clock.elapsed() - before == pytest.approx(counted)


def test_a_solver_that_knows_no_clock_is_ended_when_its_time_is_over() -> None:
    ended = threading.Event()
    with deadline.ending(ended.set, 0.0):
        assert ended.wait(60)
    with deadline.ending(ended.clear, 1000.0), deadline.ending(ended.clear, math.inf):
        pass
    assert ended.is_set()


def test_a_request_to_stop_ends_the_scope() -> None:
    stop = Stop()
    with until(math.inf, stop):
        tick()
        stop.request()
        with pytest.raises(OutOfTime):
            tick()


def judged(egraph: EGraph, target: Target, found: Selection, best: Selection) -> None:
    """A legal answer, its bounds below the best answer there is, and nothing claimed too much."""
    assert check(egraph, target, found) == []
    for name, goal in found.goals:
        proven = best.goal(name)
        if name == found.goals[0][0]:
            assert goal.bound <= proven.value <= goal.value
    if found.cuts:
        assert found.stop == CANDIDATE_TIME
        assert not any(g.proof for _, g in found.goals)
    if found.stop == "optimal":
        assert found.goals[0][1].value == best.goals[0][1].value


@pytest.fixture(scope="module")
def optima() -> list[tuple[EGraph, Target, Selection]]:
    """Graphs by hand, and the answers to all goals where time does not end."""
    target = reference(Fusion(members=3, multi_result=True))
    return [(g, target, extract(g, target, ALL)[0]) for g in (diamond(), chain(6))]


@pytest.mark.parametrize("ends", one_in(4, ENDS))
def test_whenever_time_ends_there_is_a_legal_answer(
    optima: list[tuple[EGraph, Target, Selection]], ticks: dict[str, int], ends: int
) -> None:
    for graph, target, best in optima:
        ticks["left"] = ends
        found, baseline = extract(graph, target, ALL)
        ticks["left"] = 1 << 60
        assert baseline is not None
        assert found.goal("time").value <= baseline.goal("time").value
        judged(graph, target, found, best)


@pytest.fixture(scope="module")
def searched() -> dict[str, eqsat.Run]:
    programs = {"transposed_pack": "reference", "residual": "avx512-xla", "two_packs": "iree-like"}
    return {p: eqsat.optimize(eqsat.read(p), target=t) for p, t in programs.items()}


@pytest.mark.parametrize("ends", one_in(8, ENDS[1::2]))
@pytest.mark.parametrize("goals", [("time",), ("memory", "time")])
def test_searches_of_programs_end_whenever_time_does(
    searched: dict[str, eqsat.Run], ticks: dict[str, int], ends: int, goals: tuple[str, ...]
) -> None:
    for run in searched.values():
        assert run.egraph is not None
        requests = tuple(g for n in goals for g in run.goals if g.name == n)
        best, _ = extract(run.egraph, run.target, requests)
        ticks["left"] = ends
        with heard(told := Progress(goals[0])):
            found, baseline = extract(run.egraph, run.target, requests)
        ticks["left"] = 1 << 60
        assert baseline is not None
        assert found.goals[0][1].value <= baseline.goal(goals[0]).value
        proven = best.goal(goals[0]).value
        assert all((p.bound or 0) <= proven <= (p.value or proven) for p in told.points)
        judged(run.egraph, run.target, found, best)


def test_the_fewer_ticks_the_more_is_cut(
    searched: dict[str, eqsat.Run], ticks: dict[str, int]
) -> None:
    run = searched["residual"]
    assert run.egraph is not None
    cuts = []
    for ends in ENDS:
        ticks["left"] = ends
        found, _ = extract(run.egraph, run.target, run.goals)
        cuts.append(sum(c.count for c in found.cuts if c.what == "groups"))
    assert cuts[0] > 0
    assert cuts[-1] == 0


@pytest.mark.parametrize("program", seeds(1, ["residual", "transposed_pack", "two_packs"]))
def test_floors_hold_for_the_best_of_all(searched: dict[str, eqsat.Run], program: str) -> None:
    run = searched[program]
    assert run.egraph is not None and run.selection is not None
    space = Space(run.egraph)
    found = floors(Pool(Legality(space, run.target), input_only=False), Costs(space, run.target))
    for goal in ("time", "memory", "dispatches"):
        requests = tuple(g for g in run.goals if g.name == goal)
        best, _ = extract(run.egraph, run.target, requests)
        assert best.stop in ("optimal", "gap")
        assert 0 < found[goal] <= best.goal(goal).value


def test_what_was_cut_is_told_and_kept() -> None:
    run = eqsat.optimize(eqsat.read("residual"), target="avx512-xla", time_limit=0.0)
    assert run.selection is not None and run.schedule is not None
    assert any(c.by == TIME_LIMIT for c in run.selection.cuts)
    (line,) = cut_lines(run)
    assert "time was up before all groups behind" in line
    assert line.startswith(f"best found of {run.selection.candidates:,} candidates, ")
    again = Selection.from_json(json.loads(json.dumps(run.selection.to_json())))
    assert again == run.selection
    assert run.summary()["cuts"][0]["by"] == TIME_LIMIT
    assert run.verify(samples=1).ok


def test_a_selection_of_before_has_no_cuts() -> None:
    run = eqsat.optimize(eqsat.read("residual"), target="avx512-xla")
    assert run.selection is not None
    old = run.selection.to_json()
    del old["cuts"]
    assert Selection.from_json(old).cuts == ()


def test_a_cut_search_says_that_it_does_not_know_of_other_ways() -> None:
    """A budget nothing was found for in time is not called impossible."""
    with pytest.raises(eqsat.EqsatError) as refused:
        eqsat.optimize(
            eqsat.read("residual"), target="avx512-xla", time_limit=0.0, budget={"time": 1}
        )
    assert refused.value.exit_code == 3
    assert "nothing admissible found in time" in str(refused.value)


@pytest.mark.parametrize(
    ("program", "settings", "told"),
    [
        ("residual", ("tiles_forced=true",), "candidates were left out for want of time"),
        ("quantized_matmul", (), "requested layout(s) are left"),
    ],
)
def test_what_needs_the_rules_is_not_called_impossible(
    program: str, settings: tuple[str, ...], told: str
) -> None:
    """Neither forced tiles nor requested layouts are in the input program's own candidates."""
    with pytest.raises(eqsat.EqsatError) as refused:
        eqsat.optimize(eqsat.read(program), target="avx512-xla", settings=settings, time_limit=0.0)
    assert refused.value.exit_code == 3
    assert told in str(refused.value)
    assert "--time-limit" in str(refused.value)
