"""Coverage of the field's rewrites (docs/upstream.md), the sets that reproduce other compilers."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from seeds import one_in
from shipped import RULES

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets, read_ruleset
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape
from eqsat.model.rules import Rule
from eqsat.model.target import Tile
from eqsat.ops.generics import guards
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.saturate import saturate

PAGE = Path(__file__).parents[1] / "docs" / "upstream.md"
ROW = re.compile(r"^\| (\d\.\d+[a-z]?|[FR]\d+) \|([^|\n]*)\|[^|\n]*\|([^|\n]*)\|$", re.M)
PATTERN = re.compile(r"\b[A-Za-z]*[a-z][A-Z0-9]\w*")  # of MLIR, IREE, tpp-mlir
FILE = re.compile(r"\b(MLIR|IREE|tpp-mlir) [\w/ ]*\w+\.cpp")
SECTIONS = """
2.1 2.2 2.3 2.4 2.5 3.1 3.2 3.3 3.4 3.5 3.6 4.1 4.2 4.3 4.4 4.5
5.1 5.2 5.3 5.4 5.5 5.6 5.7 6.1 6.2 6.3 6.4 F1 F2 F3 F4 F5 F6
"""
SETS = ("upstream-linalg", "iree-early", "iree-dispatch", "tpp-propagate")
KNOWN_BUGS = (
    "transposed-pack-with-several-uses",
    "pushed-down-unpack-with-padding",
    "truncation-before-packed-add",
    "i1-padding",
    "unit-dim-pack-is-a-reshape",
    "artificial-padding",
    "zero-tile",
    "padded-pack-with-unit-outer",
    "multi-use-pad",
    "division-by-padded-zero",
    "concat-gains-no-transpose",
    "cast-keeps-encoding",
)


def table() -> list[tuple[str, list[str], list[str]]]:
    """(row, the patterns it names, rules)."""
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [
        (row, PATTERN.findall(upstream), re.findall(r"`([a-z0-9-]+)`", here))
        for row, upstream, here in found
    ]


TABLE = table()
REASONS = re.findall(r"^\| \D{9,} \| (\d\.\d.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
UNRULED = [r for cell in REASONS for r in re.findall(r"(?:^|; )(\d\.\d[a-z]?) \w", cell)]


# ---- coverage ----------------------------------------------------------------------------------
def section(row: str) -> str:
    return row.rstrip("abcdefghijkl")


def test_every_row_has_a_rule_that_names_it():
    for row, patterns, names in TABLE:
        assert names, f"{row} names its rules, or is a row without one, beside its reason"
        assert not set(names) - set(RULES), f"{row}: these rules do not exist"
        sources = [RULES[n].source for n in names]
        assert not patterns or any(p in source for p in patterns for source in sources), (
            f"no `source:` of {names} names one of {patterns}, as {row} does"
        )


def test_the_table_holds_every_section():
    rows = [row for row, *_ in TABLE] + UNRULED
    assert len(set(rows)) == len(rows)
    for want in SECTIONS.split():
        assert want in {section(row) for row in rows}


def test_every_source_can_be_looked_up():
    on_the_page = {name for _, _, names in TABLE for name in names}
    assert [name for name, rule in RULES.items() if not rule.source] == []
    assert {n for n, rule in RULES.items() if FILE.search(rule.source)} <= on_the_page


# ---- known bugs --------------------------------------------------------------------------------
@pytest.mark.parametrize("bug", KNOWN_BUGS)
def test_known_bugs_have_examples_of_the_right_and_the_wrong_form(bug: str):
    if bug == "zero-tile":  # it cannot be written down at all
        with pytest.raises(EqsatError) as caught:
            parse_program("program p\ninput x: f32[8]\ny = pack(x, pos=[0], tiles=[0])\nreturn y\n")
        assert caught.value.diagnostics[0].code == "E301"
        return
    found = [e for r in RULES.values() for e in r.examples if e.name.startswith(bug)]
    assert any(e.reaches for e in found), "no example reaches the right form"
    assert any(e.avoids for e in found), "no example avoids the wrong form"


# ---- the sets ----------------------------------------------------------------------------------
def test_all_sets_load_together():
    names = [r.name for r in load_rulesets([*SETS, "default"]).rules]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", SETS)
def test_every_rule_of_a_policy_is_documented_and_tagged(name: str):
    for rule in eqsat.rules(name).rules:
        assert rule.doc.endswith(".")
        if rule.apply == "replace":
            assert "policy" in rule.tags


def test_the_callback_is_in_one_set_and_not_in_the_other():
    def tags(name: str) -> set[str]:
        return {t for r in eqsat.rules(name).rules for t in r.tags}

    assert "uncontrolled" in tags("upstream-linalg") - tags("iree-dispatch")
    assert "controlled" in tags("iree-dispatch") - tags("upstream-linalg")


@cache
def upstream() -> eqsat.Experiment:
    experiment = eqsat.Experiment.read("experiments/upstream.yaml")
    experiment.plan = replace(experiment.plan, runs=0, verify=False)  # programs run below
    return experiment


@cache
def figures(name: str) -> dict:
    (found,) = upstream().run(rows=[name]).outcomes
    return found.to_json()


@pytest.mark.slow  # all of its rows, 9 s
def test_eqsat_is_never_worse_than_any_of_them():
    """`covers` also checks that their programs are among those eqsat chose from."""
    results = upstream().run()
    assert results.problems() == ()
    for row in results.rows():
        assert row["status"] == "found"
        for other in row["covers"]:
            assert row["time_us"] <= figures(other)["time_us"]


def test_what_each_of_them_would_have_done():
    def conversions(name: str) -> int:
        row = figures(name)
        return sum(row[k] for k in ("packs", "unpacks", "transposes"))

    # two readers of one transpose: the callback keeps it, without one it is folded twice
    assert figures("iree-dispatch@two_packs")["transposes"] == 1
    assert figures("upstream-linalg@two_packs")["transposes"] == 0
    # several unpacked operands are refused upstream and by TPP
    assert conversions("upstream-linalg@residual") > conversions("eqsat@residual")
    assert conversions("iree-early@residual") == conversions("upstream-linalg@residual")
    # requests do not cross a reshape that splits an encoded dim, packs do
    assert conversions("iree-dispatch@folded_batch") > conversions("upstream-linalg@folded_batch")
    # TPP packs full blocks only
    assert conversions("tpp-propagate@padded_chain") == 0
    # a greedy policy is worse somewhere, each of them
    for name in SETS:
        assert any(
            figures(f"{name}@{p}")["time_us"] > figures(f"eqsat@{p}")["time_us"]
            for p in ("two_packs", "permuted_consumer", "residual", "folded_batch", "padded_chain")
        )


def test_no_data_tiling_leaves_a_program_as_it_is():
    program = eqsat.read("residual")
    run = eqsat.optimize(program, rules="iree-dispatch", target="no-data-tiling")
    assert run.schedule is not None
    assert not {n.op for n in run.schedule.program.nodes} & {"pack", "unpack", "set_encoding"}


SMALL = """
program small
input x: f32[3, 4, {k}]
input w: f32[{k}, {n}]
input v: f32[{n}, 6]
input bias: f32[{n}]
f = reshape(x, shape=[12, {k}])
h = matmul(f, w)
g = generic(h, bias, loops=[12, {n}], maps=[[d0, d1], [d1]], body=max(add(x0, x1), 0.0))
t = transpose(v, perm=[1, 0])
y = generic(g, t, loops=[12, 6, {n}], maps=[[d0, d2], [d1, d2]], body=mul(x0, x1), combine=add)
e = exp(y)
z = reshape(e, shape=[3, 4, 6])
return z, t
"""


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("k", "n"), one_in(2, [(7, 10), (8, 8)]))
def test_the_policies_compute_the_right_thing(name: str, k: int, n: int):
    program = parse_program(SMALL.format(k=k, n=n))
    tile = ["tiles.matmul=[{mnk: [4, 4, 2], rate: 1.0}]"]
    run = eqsat.optimize(program, rules=name, target="reference", settings=tile)
    assert run.schedule is not None
    found = run.schedule.program
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, program.nodes[i].type.shape) * 0.5 for i in program.inputs]
    want = evaluate_program(program, given, {})
    got = evaluate_program(found, [given[found.leaf(i).index] for i in found.inputs], {})
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12)
    if (k, n) == (8, 8):
        assert any(node.op == "pack" for node in found.nodes)


def test_default_rules_do_not_depend_on_the_order_of_the_search():
    """`is_unpacked` is not monotone: only policies, which are not either, may ask it."""
    for rule in eqsat.rules("default").rules:
        assert "is_unpacked" not in str(rule.where), rule.name


# ---- guards ------------------------------------------------------------------------------------
def test_an_unpacked_neighbour_stops_the_push_down():
    text = """
