"""What the term language can say: every op, splats of ops on both sides, rows, several results."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.egraph import EGraph
from eqsat.model.target import Memory, Target
from eqsat.saturate import saturate

MACHINE = Target("toy", "", "xla", True, (Memory("ram", 1 << 40, 1e9),), 0, (), 1.0, 1.0, (), False)


def run(rule: str, program: str) -> EGraph:
    text = f"ruleset: test\ndoc: One rule.\nrules:\n  - name: one\n    doc: A rule.\n{rule}"
    rules = read_ruleset(text, "test.yaml")
    return saturate(parse_program(program, "test.eqs"), rules, MACHINE)


def made(graph: EGraph) -> set[str]:
    return {n.op for n in graph.nodes if n.rule >= 0}


CONCAT = """program p
input a: f32[4, 6]
input b: f32[4, 6]
s = transpose(a, perm=[1, 0])
t = transpose(b, perm={perm})
c = concat(s, t, axis={axis})
return c
"""
ALL_TRANSPOSED = """
    rewrite: concat(*transpose(xs, perm=p), axis=0)
    to: transpose(concat(*xs, axis=1), perm=p)
"""


def test_a_splat_of_an_op_matches_all_operands():
    graph = run(ALL_TRANSPOSED, CONCAT.format(perm="[1, 0]", axis=0))
    assert made(graph) == {"concat", "transpose"}


def test_a_splat_of_an_op_needs_equal_fields_and_literals():
    square = CONCAT.replace("4, 6", "5, 5")
    assert not made(run(ALL_TRANSPOSED, square.format(perm="[0, 1]", axis=0)))
    assert not made(run(ALL_TRANSPOSED, square.format(perm="[1, 0]", axis=1)))


def test_transposes_of_a_splat_share_a_permutation():
    graph = run(
        """
    rewrite: transpose(concat(*xs, axis=0), perm=[1, 0])
    to: concat(*transpose(xs, perm=[1, 0]), axis=1)
""",
        """program p
input a: f32[4, 6]
input b: f32[3, 6]
c = concat(a, b, axis=0)
t = transpose(c, perm=[1, 0])
return t
""",
    )
    assert made(graph) == {"transpose", "concat"}
    assert sum(n.op == "transpose" for n in graph.nodes) == 3


@pytest.mark.parametrize(
    ("rule", "term", "wants"),
    [
        ("slice(pad(x, low=a, high=h, value=v), start=a, limit=l, stride=s)|x",
         "slice(pad(x, low=[1, 0], high=[0, 2], value=0.0), start=[1, 0], limit=[5, 6])", set()),
        ("gather(transpose(x, perm=p), i, axis=0)|transpose(gather(x, i, axis=1), perm=p)",
         "gather(transpose(x, perm=[1, 0]), i, axis=0)", {"gather", "transpose"}),
        ("slice(x, start=a, limit=l, stride=s)|slice(pad(x, low=[0, 0], high=[1, 1], value=\"1\"), "
         "start=a, limit=l, stride=s)", "slice(x, start=[0, 0], limit=[2, 3])", {"slice", "pad"}),
        ("set_encoding(x, encoding=e)|unset_encoding(set_encoding(x, encoding=e), encoding=e)",
         'set_encoding(x, role="lhs")', {"unset_encoding"}),
    ],
)  # fmt: skip
def test_movement_by_fields(rule: str, term: str, wants: set[str]):
    left, right = rule.split("|")
    if not wants:  # the row is there only if nothing is cut but the padding
        right = "x"
    program = f"program p\ninput x: f32[4, 6]\ninput i: i32[3]\ny = {term}\nreturn y, i\n"
    graph = run(f"    rewrite: {left}\n    to: {right}\n", program)
    assert made(graph) >= wants
    if not wants:
        assert graph.roots[0] == graph.values[0]


def test_several_results_are_rewritten_one_by_one():
    graph = run(
        """
    rewrite: transpose(result(generic(*xs, sig=g), index=i), perm=p)
    to: result(generic(*xs, sig=write_behind(g, p)), index=i)
""",
        """program p
input a: f32[4, 6]
g = generic(a, loops=[4, 6], maps=[[d0, d1]], body=[neg(x0), exp(x0)]) : f32[4, 6], f32[4, 6]
r = result(g, index=0)
s = result(g, index=1)
t = transpose(r, perm=[1, 0])
u = transpose(s, perm=[1, 0])
return t, u
""",
    )
    generics = [n for n in graph.nodes if n.op == "generic"]
    assert len(generics) == 2  # both results come from one permuted generic
    assert sum(n.op == "result" and n.rule >= 0 for n in graph.nodes) == 2


def test_rules_about_ops_that_cannot_occur_are_left_out():
    from eqsat.saturate.encode import variants

    program = parse_program("program p\ninput x: f32[4]\ny = exp(x)\nreturn y\n", "p.eqs")
    found, signatures = variants(eqsat.rules("default").rules, program.nodes)
    assert {v.rule.left.op for v in found} <= {op for op, _ in signatures}
    assert not any(op in ("gather", "concat") for op, _ in signatures)


def test_a_rule_may_ask_for_unpacks_where_there_are_none():
    graph = run(
        """
    rewrite: generic(*xs, sig=g)
    where: is_unpacked(xs)
    to: transpose(transpose(generic(*xs, sig=g), perm=[0]), perm=[0])
""",
        "program p\ninput x: f32[4]\ny = exp(x)\nreturn y\n",
    )
    assert not made(graph)
