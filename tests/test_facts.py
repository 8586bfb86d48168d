"""Facts of a program that rules ask: how much of a value is read, and whether it holds garbage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_ruleset, read_ruleset
from eqsat.lang.targets import load_target
from eqsat.model.program import Program
from eqsat.model.region import Region, some_of
from eqsat.model.rules import RuleSet
from eqsat.ops.programs.facts import Facts, facts_of, regions_read
from eqsat.ops.registry import all_ops
from eqsat.saturate import saturate
from eqsat.saturate.blocks import find_blocks

# an op of one operand x, of elements 0, 1, 2 …; what it writes are the numbers of what it reads
MOVES = (
    ("f32[6, 10]", "transpose(x, perm=[1, 0])"),
    ("f32[6, 10]", "slice(x, start=[1, 0], limit=[6, 9], stride=[2, 3])"),
    ("f32[6, 10]", "reshape(x, shape=[3, 20])"),
    ("f32[6, 10]", "reshape(x, shape=[60])"),
    ("f32[60]", "reshape(x, shape=[3, 4, 5])"),
    ("f32[4, 9]", "reshape(x, shape=[6, 6])"),
    ("f32[4, 5]", "pad(x, low=[1, 2], high=[0, 3], value=0)"),
    ("f32[5, 7]", "pack(x, pos=[1, 0], tiles=[4, 2], pad=0)"),
    ("f32[3, 2, 4]", "unpack(x, pos=[1], tiles=[4], shape=[3, 7], pad=any)"),
    ("f32[4, 9]", "generic(x, loops=[4, 3, 2], maps=[[d0, 3*d1 + 2*d2]], body=x0)"),
    ("f32[4, 9]", "generic(x, loops=[9, 4], maps=[[3 - d1, d0]], body=x0)"),
    ("f32[4, 4]", "generic(x, loops=[4, 2], maps=[[d0, d0]], body=x0)"),
    ("f32[4, 5]", "concat(x, x, axis=0)"),
)


def program(*lines: str) -> Program:
    return parse_program("\n".join(("program p", *lines)), "p.eqs")


def parts(size: int) -> list[range]:
    ends = itertools.combinations(range(size + 1), 2)
    every = [range(a, b, step) for a, b in ends for step in (1, 2, 3)]
    return every[:: max(1, len(every) // 8)]


@pytest.mark.parametrize(("given", "term"), MOVES)
def test_regions_hold_what_is_read(given: str, term: str) -> None:
    p = program(f"input x: {given}", f"y = {term}", "return y")
    n = p.nodes[-1]
    shape = p.nodes[0].type.shape
    x = np.arange(1, math.prod(shape) + 1, dtype=float).reshape(shape)
    meaning, reads = all_ops()[n.op].numpy, all_ops()[n.op].reads
    assert meaning is not None and reads is not None
    found = meaning(n.attr, *(x for _ in n.operands))
    y = np.asarray(found[0] if isinstance(found, list) else found)
    for dims in itertools.product(*map(parts, y.shape)):
        region = Region(tuple(map(some_of, dims)), math.prod(map(len, dims)))
        used = set(y[tuple(slice(r.start, r.stop, r.step) for r in dims)].ravel()) - {0}
        held: set[float] = set()
        most = 0
        for i in range(len(n.operands)):
            part = reads(n.op, n.attr, i, region)
            if part is not None:
                held |= set(x[np.ix_(*(list(d.within) for d in part.dims))].ravel())
                most += part.most
        assert used <= held
        assert len(used) <= most
    assert wasted(p)[0] == (10 * len(set(y.ravel()) - {0}) < 9 * x.size)


def wasted(p: Program) -> tuple[bool, ...]:
    return facts_of(p, ["wasted"]).holds["wasted"]


def test_what_is_wasted() -> None:
    p = program(
        "input x: f32[20, 16]", "weight w: f32[16, 30]",
        "weight e: f32[100, 16]", "input i: i32[3]",
        "y = matmul(x, w)",
        "z = slice(y, start=[19, 0], limit=[20, 30])",
        "t = matmul(e, w)",
        "g = gather(t, i, axis=0)",
        "u = relu(x)",
        "v = slice(u, start=[0, 0], limit=[19, 16])",
        "return z, g, v",
    )  # fmt: skip
    names = ["x", "w", "e", "i", "y", "z", "t", "g", "u", "v"]
    held = dict(zip(names, wasted(p), strict=True))
    # of x the first 19 rows and the last one; of u all but a twentieth
    assert [n for n in names if held[n]] == ["e", "y", "t"]
    regions = regions_read(p.nodes, p.results)
    table = regions[names.index("e")]
    assert table is not None and table.most == 3 * 16


def test_parts_that_add_up_to_all_are_no_waste() -> None:
    p = program(
        "input x: f32[8, 16]", "weight w: f32[16, 24]", "y = matmul(x, w)",
        "q = slice(y, start=[0, 0], limit=[8, 8])", "k = slice(y, start=[0, 8], limit=[8, 16])",
        "v = slice(y, start=[0, 16], limit=[8, 24])", "return q, k, v",
    )  # fmt: skip
    assert not any(wasted(p))


def test_symbols_count_as_their_sizes() -> None:
    p = program(
        "symbol n size=64", "input x: f32[n, 16]", "weight w: f32[16, 24]", "y = matmul(x, w)",
        "z = slice(y, start=[0, 0], limit=[1, 24])", "return z",
    )  # fmt: skip
    assert wasted(p)[2]


def test_what_may_hold_anything_is_not_defined() -> None:
    p = program(
        "input x: f32[7]", "y = pack(x, pos=[0], tiles=[4], pad=any)",
        "z = pack(x, pos=[0], tiles=[4], pad=0)", "u = relu(y)", "v = relu(z)", "return u, v",
    )  # fmt: skip
    assert facts_of(p, ["defined"]).holds["defined"] == (True, False, True, False, True)


RULES = """
ruleset: facts
doc: A rule that asks.
rules:
  - name: cut-first
    doc: A slice of an elementwise op is one of its operands.
    rewrite: slice(t := generic(*xs, sig=g), move=m)
    let:     c = write_behind(g, m)
    to:      generic(*slice(xs, move=c.operands), sig=c.sig)