program p
input y: f32[2, 16]
input z: f32[2, 16]
a = unpack(y, pos=[0], tiles=[16], shape=[32])
b = unpack(z, pos=[0], tiles=[16], shape=[32])
c = add(a, b)
d = exp(a)
return c, d
"""
    graph = saturate(
        parse_program(text), eqsat.rules("upstream/propagate"), eqsat.target("reference")
    )
    made = {n.attr.body.fn for n in graph.nodes if n.rule >= 0 and isinstance(n.attr, Generic)}
    assert made == {"exp"}


def layout(source: tuple[int, ...], pos: list[int], tiles: list[int], **rest) -> Layout:
    outer = rest.get("outer", tuple(range(len(source))))
    pads = ["-" if source[d] % t == 0 else "0" for d, t in zip(pos, tiles, strict=True)]
    return Layout(source, tuple(pos), tuple(tiles), tuple(outer), tuple(pads))


def test_guards_say_what_upstream_asks():
    assert guards.is_collapse(Reshape((4, 8, 3), (32, 3)))
    assert not guards.is_expand(Reshape((4, 8, 3), (32, 3)))
    assert guards.is_expand(Reshape((32, 3), (4, 8, 3)))
    assert not guards.is_collapse(Reshape((6, 4), (4, 6)))
    assert layout((30,), [0], [16]).is_padded
    assert not layout((32,), [0], [16]).is_padded
    assert layout((4, 4), [0], [2]).is_outer_identity
    assert not layout((4, 4), [0], [2], outer=(1, 0)).is_outer_identity
    assert guards.is_simple_pack(layout((5, 64), [1], [16]))
    assert guards.is_simple_pack(layout((1, 96), [0, 1], [1, 8]))
    assert guards.is_simple_pack(layout((8, 4), [0, 1], [8, 4]))
    assert not guards.is_simple_pack(layout((64, 5), [0], [16]))
    assert not guards.is_simple_pack(layout((30,), [0], [16]))
    pad = Move("pad", ((4, 8),), ((1, 0), (1, 0), "0"), (6, 8))
    assert guards.pads_untiled(layout((6, 8), [1], [4]), pad)
    assert not guards.pads_untiled(layout((6, 8), [0], [2]), pad)
    cut = Move("slice", ((32, 4),), ((0, 0), (30, 4), (1, 1)), (30, 4))
    assert guards.keeps_tiles(layout((32, 4), [0], [16]), cut)
    assert not guards.keeps_tiles(layout((32, 4), [0], [2]), cut)
    assert not guards.keeps_tiles(layout((32, 4), [1], [4]), cut)


def test_whole_blocks_are_cut_down_to_the_extents():
    program = parse_program(
        "program p\ninput a: f32[64, 48]\ninput b: f32[48, 10]\ny = matmul(a, b)\nreturn y\n"
    )
    g = next(n.attr for n in program.nodes if isinstance(n.attr, Generic))
    tile = Tile((("m", 32), ("n", 32), ("k", 16)), 1.0)
    found = guards.whole_tile(g, tile)
    assert found is not None
    assert dict(found.sizes) == {"m": 32, "n": 10, "k": 16}
    assert guards.whole_tile(g, Tile((("m", 32), ("n", 4), ("k", 16)), 1.0)) is None


# ---- override: ---------------------------------------------------------------------------------
HEAD = "ruleset: test\ndoc: d\nimport: [layout/pack]\n"


def overridden(body: str) -> dict[str, Rule]:
    return {r.name: r for r in read_ruleset(HEAD + body, "f.yaml").rules}


def test_override_takes_a_rule_over():
    body = """enable: [fold-transpose-into-pack, pack-of-unpack]
