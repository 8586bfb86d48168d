"""Limits of saturation: counts by default, refused where they contradict, kept with the run."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from seeds import one_in

import eqsat
from eqsat.lang.experiments import read_experiment
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import read_limits
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.deadline import SATURATION_TIME, elapsed
from eqsat.model.diag import EqsatError
from eqsat.model.limits import MATCHES, NODES, Limits
from eqsat.model.program import Program
from eqsat.ops.spelling.passes import canonical
from eqsat.report.finished import stop_warnings
from eqsat.saturate import saturate
from eqsat.saturate.joins import few_uses, too_many

PLACES = ("first", "second", "third")
TRIPLES = """
ruleset: triples
doc: Three readers of one value, in every order.
phase: canonicalise
rules:
  - name: three-readers
    doc: Of n readers there are n³ triples.
    rewrite: generic(x, weight(leaf=a), sig=g)
    also:
      - generic(x, weight(leaf=b), sig=h)
      - generic(x, weight(leaf=d), sig=f)
    let:     c = merge_contractions(g, a, 1, h, b, 1, f, d, 1)
    to:      transpose(slice(generic(x, concat({}), sig=c.sig), move=c.slice), perm=c.perm)
""".format(
    ", ".join(
        f"transpose(weight(leaf=c.{n}), perm=c.{n}_perm)" for n in ("first", "second", "third")
    )
    + ", move=c.concat"
)


def readers(count: int) -> Program:
    """So many contractions of one value with weights of their own."""

    def function(x: Any, weights: Any) -> Any:
        return [x @ w for w in weights]

    shapes = [jax.ShapeDtypeStruct((16, 8 + i % 5), "float32") for i in range(count)]
    x = jax.ShapeDtypeStruct((16, 16), "float32")
    found = eqsat.optimize(
        function, x, shapes, weights=("weights",), stop_after="program", target="reference"
    )
    return found.canonical


def encoder() -> Program:
    return canonical(eqsat.read("encoder").program)


TARGET = eqsat.target("reference")


# ---- what stops a search -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(nodes=120), "nodes"), (Limits(rounds=3), "rounds"), (Limits(matches=40), "matches"),
        (Limits(seconds=1e-9), "seconds"), (Limits(), "saturated"),
    ],
)  # fmt: skip
def test_a_search_ends_at_its_limit_with_a_whole_e_graph(limits: Limits, stop: str) -> None:
    program, rules = encoder(), eqsat.rules("default")
    graph = saturate(program, rules, TARGET, limits)
    graph.verify()
    assert graph.stop == stop
    assert graph.holds(program)
    if stop not in ("seconds", "saturated"):  # counts give the same e-graph again
        again = saturate(program, rules, TARGET, limits)
        assert (again.nodes, again.types, again.rounds) == (graph.nodes, graph.types, graph.rounds)


@pytest.mark.parametrize("ahead", one_in(2, [-1.0, 0.0, 0.15, 0.4]))
def test_a_deadline_is_kept_with_the_program_at_least(ahead: float) -> None:
    program = encoder()
    deadline = elapsed() + ahead
    graph = saturate(program, eqsat.rules("full"), TARGET, deadline=deadline)
    graph.verify()
    assert graph.holds(program)
    assert graph.stop in (SATURATION_TIME, "saturated")
    assert graph.stop == SATURATION_TIME or ahead > 0
    assert len(graph.nodes) < NODES


def test_a_deadline_that_is_past_leaves_the_program_to_choose_from() -> None:
    program = encoder()
    graph = saturate(program, eqsat.rules("default"), TARGET, deadline=elapsed())
    assert (graph.stop, graph.rounds) == (SATURATION_TIME, 0)
    assert len(graph.nodes) == len(set(graph.nodes)) <= len(program.nodes)
    assert all(n.rule == -1 for n in graph.nodes)


def test_defaults_are_counts_that_grow_with_the_program() -> None:
    small, large = Limits().resolved(100), Limits().resolved(10_000)
    assert (small.nodes, small.matches, small.seconds) == (NODES, MATCHES, None)
    assert large.nodes == 250_000 and large.matches == 500_000
    assert Limits(nodes=7).resolved(10_000).nodes == 7


# ---- joins ---------------------------------------------------------------------------------------
def test_a_rule_that_matches_the_program_too_often_is_left_out_and_said() -> None:
    program = readers(12)
    rules = read_ruleset(TRIPLES, "triples.yaml")
    graph = saturate(program, rules, TARGET, Limits(matches=1000))
    assert (graph.left_out, graph.stop) == (("three-readers",), "matches")
    assert saturate(program, rules, TARGET, Limits(matches=12**3)).left_out == ()
    run = eqsat.optimize(program, rules=rules, limits={"matches": 1000}, target="reference")
    (warning,) = [w for w in stop_warnings(run) if w.code == "E402"]
    assert "`three-readers`" in warning.message
    assert run.summary()["egraph"]["left_out"] == ["three-readers"]


SHARE = re.compile(r"(\d+)% by rule `([a-z-]+)` \(\S+\.yaml:\d+:\d+\) in [\d,]+ match")


def test_a_set_that_explodes_names_its_rules_by_share_and_the_guard_to_set() -> None:
    rules = read_ruleset(TRIPLES, "triples.yaml")
    run = eqsat.optimize(
        readers(7), rules=rules, limits={"nodes": 300}, target="reference", unchecked=True,
        stop_after="egraph",
    )  # fmt: skip
    assert run.egraph is not None and run.egraph.stop == "nodes"
    (warning,) = [w for w in stop_warnings(run) if w.code == "E402"]
    ((share, name),) = SHARE.findall(warning.message)
    made = {r.name: r.nodes for r in run.egraph.rules}
    assert int(share) == round(100 * made[name] / len(run.egraph.nodes)) > 50
    assert "triples.yaml:6:5" in warning.message
    for guard in (
        "`where: uses(x) <= 8`",
        "`max_matches: ",
        "--without three-readers",
        "nodes=600",
    ):
        assert guard in warning.help


def test_three_rules_are_named_those_that_made_most_first() -> None:
    run = eqsat.optimize(encoder(), limits={"nodes": 200}, target="reference", stop_after="egraph")
    (warning,) = [w for w in stop_warnings(run) if w.code == "E402"]
    assert run.egraph is not None
    shares = SHARE.findall(warning.message)
    most = sorted(run.egraph.rules, key=lambda r: (-r.nodes, r.name))[:3]
    assert [name for _, name in shares] == [r.name for r in most]
    assert f"`{most[0].name}`" in warning.help and "`where: wasted(t)`" in warning.help


def test_rules_that_bound_what_they_join_take_no_part_where_many_read_one_value() -> None:
    rules = eqsat.rules("full")
    bounds = {r.name: few_uses(r) for r in rules.rules if r.also}
    assert bounds["merge-three-matmuls"] == [("x", 5)]
    program = readers(150)  # 3.4 million triples
    graph = saturate(program, rules, TARGET)
    assert (graph.stop, graph.left_out) == ("saturated", ())
    merges = [r.matches for r in graph.rules if r.name.startswith("merge-")]
    assert sum(merges) == 0


@pytest.mark.parametrize("count", [1, 3, 6])
def test_joins_are_counted_as_they_are(count: int) -> None:
    """Against the triples themselves."""
    program = readers(count)
    (rule,) = read_ruleset(TRIPLES, "triples.yaml").rules
    ops = [i for i, n in enumerate(program.nodes) if n.op == "generic"]
    triples = len(list(itertools.product(ops, repeat=3)))
    uses = program.uses
    assert too_many([rule], program, uses, triples) == set()
    assert too_many([rule], program, uses, triples - 1) == {rule.name}
    two = replace(rule, also=rule.also[:1])
    assert too_many([two], program, uses, len(ops) ** 2) == set()
    assert too_many([two], program, uses, len(ops) ** 2 - 1) == {rule.name}


# ---- what is refused -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limits", "part"),
    [
        ({"nodes": 0}, "limits.nodes is 0"), ({"rounds": -1}, "limits.rounds is -1"),
        ({"seconds": 0}, "limits.seconds is 0"), ({"seconds": float("inf")}, "limits.seconds"),
        ({"nodes": 1.5}, "limits.nodes"), ({"rounds": True}, "limits.rounds"),
        ({"node": 5}, "did you mean"), ({"vector": 5}, "--set limits.vector"),
        ({"nodes": 4}, "itself has 6 nodes"), (5, "is no limit"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(limits: Any, part: str) -> None:
    with pytest.raises(EqsatError) as caught:
        eqsat.optimize(eqsat.read("two_packs"), limits=limits, target="reference")
    (d,) = caught.value.diagnostics
    assert d.code == "E408"
    assert part in f"{d.message} {d.help}"


@pytest.mark.parametrize(
    ("text", "code"),
    [("nodes", "E408"), ("nodes=many", "E408"), ("size=3", "E408"), ("seconds=3 MiB", "E204")],
)
def test_limits_of_a_command_line_are_refused(text: str, code: str) -> None:
    with pytest.raises(EqsatError) as caught:
        read_limits([text])
    assert caught.value.diagnostics[0].code == code


# ---- where they are said and kept ----------------------------------------------------------------
def test_limits_are_saved_with_a_run(tmp_path: Path) -> None:
    wanted = read_limits(["nodes=9_000", "rounds=4", "seconds=90 s"])
    assert wanted == Limits(nodes=9000, rounds=4, seconds=90.0)
    run = eqsat.optimize(eqsat.read("two_packs"), limits=wanted, target="reference")
    run.save(tmp_path / "run")
    assert eqsat.load(tmp_path / "run").limits == wanted
    limits = json.loads((tmp_path / "run" / "summary.json").read_text())["egraph"]["limits"]
    assert limits == {"nodes": 9000, "rounds": 4, "matches": MATCHES, "seconds": 90.0}


def test_limits_of_an_experiment_are_those_of_its_rows() -> None:
    text = """