"""
ASKING = """
ruleset: asking
doc: The same for what is wasted.
import: [facts]
override:
  - rules: [cut-first]
    prefix: asking
    where:
      - wasted(t)
rules: []
"""


@pytest.mark.parametrize(("start", "is_wasted"), [(2, True), (4, False)])
def test_a_rule_matches_where_the_fact_holds(tmp_path, start: int, is_wasted: bool) -> None:
    p = program(
        "input x: f32[8]", "y = relu(x)", "z = slice(y, start=[0], limit=[4])",
        f"u = slice(y, start=[{start}], limit=[{start + 4}])", "return z, u",
    )  # fmt: skip
    (tmp_path / "facts.yaml").write_text(RULES)
    rules = read_ruleset(ASKING, "asking.yaml", [tmp_path])
    assert made(p, rules) == is_wasted == wasted(p)[1]
    assert made(p, load_ruleset(tmp_path / "facts.yaml"))


def made(p: Program, rules: RuleSet) -> bool:
    """Whether the one rule made anything."""
    graph = saturate(p, rules, load_target("reference"))
    return any(n.rule >= 0 for n in graph.nodes)


def test_blocks_that_differ_in_a_fact_are_not_searched_once() -> None:
    layers = [f"h{i + 1} = exp(transpose(h{i}, perm=[1, 0]))" for i in range(8)]
    p = program("input h0: f32[4, 4]", *layers, "return h8")
    facts = facts_of(p, ["wasted"])
    blocks = find_blocks(p, facts)
    assert blocks is not None and blocks.count == 8
    middle = blocks.columns[0][3]
    held = tuple(held or i == middle for i, held in enumerate(facts.holds["wasted"]))
    assert find_blocks(p, Facts(facts.uses, {"wasted": held})) is None
