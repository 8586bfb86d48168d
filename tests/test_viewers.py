"""What other tools and people look at: traces, graphs, a folder's index, a target's own words."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import eqsat
from eqsat.cli import run as command
from eqsat.export.timeline import dot_text, explorer_text, trace_text
from eqsat.lang.experiments import read_experiment
from eqsat.lang.requests import override
from eqsat.report.compare.comparison import target_differences
from eqsat.report.compare.targetwords import in_yaml_words
from eqsat.report.page.graph import RuleTable, reasons
from eqsat.report.page.headline import speed


@pytest.fixture(scope="module")
def run():
    return eqsat.optimize(eqsat.read("lookup.py:lookup"), target="reference", time_limit=20)


def test_a_trace_lasts_as_long_as_the_schedule_and_has_what_was_measured(run):
    schedule = run.schedule
    count = len(schedule.dispatches)
    events = json.loads(trace_text(schedule, {i: 2.0 for i in range(count)}))["traceEvents"]
    predicted, measured = ([e for e in events if e["ph"] == "X" and e["pid"] == p] for p in (1, 2))
    assert len(predicted) == len(measured) == count
    assert predicted[-1]["ts"] + predicted[-1]["dur"] == pytest.approx(schedule.time_ps / 1e6)
    assert [e["ts"] for e in measured] == [2.0 * i for i in range(count)]
    live = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert max(live) == schedule.arena_bound


def test_a_graph_has_every_dispatch_and_what_it_reads(run):
    text = dot_text(run.schedule)
    assert len(re.findall(r"^  d\d+ \[label=", text, re.MULTILINE)) == len(run.schedule.dispatches)
    assert "v0 -> d" in text  # an argument


def test_model_explorer_gets_groups_prices_and_what_was_rejected(run, tmp_path):
    path = tmp_path / "g.json"
    assert [name for name, _ in run.export("explorer", path).files] == ["", "lookup.times.json"]
    (graph,) = json.loads(path.read_text(encoding="utf-8"))
    nodes = {n["id"]: n for n in graph["nodes"]}
    edges = [(e, n) for n in nodes.values() for e in n["incomingEdges"]]
    assert edges and len(nodes) == len(graph["nodes"])
    for edge, node in edges:
        (number, output) = edge["sourceNodeId"], edge["sourceNodeOutputId"]
        assert output in {o["id"] for o in nodes[number]["outputsMetadata"]} and number != node
    times = json.loads((tmp_path / "lookup.times.json").read_text(encoding="utf-8"))["lookup"]
    values = [times["results"][f"d{i}"]["value"] for i in range(len(run.schedule.dispatches))]
    assert values == [d.time_ps / 1e6 for d in run.schedule.dispatches]
    others = [a["value"] for n in nodes.values() for a in n["attrs"] if a["key"] == "instead"]
    assert any("kept in memory" in text for text in others)
    outputs = [o["attrs"] for n in nodes.values() for o in n["outputsMetadata"]]
    assert all(int({a["key"]: a["value"] for a in o}["bytes"]) > 0 for o in outputs)


def test_layers_are_groups(run):
    dispatches = [
        replace(d, name=f"layers.{i}.mlp@16.o1.0") for i, d in enumerate(run.schedule.dispatches)
    ]
    named = replace(run.schedule, dispatches=tuple(dispatches))
    (graph,) = json.loads(explorer_text(named, {}))
    groups = [(n["namespace"], n["label"]) for n in graph["nodes"] if n["id"][0] == "d"]
    assert groups == [(f"layers/{i}", "mlp@16.o1.0") for i in range(len(dispatches))]


def test_every_op_of_the_program_has_a_dispatch_and_the_line_that_asked_for_it(run):
    sources = reasons(run, RuleTable()).sources
    text = " ".join(s.text for lines in sources.values() for s in lines)
    assert all(f"%{name} = " in text for name in ("transpose", "matmul", "sum", "sqrt", "div"))
    places = {s.at for lines in sources.values() for s in lines}
    assert all(re.fullmatch(r"programs/lookup\.py:\d+", at) for at in places)


def test_the_headline_is_the_ratio_to_the_input(run):
    before, after = run.baseline_schedule.time_ps, run.schedule.time_ps
    ratio, what = speed(run)
    assert ratio == f"{before / after:.2f}x"
    assert "the input, predicted" in what


def test_targets_differ_in_the_words_of_their_files():
    a = eqsat.target("avx512")
    settings = ["launch=500 ns", "limits.scratch=16 KiB", "rates={f32: 108 GFLOP/s}"]
    b = override(a, settings)
    found = {
        k: (x, y) for key, x, y in target_differences(a, b) for k, x, y in in_yaml_words(key, x, y)
    }
    assert found["launch"] == ("69 ns", "500 ns")
    assert found["limits.scratch"] == ("256 KiB", "16 KiB")
    assert found["rates.f32"] == ("116 GFLOP/s", "108 GFLOP/s")


def test_a_folder_of_results_has_an_index(run, tmp_path, capsys):
    plan = (
        "experiment: a/b\ndoc: d\nprograms: two_packs\ntargets: reference\nvary: {seed: [0, 1]}\n"
    )
    eqsat.Experiment(read_experiment(plan)).run(tmp_path)
    run.save(tmp_path / "mine")
    (tmp_path / "a-b.html").write_text("")
    assert command(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]*)"', text) == ["a-b.html"]  # what has no page has no link
    assert "lookup on reference" in text and text.count("two_packs@reference seed=") == 2