experiment: e
doc: d
limits: {nodes: 500, seconds: 5 s}
programs: [two_packs]
targets: [reference]
vary:
  limits: [{rounds: 2}, {nodes: 9}]
"""
    cells = read_experiment(text).cells
    assert [c.limits for c in cells] == [Limits(500, 2, None, 5.0), Limits(9, None, None, 5.0)]
    assert cells[0].varied == (("limits", "{rounds: 2}"),)
    rows = "rows:\n  - {name: a, program: two_packs, target: reference, limits: {rounds: 1}}\n"
    (cell,) = read_experiment(f"experiment: e\ndoc: d\nlimits: {{nodes: 500}}\n{rows}").cells
    assert cell.limits == Limits(nodes=500, rounds=1)


def test_bodies_of_loops_have_the_limits_of_the_whole() -> None:
    text = """input x: f32[4, 4]
body step
  input x: f32[4, 4]
  y = transpose(transpose(matmul(x, x), perm=[1, 0]), perm=[1, 0])
  return y
end
y = scan(x, consts=0, carries=1, length=3, bodies=["step"]) : f32[4, 4]
return y
"""
    run = eqsat.optimize(parse_program(text), limits={"rounds": 1}, target="reference")
    (body,) = {id(r): r for r in run.bodies.values()}.values()
    assert body.egraph is not None
    assert (body.egraph.stop, body.limits) == ("rounds", Limits(rounds=1))
