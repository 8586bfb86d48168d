"""Saturation: what is reached, by which rule, soundly, and the same every time."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from fuzz.classes import evaluate_classes
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.attr import Attr
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import Limits, saturate

TRANSPOSED_PACK = """
program transposed_pack
input a: f32[512, 256]
input b: f32[256, 512]
t = transpose(a, perm=[1, 0])
y = generic(t, b, loops=[256, 256, 512], maps=[[d0, d2], [d1, d2]], body=mul(x0, x1), combine=add)
z = add(t, t)
return y, t, z
"""

# every construct at sizes no tile divides, so that padding exists everywhere
PADDED = """
program padded
input x: f32[7, 30]
weight w1: f32[30, 21]
weight b1: f32[21]
weight w2: f32[21, 10]
h = relu(add(matmul(x, w1), generic(b1, loops=[7, 21], maps=[[d1]], body=x0)))
s = generic(h, loops=[7, 21], maps=[[d0, d1]], body=x0, combine=add) : f32[7]
y = matmul(h, w2)
z = exp(transpose(y, perm=[1, 0]))
m = generic(y, loops=[7, 10], maps=[[d0, d1]], body=x0, combine=max) : f32[7]
r = reshape(h, shape=[7, 3, 7])
q = matmul(transpose(z, perm=[1, 0]), z)
return z, s, m, r, q
"""

# (head, row, lane) x (head, column, lane) -> (head, row, column)
PRODUCT = (
    "s = generic(q, k, loops=[3, 16, 16, 8], maps=[[d0, d1, d3], [d0, d2, d3]],"
    " body=mul(x0, x1), combine=add)"
)
HEADS = f"""
program heads
input x: f32[16, 24]
weight wq: f32[24, 24]
weight wk: f32[24, 24]
q = transpose(reshape(matmul(x, wq), shape=[16, 3, 8]), perm=[1, 0, 2])
k = transpose(reshape(matmul(x, wk), shape=[16, 3, 8]), perm=[1, 0, 2])
{PRODUCT}
return s
"""


def machine(*tiles: tuple[int, int, int]) -> Target:
    """A machine where a byte costs 1 ns, with these (m, n, k) tiles."""
    rows = tuple(Tile((("m", m), ("n", n), ("k", k)), 1.0) for m, n, k in tiles)
    memory = (Memory("ram", 1 << 40, 1e9),)
    return Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (("matmul", rows),))


def read(text: str) -> Program:
    return merge_elementwise(parse_program(text, "test.eqs"))


def leaves(program: Program) -> dict[Attr, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        n.attr: rng.standard_normal(n.type.shape)
        for n in program.nodes
        if n.op in ("input", "weight")
    }


@pytest.mark.parametrize(
    "text", [TRANSPOSED_PACK.replace("512", "30").replace("256", "22"), PADDED, HEADS]
)
@pytest.mark.parametrize("tiles", seeds(1, [[(8, 8, 4), (4, 4, 8)], [(4, 8, 1)], [(16, 16, 16)]]))
def test_every_node_of_every_class_means_the_same(text: str, tiles: list[tuple[int, int, int]]):
    program = read(text)
    graph = saturate(program, eqsat.rules("default"), machine(*tiles))
    graph.verify()
    assert graph.stop == "saturated"
    found = evaluate_classes(graph, leaves(program))
    assert found.disagreement is None
    assert all(v is not None for v in found.classes)
    assert found.compared > len(program.nodes) // 2
    for root in graph.roots:
        (value,) = found.classes[root] or ()
        assert not value.is_open.any()


def test_the_transpose_folds_and_stays():
    graph = saturate(read(TRANSPOSED_PACK), eqsat.rules("default"), machine((16, 16, 16)))
    packs = [n for n in graph.nodes if n.op == "pack"]
    assert {graph.nodes[i].op for n in packs for i in graph.classes[n.children[0]]} >= {
        "input",
        "transpose",
    }
    assert graph.stop == "saturated"


def test_rules_that_replace_leave_one_form():
    program = read(TRANSPOSED_PACK)
    target = machine((16, 16, 16))
    fold = saturate(program, eqsat.rules("policy/always-fold"), target)
    once = saturate(program, eqsat.rules("policy/fold-single-use"), target)
    live = [n for n in fold.nodes if n.op == "pack" and not n.subsumed and n.children[0] != 1]
    assert [n.children for n in live] == [(fold.values[0],)]
    assert all(n.rule != 1 for n in once.nodes)  # three uses: not folded
    single = read(TRANSPOSED_PACK.replace("return y, t, z", "return y"))
    folded = saturate(single, eqsat.rules("policy/fold-single-use"), target)
    assert any(n.op == "pack" and n.children == (folded.values[0],) for n in folded.nodes)


def test_policy_programs_are_in_the_default_e_graph():
    program, target = read(TRANSPOSED_PACK), machine((16, 16, 16))
    full = saturate(program, eqsat.rules("default"), target)
    for policy in ("always-fold", "fold-single-use", "keep"):
        graph = saturate(program, eqsat.rules(f"policy/{policy}"), target)
        known = {(n.op, n.attr) for n in full.nodes}
        assert {(n.op, n.attr) for n in graph.nodes} <= known


def test_json_round_trip_and_text():
    graph = saturate(read(PADDED), eqsat.rules("default"), machine((8, 8, 4)))
    assert EGraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph
    assert "transpose(" in graph.to_text()


def test_egglogs_commands_do_not_drown_what_eqsat_logs(caplog):
    with caplog.at_level(logging.INFO):
        eqsat.optimize("two_packs", target="reference", stop_after="egraph", cache=False)
        assert not logging.getLogger("egglog.egraph").isEnabledFor(logging.INFO)
        assert logging.getLogger("eqsat.saturate").isEnabledFor(logging.INFO)


def test_a_limit_is_reported():
    graph = saturate(read(PADDED), eqsat.rules("default"), machine((8, 8, 4)), Limits(rounds=2))
    assert graph.stop == "rounds"
    graph = saturate(read(PADDED), eqsat.rules("default"), machine((8, 8, 4)), Limits(nodes=30))
    assert graph.stop == "nodes"


def test_provenance_leads_back_to_the_input():
    graph = saturate(read(PADDED), eqsat.rules("default"), machine((8, 8, 4)))
    for start in graph.nodes:
        n, seen = start, set()
        while n.rule >= 0 and n.source >= 0:
            assert n.source not in seen
            seen.add(n.source)
            n = graph.nodes[n.source]
            assert n.eclass == start.eclass


@pytest.mark.parametrize(
    ("rewrite", "to", "says"),
    [
        ("transpose(x, perm=p)", "x", "its left side has the shape [256, 512]"),
        ("transpose(x, perm=p)", "reshape(x, shape=p)", "cannot reshape [512, 256] to [1, 0]"),
        ("generic(*xs, sig=g)", "transpose(generic(*xs, sig=g), perm=[2, 0, 1])", "not a permut"),
    ],
)
def test_an_ill_typed_rule_is_refused_where_it_stands(rewrite: str, to: str, says: str):
    text = f"""
ruleset: bad
doc: An unsound rule.
rules:
  - name: wrong
    doc: Never right.
    rewrite: {rewrite}
    to: {to}
"""
    rules = read_ruleset(text, "bad.yaml")
    with pytest.raises(EqsatError) as caught:
        saturate(read(TRANSPOSED_PACK), rules, machine())
    (found,) = caught.value.diagnostics
    assert (found.code, caught.value.exit_code) == ("E110", 1)
    assert says in found.message
    assert found.span is not None
    assert found.span.line == 8


def test_values_of_two_types_never_become_equal():
    text = """
ruleset: bad
doc: A rule that forgets a cast.
rules:
  - name: drop
    doc: Never right.
    rewrite: generic(x, sig=g)
    where:
      - g.is_elementwise
    to: x
"""
    program = parse_program(
        "program p\ninput x: f32[8, 8]\ny = cast(x, bf16) : bf16[8, 8]\nreturn y\n", "p.eqs"
    )
    with pytest.raises(EqsatError, match="bf16"):
        saturate(program, read_ruleset(text, "bad.yaml"), machine())
