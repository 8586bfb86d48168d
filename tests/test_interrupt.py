"""Ctrl-C and the end of memory: the best answer so far is kept, or nothing at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from layers import LIBRARY

import eqsat
from eqsat.cli import run
from eqsat.extract import extract, first_answer, graph_of_program, minimisation
from eqsat.extract.minimiser import Outcome
from eqsat.extract.session import Session
from eqsat.lang.programs import parse_program
from eqsat.model.deadline import Stop
from eqsat.model.layout import Encoding
from eqsat.model.program import Program
from eqsat.model.progress import Progress
from eqsat.model.selection import GoalRequest
from eqsat.ops.spelling.passes import canonical
from eqsat.plugins import find_names

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals"
)
# a fresh interpreter, as the handling of signals belongs to a process; it says when an answer is
# known, and then the solver has all the time it wants
CHILD = """
import sys, time
import eqsat.cli.search as search
from eqsat.model.deadline import Stop

class Telling(Stop):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "has_answer" and value:
            print("known", flush=True)
            end = time.monotonic() + 30
            while {patient} and not self.is_requested and time.monotonic() < end:
                time.sleep(0.01)

search.Stop = Telling
sys.exit(__import__("eqsat.cli", fromlist=["run"]).run(sys.argv[1:]))
"""


def start(out: Path, patient: bool = True) -> subprocess.Popen[str]:
    code = CHILD.replace("{patient}", str(patient))
    args = ["optimize", "two_packs", "--target", "avx512-xla", "-o", str(out)]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "known\n"
    return child


def test_ctrl_c_keeps_the_best_answer_so_far(tmp_path: Path):
    child = start(tmp_path / "x.eqsat")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "keeping the best answer so far" in err
    assert "nothing was written" not in err
    assert "interrupted" in out
    kept = eqsat.load(tmp_path / "x.eqsat")
    assert kept.selection is not None
    assert kept.baseline is not None
    assert kept.schedule is not None
    assert kept.selection.stop == "interrupted"
    for name, goal in kept.selection.goals:
        assert goal.value <= kept.baseline.goal(name).value


def test_a_second_ctrl_c_ends_it(tmp_path: Path):
    folder = tmp_path / "x.eqsat"
    code = CHILD.replace("{patient}", "True").replace("not self.is_requested and ", "")
    args = ["optimize", "two_packs", "--target", "reference", "-o", str(folder)]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == "known\n"
    child.send_signal(signal.SIGINT)
    assert "keeping" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err == "interrupted, nothing was written\n"
    assert not folder.exists()


def test_a_stopped_search_gives_a_checked_answer():
    program = eqsat.read("two_packs")
    part = eqsat.optimize(program, target="avx512-xla", stop_after="egraph")
    assert part.egraph is not None
    stop = Stop()
    stop.request()
    found, baseline = extract(part.egraph, part.target, part.goals, stop=stop)
    assert baseline is not None
    assert found.goal("time").value <= baseline.goal("time").value
    assert found.goal("time").bound <= found.goal("time").value


@pytest.mark.parametrize("phase", ["saturate", "baseline"])
def test_a_search_stopped_before_its_baseline_gives_the_program_as_it_is(phase: str):
    stop = Stop()

    def listen(now: Progress) -> None:
        if now.phase == phase:
            assert stop.has_answer
            stop.request()

    found = eqsat.optimize("two_packs", target="avx512-xla", stop=stop, progress=listen)
    assert found.selection is not None
    assert found.selection.stop == "interrupted"
    assert all(r.bound == 0 for name, r in found.selection.goals if name == "time")
    assert found.schedule is not None


PLAIN = ("two_packs", "tied_table", "padded_chain", "transposed_pack", "mlp.py:mlp_784")
ODD = """
program odd
input x: f32[6, 7]
weight w: f32[7, 5] key=w
c = fill(value=2.0) : f32[6, 7]
s = add(x, c)
p = pack(s, pos=[0, 1], tiles=[4, 4], outer=[0, 1], pad=0)
o = relax(p, pos=[0, 1], tiles=[4, 4], outer=[0, 1], pad=any, shape=[6, 7])
q = add(o, o)
u = unpack(q, pos=[0, 1], tiles=[4, 4], outer=[0, 1], pad=any, shape=[6, 7])
v = add(w, w)
y = matmul(u, v)
r = reshape(y, shape=[30])
return r, c, w, x
"""


@cache
def plain_programs() -> list[Program]:
    read = [parse_program(ODD, "odd.eqs"), *(eqsat.read(n).program for n in PLAIN)]
    return [canonical(p) for p in read]


@pytest.mark.parametrize("name", find_names("targets", ".yaml"))
def test_the_first_answer_is_legal_on_every_target(name: str):
    target = eqsat.target(name)
    for program in plain_programs():
        made = first_answer(graph_of_program(program), target, (GoalRequest("time"),))
        if target.tiles_forced:
            assert made is None  # of unpacked contractions
            continue
        if (target.orders_forced or target.row_padding) and made is None:
            continue
        assert made is not None
        answer = made()  # which checks it
        assert (answer.stop, answer.goal("time").bound) == ("interrupted", 0)
        ops = [i for i, n in enumerate(program.nodes) if n.op in ("generic", "pack", "unpack")]
        assert {m for g in answer.groups for m in g.members}.union(answer.ahead).issuperset(ops)


def test_a_first_answer_keeps_the_budgets():
    program = canonical(eqsat.read("two_packs").program)
    graph, goals = graph_of_program(program), (GoalRequest("time"),)
    target = eqsat.target("avx512-xla")
    made = first_answer(graph, target, goals)
    assert made is not None
    least = made().goal("memory").value
    for nbytes in (least, least - 1):
        found = first_answer(graph, replace(target, budget=(("memory", nbytes),)), goals)
        assert (found is None) == (nbytes < least)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_a_second_after_reading_there_is_an_answer(name: str):
    """Of CPU time; a program that requests layouts is left out, as only rules resolve them."""
    seen, known = dict[str, float](), list[float]()

    class Seen(Stop):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "has_answer" and value:
                known.append(time.process_time())

    def listen(now: Progress) -> None:
        seen.setdefault(now.phase, time.process_time())
        if now.phase == "saturate":
            raise KeyboardInterrupt

    source = eqsat.read(name)
    with pytest.raises(KeyboardInterrupt):
        eqsat.optimize(source, target="avx512", stop=Seen(), progress=listen, cache=False)
    if any(n.op in Encoding.ops for n in source.program.nodes):
        assert not known
        return
    print(f"{name}: {known[0] - seen['first answer']:.2f} s")
    assert known[0] - seen["first answer"] <= 1


def test_a_program_that_requests_layouts_is_no_first_answer():
    seen, stop = list[str](), Stop()

    def listen(now: Progress) -> None:
        seen.append(now.phase)
        assert now.phase != "saturate" or not stop.has_answer

    found = eqsat.optimize("quantized_matmul", target="avx512-xla", stop=stop, progress=listen)
    assert found.selection is not None
    assert found.selection.stop == "optimal"
    assert "saturate" in seen


def test_whoever_comes_late_to_a_stop_is_called_at_once():
    stop, called = Stop(), threading.Event()
    stop.request()
    with stop.calls(called.set):
        assert called.is_set()
    called.clear()
    stop.request()
    assert not called.is_set()  # its call is over


def test_out_of_memory_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("eqsat.api.optimize", full)
    monkeypatch.setattr("eqsat.optimize", full)
    assert run(["optimize", "two_packs", "--target", "reference"]) == 3
    err = capsys.readouterr().err
    assert "E413" in err
    assert "our bug" not in err


def test_out_of_memory_in_the_solver_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise MemoryError

    def ends(self: Session, *asked: Any) -> Outcome:
        monkeypatch.setattr(minimisation, "solve", full)
        monkeypatch.setattr(minimisation.Minimisation, "raise_to", lambda *_: None)
        return answer(self, *asked)

    answer = Session.answer
    monkeypatch.setattr(Session, "answer", ends)
    found = eqsat.optimize(eqsat.read("two_packs"), target="avx512-xla")
    assert found.selection is not None
    assert found.schedule is not None
    assert found.selection.stop == "memory"