tags: [mine]
override:
  - rules: [fold-transpose-into-pack]
    prefix: greedy
    apply: replace
    phase: cancel
    single_use: true
    where: ["not l.is_padded"]
    tags: [late]
    source: somewhere
"""
    found = overridden(body)
    assert set(found) == {"greedy-fold-transpose-into-pack", "pack-of-unpack"}
    rule = found["greedy-fold-transpose-into-pack"]
    assert (rule.apply, rule.phase, rule.source) == ("replace", "cancel", "somewhere")
    assert rule.tags == ("mine", "late")
    assert (rule.ruleset, rule.at) == ("test", "f.yaml:7:13")
    assert len(rule.where) == 2
    assert rule.left.operands[0].name == "inner0"  # type: ignore[union-attr]
    assert found["pack-of-unpack"].tags == ()


def test_one_rule_may_be_overridden_twice_and_by_tag():
    body = """enable: [unpack-of-pack]
override:
  - {rules: [unpack-of-pack], prefix: one, apply: replace}
  - {rules: [unpack-of-pack], prefix: two}
"""
    assert set(overridden(body)) == {"one-unpack-of-pack", "two-unpack-of-pack"}


@pytest.mark.parametrize(
    ("entry", "code", "text"),
    [
        ("{rules: [fold-transpos-into-pack], prefix: a}", "E009", "fold-transpos-into-pack"),
        ("{rules: [unpack-of-pack], prefix: a, where: ['is_open(q)']}", "E020", "`q`"),
        ("{rules: [unpack-of-pack], prefix: a, where: ['is_open(x)']}", "E021", "`x`"),
        ("{rules: [unpack-of-pack], prefix: A}", "E005", "`A`"),
        ("{rules: [unpack-of-pack]}", "E004", "prefix"),
    ],
)
def test_a_wrong_override_is_refused(entry: str, code: str, text: str):
    with pytest.raises(EqsatError) as caught:
        overridden(f"override:\n  - {entry}\n")
    assert caught.value.diagnostics[0].code == code
    assert text in caught.value.diagnostics[0].message


def test_disabled_rules_of_an_imported_set_stay_away(tmp_path: Path):
    """Nested imports: what a set leaves out does not come back by importing that set."""
    (tmp_path / "inner.yaml").write_text(
        "ruleset: inner\ndoc: d\nimport: [layout/pack]\ndisable: [unpack-of-pack]\nrules: []\n"
    )
    (tmp_path / "outer.yaml").write_text(
        "ruleset: outer\ndoc: d\nimport: [inner]\ndisable: [pack-of-unpack]\nrules: []\n"
    )
    names = {r.name for r in load_rulesets(["outer"], [tmp_path]).rules}
    assert not names & {"unpack-of-pack", "pack-of-unpack"}
    assert "forget-padding" in names
    both = {r.name for r in load_rulesets(["outer", "layout/pack"], [tmp_path]).rules}
    assert {"unpack-of-pack", "pack-of-unpack"} <= both
