"""Explanations, comparisons and pages, on hand-made border values and on small real runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from foldings import folding_and_best

import eqsat
from eqsat.model.deadline import SATURATION_TIME, SEARCH_TIME
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph, ENode, RuleStat
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.program import Builder
from eqsat.model.selection import (
    AT_LEAST,
    BYTES,
    COMPUTE,
    EXACT,
    NOT_ADMISSIBLE,
    Group,
    Price,
    Removed,
    Selection,
    Tied,
)
from eqsat.model.tensor import TensorType
from eqsat.report import formatting
from eqsat.report.alternatives import price_text
from eqsat.report.explain import explained, removed_lines
from eqsat.report.facts import RunFacts, rule_facts
from eqsat.report.finished import stop_warnings
from eqsat.report.formatting import table_text
from eqsat.report.names import Names, chosen_nodes, rule_chain, rules_in_result
from eqsat.report.page.runpage import page, write_page
from eqsat.report.text import phase_lines, rules_table, summary_text

F = TensorType("f32", (32, 16))
T = Transpose((32, 16), (1, 0))
PACK = Layout((32, 16), (0, 1), (8, 8), (0, 1), ("-", "-"))
PACKED = TensorType("f32", PACK.packed_shape)
RULES = (
    RuleStat("pack-it", "r.yaml:3:5", "Packs.", 4, 2, 0.25),
    RuleStat("fold-it", "r.yaml:9:5", "Folds.", 9, 1, 0.5),
    RuleStat("idle", "r.yaml:20:5", "Does nothing.", 0, 0, 0.0),
)


def tiny_program(name="tiny"):
    b = Builder(name)
    x = b.add("input", (), Leaf("x", F, 0))
    return b.build([b.add("transpose", (x,), T)])


def tiny_egraph():
    """x; t = transpose(x); p = pack(x), made by two rules one after the other; q = pack(x) too."""
    after = replace(PACK, source=(16, 32))
    nodes = (
        ENode("input", Leaf("x", F, 0), (), 0),
        ENode("transpose", T, (0,), 1),
        ENode("pack", after, (1,), 2, rule=0, source=1),
        ENode("pack", replace(PACK, pos=(1, 0), outer=(1, 0)), (0,), 2, rule=1, source=2),
    )
    types = ((F,), (F.with_shape((16, 32)),), (F.with_shape(after.packed_shape),))
    return EGraph(nodes, types, (1,), (0, 1), RULES, 3, "saturated", 0.1, names=("x", "t"))


def tiny_selection():
    group = Group((3,), (0,), (2,), 4_096_000, 0)
    return Selection((group,), (), (), "optimal")


@pytest.fixture(scope="module")
def runs():
    return folding_and_best()


# ---- origins -------------------------------------------------------------------------------------
def test_a_chain_ends_at_the_input_program():
    g = tiny_egraph()
    assert [s.rule for s in rule_chain(g, 3)] == ["fold-it", "pack-it"]
    assert [s.at for s in rule_chain(g, 3)] == ["r.yaml:9:5", "r.yaml:3:5"]
    assert rule_chain(g, 1) == ()


def test_a_chain_in_a_circle_ends():
    g = tiny_egraph()
    nodes = list(g.nodes)
    nodes[2] = replace(nodes[2], source=3)
    assert len(rule_chain(replace(g, nodes=tuple(nodes)), 3)) == 2


def test_rules_in_the_result_count_whole_chains_once_per_node():
    g, s = tiny_egraph(), tiny_selection()
    assert rules_in_result(g, s) == {"fold-it": 1, "pack-it": 1}
    twice = replace(s, groups=(s.groups[0], replace(s.groups[0], step=1)))
    assert rules_in_result(g, twice) == {"fold-it": 1, "pack-it": 1}
    assert chosen_nodes(twice) == (3,)


def test_names_follow_data_through_layouts():
    names = Names(tiny_egraph(), tiny_program())
    assert names.of(0) == "x"
    assert names.of(1) == "%1"
    assert names.of(2) == "%t@8x8"
    assert len(set(names.logical)) == 1


# ---- units ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "want"),
    [
        (formatting.time_text(0), "0 ps"),
        (formatting.time_text(999), "999 ps"),
        (formatting.time_text(41_234_567), "41.2 us"),
        (formatting.time_text(100_000_000), "100 us"),
        (formatting.bytes_text(1023), "1023 B"),
        (formatting.bytes_text(524288), "512 KiB"),
        (formatting.bytes_text(1 << 21), "2 MiB"),
        (formatting.seconds_text(None), "–"),
        (formatting.seconds_text(1.94), "1.9 s"),
        (formatting.ratio_text(0, 0), "1.00x"),
        (formatting.ratio_text(0, 3), "–"),
        (formatting.ratio_text(4, 1), "0.25x"),
        (formatting.delta_text("time", 9_800_000), "+9.8 us"),
        (formatting.delta_text("dispatches", -2), "-2"),
        (formatting.count_text(1, "op"), "1 op"),
        (formatting.count_text(2000, "class", "classes"), "2,000 classes"),
    ],
)
def test_figures(text, want):
    assert text == want


# ---- text ----------------------------------------------------------------------------------------
def test_the_table_holds_the_figures_of_schedule_and_baseline():
    run = eqsat.optimize(eqsat.read("two_packs"), target="avx512-xla")
    assert run.schedule is not None
    assert run.baseline_schedule is not None
    rows = {r.name: r for r in RunFacts(run).table}
    assert rows["time"].chosen == run.schedule.time_ps
    assert rows["time"].baseline == run.baseline_schedule.time_ps
    assert rows["memory"].chosen == run.schedule.peak_bytes
    assert rows["dispatches"].chosen == len(run.schedule.dispatches)
    assert rows["bytes moved"].chosen == run.schedule.bytes_moved
    assert rows["bytes moved"].bound is None
    assert "verify" not in summary_text(run)
    run.verify(samples=1)
    assert "ok, max error" in summary_text(run)


def test_goals_nobody_asked_for_have_no_bound():
    run = eqsat.optimize(eqsat.read("two_packs"), goals=("memory",), target="reference")
    rows = {r.name: r for r in RunFacts(run).table}
    assert rows["memory"].bound == rows["memory"].chosen
    assert rows["memory"].proof in ("relaxation", "search")
    assert rows["time"].bound is None
    assert rows["time"].proof == ""
    goals = run.summary()["goals"]
    assert goals["peak_bytes"]["proof"] == rows["memory"].proof
    assert goals["time_us"]["gap"] is None
    assert goals["time_us"]["proof"] is None


def test_an_inadmissible_input_makes_no_claim(runs):
    text = summary_text(runs[1])
    assert "nothing is claimed" in text
    assert all(r.baseline is None for r in RunFacts(runs[1]).table)


def test_a_run_that_stopped_early_shows_what_ran():
    run = eqsat.optimize(eqsat.read("two_packs"), stop_after="egraph", target="reference")
    phases = [line.split()[0] for line in phase_lines(run)]
    assert phases == ["read", "saturate", "search"]
    with pytest.raises(EqsatError, match="E405"):
        explained(run)
    with pytest.raises(EqsatError, match="E405"):
        page(run)


def test_rules_table_sorts_and_counts(runs):
    for sort in ("rule", "matches", "nodes", "time", "result"):
        rows = rules_table(rule_facts(runs[1], sort))
        assert len(rows) == len(runs[1].egraph.rules)
    by_result = rules_table(rule_facts(runs[1], "result"))
    assert by_result[0][0] == "pack-contraction"
    assert int(by_result[0][4]) > 0
    names = [r[0] for r in rules_table(rule_facts(runs[1], "rule"))]
    assert names == sorted(names)


def test_tables_line_up():
    lines = table_text(("a", "b", "c"), [("x", "10", "y"), ("long", "2", "z")]).splitlines()
    assert lines == ["a      b  c", "x     10  y", "long   2  z"]


def test_early_stops_are_warnings(runs):
    run = runs[1]
    assert stop_warnings(run) == []
    grown = replace(run, egraph=replace(run.egraph, stop="nodes"))
    (warning,) = stop_warnings(grown)
    assert (warning.code, warning.severity) == ("E402", "warning")
    assert "--without pack-contraction" in warning.help
    assert re.search(r"\d+% by rule `pack-contraction` \(.*contract.yaml:\d", warning.message)
    name, goal = run.selection.goals[0]
    open_goal = (name, replace(goal, bound=goal.value // 2))
    unproven = replace(run.selection, goals=(open_goal,), stop=SEARCH_TIME)
    (warning,) = stop_warnings(replace(run, selection=unproven))
    assert warning.code == "E401"
    assert warning.message.startswith("extraction stopped (search time)")
    assert "gap 50.0%" in warning.message
    assert "`--time-limit`" in warning.help
    late = replace(run, egraph=replace(run.egraph, stop=SATURATION_TIME))
    (warning,) = stop_warnings(late)
    assert "(saturation time)" in warning.message and "(`--time-limit`)" in warning.help


# ---- explain -------------------------------------------------------------------------------------
def test_explain_everything_names_rule_and_place(runs):
    text = explained(runs[0]).to_text()
    assert "always-fold-transpose" in text
    assert re.search(r"always-fold\.yaml:\d+:\d+", text)
    assert "the input program" in text
    assert "given up by a rule" in text
    assert len(explained(runs[0]).choices) == len(
        [m for g in runs[0].selection.groups for m in g.members]
    )


def test_explain_asks_all_prices_at_once_and_lists_the_cheapest_first(runs):
    asked = []

    def prices(questions, found=(EXACT, 9_800_000)):
        asked.append(list(questions))
        status, first = found
        return [
            Price("time", status, first and first - i, first or 0) for i in range(len(questions))
        ]

    assert "next best" not in explained(runs[1], None).to_text()
    found = explained(runs[1], "%3", prices)
    assert "next best: +9.8 us time without it" in found.to_text()
    assert len(asked) == 1
    assert len(set(asked[0])) == len(asked[0])
    for c in (*found.choices, *found.elsewhere):
        costs = [a.price.delta for a in c.alternatives if a.price and a.price.delta is not None]
        assert costs == sorted(costs)
    for answer, words in (
        ((EXACT, 0), "of equal time"),
        ((NOT_ADMISSIBLE, None), "no admissible program"),
        ((AT_LEAST, None), "not known in this time without it"),
    ):
        text = explained(runs[1], "%3", lambda q, f=answer: prices(q, f)).to_text()
        assert words in text
    whole = explained(runs[1], None, prices)
    assert all(c.price for c in whole.choices if c.is_read)
    assert json.loads(json.dumps(whole.to_json()))["choices"][0]["without"]["goal"] == "time"


@pytest.mark.parametrize(
    ("price", "want"),
    [
        (Price("time", EXACT, 9_800_000, 9_800_000), "+9.8 us"),
        (Price("time", EXACT, 0, 0), "equal time"),
        (Price("time", EXACT, 0, 0, Tied(BYTES)), "equal time (the same bytes move)"),
        (
            Price("time", EXACT, 0, 0, Tied(COMPUTE, "memory", 196_608)),
            "equal time (compute-bound: layouts tie); at most +192 KiB memory",
        ),
        (Price("time", AT_LEAST, None, 1), "more time, how much is not known in this time"),
        (Price("memory", EXACT, -1024, -1024), "-1 KiB, better than what was found"),
        (Price("time", AT_LEAST, 2_000_000, 1_000_000), "at most +2 us, at least +1 us"),
        (Price("time", AT_LEAST, None, 1_000_000), "at least +1 us"),
        (Price("time", AT_LEAST, None, -5), "not known in this time"),
        (Price("weighted", EXACT, 25_000, 25_000), "+2.5 %"),
        (Price("time", NOT_ADMISSIBLE), "none, not admissible"),
    ],
)
def test_a_price_says_what_is_known(price, want):
    assert price_text(price) == want


def test_choices_that_tie_are_told_together_by_reason(runs):
    def prices(questions):
        asked = enumerate(questions)
        return [Price("time", EXACT, 0, 0, Tied(BYTES if i else COMPUTE)) for i, _ in asked]

    whole = explained(runs[1], None, prices)
    text = whole.to_text()
    count = sum(c.price is not None for c in whole.choices)
    assert f"{count} of {count} choices tie in time" in text
    assert f"  {count - 1}  {BYTES}: " in text
    assert f"  1  {COMPUTE}: " in text
    assert "next best" not in text
    assert "next best" in explained(runs[1], "%3", prices).to_text()


def test_a_price_is_what_forbidding_the_node_costs():
    run = eqsat.optimize(eqsat.read("permuted_consumer"), target="reference")
    choices = run.explain("%4").choices
    assert choices
    for c in choices:
        assert c.price
        assert c.price.status != AT_LEAST
        assert c.price.delta is None or c.price.delta >= 0


def test_explain_tells_reads_and_other_layouts(runs):
    found = explained(runs[1], "%2")
    text = found.to_text()
    assert "a from memory (512 KiB)" in text
    assert "the same data in other layouts" in text
    assert any("pack" in c.text for c in found.elsewhere)
    assert explained(runs[1], "2") == found


def test_explain_an_input_and_an_unknown_value(runs):
    assert explained(runs[1], "a").title == "a: input : f32[512, 256], an input"
    with pytest.raises(EqsatError, match="E303"):
        explained(runs[1], "%77")


def test_removed_groups_name_bytes_limit_and_place(runs):
    lines = "\n".join(removed_lines(runs[0].selection.removed))
    assert "524,288 bytes, the vector limit is 8,192" in lines
    assert "limits.vector" in lines
    assert removed_lines(()) == []
    many = tuple(Removed(f"op %{i}", i, 1, "scratch", "t.yaml:1:1") for i in range(9))
    assert removed_lines(many)[1].startswith("  op %8")
    assert removed_lines(many)[-1] == "  and 3 more"


# ---- page ----------------------------------------------------------------------------------------
def test_writing_a_page_leaves_one_file(runs, tmp_path):
    path = write_page(runs[1], tmp_path / "a" / "b.html")
    assert path.read_text(encoding="utf-8") == page(runs[1])
    assert [p.name for p in path.parent.iterdir()] == ["b.html"]
