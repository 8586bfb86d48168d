"""`eqsat extract`: what it prints, writes and returns, and how it ends early."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from smallegraphs import egraph, hard

from eqsat.cli.app import run
from eqsat.model.serialized import SerializedEGraph


def saved(graph: SerializedEGraph, path) -> str:
    nodes = {
        n.name: {
            "op": n.op, "children": [graph.nodes[c].name for c in n.children], "eclass": n.eclass,
            "cost": "Infinity" if n.cost is None else float(n.cost),
        }
        for n in graph.nodes
    }  # fmt: skip
    path.write_text(json.dumps({"nodes": nodes, "root_eclasses": list(graph.roots)}))
    return str(path)


def test_extract_prints_and_writes_the_answer(tmp_path, capsys) -> None:
    file = saved(
        egraph(("a", "1", ["b"], 1.5), ("b", "2", [], 2), roots=["1"]), tmp_path / "e.json"
    )
    out = tmp_path / "deep" / "choice.json"
    assert run(["extract", file, "--output-format", "json", "-o", str(out), "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {k: told[k] for k in ("status", "dag_cost", "bound", "stop")} == {
        "status": "optimal", "dag_cost": 3.5, "bound": 3.5, "stop": "proof",
    }  # fmt: skip
    assert told["seconds"] >= 0
    assert json.loads(out.read_text())["choices"] == {"1": "a", "2": "b"}
    assert [p.name for p in out.parent.iterdir()] == ["choice.json"]
    assert run(["extract", file]) == 0
    assert "dag cost  3.5" in capsys.readouterr().out


def test_extract_out_of_time_warns(tmp_path, capsys) -> None:
    file = saved(hard(4), tmp_path / "e.json")
    assert run(["extract", file, "--time-limit", "1s"]) == 0
    said = capsys.readouterr()
    assert "status    feasible" in said.out
    assert "warning[E401]" in said.err


def test_extract_without_an_answer(tmp_path, capsys) -> None:
    file = saved(egraph(("a", "1", ["a"], 1), roots=["1"]), tmp_path / "e.json")
    out = tmp_path / "choice.json"
    assert run(["extract", file, "--output-format", "json", "-o", str(out)]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["status"] == "infeasible"
    assert json.loads(said.err)["code"] == "E415"
    assert not out.exists()


def test_extract_refuses_a_place_it_cannot_write(tmp_path, capsys) -> None:
    file = saved(egraph(("a", "1", [], 1), roots=["1"]), tmp_path / "e.json")
    assert run(["extract", file, "-o", str(tmp_path)]) == 2
    assert run(["extract", file, "-o", f"{file}/x.json"]) == 2
    assert capsys.readouterr().err.count("E407") == 2


@pytest.mark.slow  # a solver is caught at work after seconds of it; test_place presses it sooner
def test_ctrl_c_keeps_the_best_answer_so_far(tmp_path) -> None:
    file, out = saved(hard(5), tmp_path / "e.json"), tmp_path / "choice.json"
    command = [sys.executable, "-c", "from eqsat.cli.app import main; main()", "extract", file]
    for delay in (2, 4, 8, 16):
        child = subprocess.Popen(
            [*command, "--time-limit", "60s", "-o", str(out)], stderr=subprocess.PIPE, text=True
        )
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
        assert child.returncode == 130
        if "nothing was written" not in said:  # a slow machine: not before there is an answer
            break
    found = json.loads(out.read_text())
    assert (found["status"], found["stop"]) == ("feasible", "interrupted")
    assert "warning[E401]" in said


def test_a_cost_that_counts_as_infinite_is_named_as_such(tmp_path, capsys):
    path = tmp_path / "huge.json"
    nodes = {n: {"op": n, "children": [], "eclass": "A", "cost": 1e299} for n in "ab"}
    path.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["A"]}), encoding="utf-8")
    assert run(["extract", str(path)]) == 3
    assert "counts as infinite (9007199254740992 and more)" in capsys.readouterr().err
