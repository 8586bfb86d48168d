"""What a search tells while it runs, and what of it is kept."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import eqsat
from eqsat.cli import run, talk
from eqsat.cli.talk import Onlooker, progress
from eqsat.model.deadline import Stop
from eqsat.model.progress import Curve, Point, Progress, found, heard, listener, phase
from eqsat.model.selection import GoalResult
from eqsat.report.page.runpage import page, page_data
from eqsat.report.text import curve_rows, progress_line

PHASES = (
    "saturate",
    "baseline",
    "candidates",
    "relaxation",
    "search",
    "order",
    "check",
    "schedule",
)


@pytest.fixture(scope="module")
def searched() -> tuple[eqsat.Run, list[tuple[str, GoalResult | None]]]:
    told: list[tuple[str, GoalResult | None]] = []
    made = eqsat.optimize(
        eqsat.read("transposed_pack"),
        target="reference",
        progress=lambda now: told.append((now.phase, now.best)),
    )
    return made, told


def test_the_curve_has_every_phase_and_comes_closer(searched: Any) -> None:
    made, told = searched
    points = made.curve.points
    entered = [p.phase for p in points if not p.goal]
    assert [p for p in entered if p in PHASES] == list(PHASES)
    assert all(a.seconds <= b.seconds for a, b in pairwise(points))
    first = made.goals[0].name
    own = [p for p in points if p.goal == first]
    assert all(a.value >= b.value for a, b in pairwise(own))
    assert all((a.bound or 0) <= (b.bound or 0) for a, b in pairwise(own))
    assert own[0].value == made.baseline.goal(first).value
    for goal in made.goals:
        last = next(p for p in reversed(points) if p.goal == goal.name)
        result = made.selection.goal(goal.name)
        assert (last.value, last.bound or 0) == (result.value, result.bound)
    assert told[0] == ("saturate", None)
    assert told[-1] == ("schedule", made.selection.goal(first))
    assert listener() is None


def test_every_value_told_is_of_an_answer_and_every_bound_holds(searched: Any) -> None:
    made, told = searched
    best = made.selection.goal(made.goals[0].name)
    assert made.selection.stop == "optimal"
    assert all(b.bound <= best.value <= b.value for _, b in told if b is not None)


def test_the_curve_is_kept_but_is_no_result(searched: Any, tmp_path: Path) -> None:
    """Clocks differ from run to run, so nothing that is compared may hold them."""
    made, _ = searched
    again = eqsat.load(made.save(tmp_path / "x.eqsat"))
    assert again.curve == made.curve
    assert Curve.from_json(json.loads(json.dumps(made.curve.to_json()))) == made.curve
    assert "curve" not in made.summary()
    kept = json.loads((tmp_path / "x.eqsat" / "3-curve.json").read_text())
    assert kept["columns"] == ["seconds", "phase", "goal", "value", "bound"]
    html = page(again)
    drawn = [p for p in again.curve.points if p.goal in ("", "time")]
    assert [c[0] for c in page_data(again).curve] == [p.seconds for p in drawn]
    assert "<td>candidates</td>" in html


def test_answers_over_the_budget_are_not_told(searched: Any) -> None:
    made, _ = searched
    told: list[GoalResult] = []
    cap = made.selection.goal("time").value
    small = eqsat.optimize(
        eqsat.read("transposed_pack"),
        target="reference",
        goals=("memory", "time"),
        budget={"time": cap},
        progress=lambda now: told.append(now.best) if now.best else None,
    )
    assert small.selection is not None
    assert all(t.value >= small.selection.goal("memory").value for t in told)


def test_goals_with_weights_have_no_first_one() -> None:
    told: list[Progress] = []
    made = eqsat.optimize(
        eqsat.read("two_packs"), target="reference", goals=("time:1", "memory:1"),
        progress=told.append,
    )  # fmt: skip
    assert told[-1].best is None
    assert made.curve is not None
    assert {p.goal for p in made.curve.points} == {"", "time", "memory"}


def test_without_a_listener_nothing_happens() -> None:
    phase("anything")
    found("time", 1, 1)
    now = Progress("time")
    with heard(now):
        phase("a")
        phase("a")
        found("time", bound=3)
        found("memory", 5)  # not the first goal: a search for the first may have any memory
        found("time", 9)
        found("time", 9, 2)  # nothing new
        with heard(None):
            found("time", 4)
        found("time", 8, 8)
    assert [(p.phase, p.goal, p.value, p.bound) for p in now.points] == [
        ("a", "", None, None), ("a", "time", None, 3), ("a", "time", 9, 3), ("a", "time", 8, 8),
    ]  # fmt: skip


def test_the_line_says_phase_time_value_bound_and_gap() -> None:
    now = Progress("time", limit=60.0)
    now.enter("candidates")
    assert re.fullmatch(r"candidates, \d+\.\d s of 60 s: no answer yet", progress_line(now))
    now.found("time", 2_000_000, None)
    assert progress_line(now).endswith(": time 2 us")
    now.found("time", None, 1_500_000)
    assert progress_line(now).endswith(": time 2 us, bound 1.5 us, gap 25.0%")


def test_a_row_says_what_is_known() -> None:
    one = Curve((Point(0.0, "search"), Point(1.0, "search", "time", 5, None)))
    assert curve_rows(one)[1] == ("1.0 s", "search", "time", "5 ps", "", "100.0%")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_a_live_line_only_where_somebody_watches(
    monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    watch = Onlooker()
    with progress(watch, quiet):
        now = Progress("time", limit=3.0)
        now.listen = watch
        now.enter("candidates")
    shown = re.search(r"candidates, \d+\.\d s of 3 s: no answer yet", screen.getvalue())
    assert (shown is None) is quiet


# ---- Ctrl-C ------------------------------------------------------------------------------------
class Asked(Stop):
    """Somebody asks to stop as soon as there is an answer."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "has_answer" and value:
            self.request()


def test_a_search_that_is_interrupted_tells_its_answer_also_if_it_is_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eqsat.cli.search.Stop", Asked)
    args = ["optimize", "two_packs", "--target", "avx512-xla", "--measure", "2", "--verify"]
    assert run(args) == 130
    out = capsys.readouterr().out
    assert "interrupted)" in out
    assert "baseline" in out
    assert "verify" not in out


class Ended(Exception):
    pass


def test_ctrl_c_without_an_answer_says_where_the_search_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(signal, "sigwait", lambda _: None)
    monkeypatch.setattr(os, "_exit", end)
    watch = Onlooker()
    now = Progress("time", limit=60.0, listen=watch)
    now.enter("saturate")
    with pytest.raises(Ended):
        talk._wait(threading.Event(), Stop(), watch)
    said = capsys.readouterr().err
    line = r"interrupted, nothing was written \(saturate, \d+\.\d s of 60 s: no answer yet\)\n"
    assert re.fullmatch(line, said)
