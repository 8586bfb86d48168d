"""Mutants: every standard break is made, and the judge refutes what is wrong and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from fuzz.breaks import BREAKS
from fuzz.drawer import Drawer
from fuzz.judge import EQUAL, KILLED, MISSED, REFUSED, SOUND, Verdict, judge
from fuzz.kinds import kinds_of
from fuzz.mutants import Mutant, mutants
from seeds import one_in

import eqsat
from eqsat.hunt.instances import draw, seeds
from eqsat.hunt.search import attempt, rows_at
from eqsat.hunt.vary import vary
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.rules import Rule
from eqsat.ops.movement.layout import make_layout

RULES = {r.name: r for r in eqsat.rules("default").rules}
SHARE = 15  # every so manieth mutant of every rule is judged here; `make rules` judges all of them


def read(rewrite: str, to: str, *more: str) -> Rule:
    text = f"  - name: tested\n    doc: A rule.\n    rewrite: {rewrite}\n    to: {to}\n"
    lines = "".join(f"    {m}\n" for m in more)
    return read_ruleset(f"ruleset: s\ndoc: A set.\nrules:\n{text}{lines}", "s.yaml").rules[0]


def changes(rule: Rule) -> set[str]:
    return {m.change for m in mutants(rule)}


def test_conditions_are_dropped_one_by_one():
    rule = read(
        "pack(unpack(y, layout=m), layout=l)", "retype(y, layout=l)",
        "where: ['same_tiles(m, l)', 'not relaxes(m, l)']",
    )  # fmt: skip
    found = changes(rule)
    assert "without the condition `same_tiles(m, l)`" in found
    assert "without the condition `not relaxes(m, l)`" in found
    assert any("relaxes(l, m)" in c for c in found)
    assert not any("same_tiles(l, m)" in c for c in found)  # both orders mean the same


def test_arguments_attributes_and_functions_are_exchanged_and_left_out():
    rule = read("transpose(transpose(x, perm=p), perm=q)", "transpose(x, perm=compose(p, q))")
    found = changes(rule)
    assert "`compose(q, p)` for `compose(p, q)`" in found
    assert "`p` for `compose(p, q)`" in found
    assert "without the `transpose` of `transpose(x, perm=compose(p, q))`" in found
    assert "`p`: inverted" in found
    rule = RULES["unpack-below-generic"]
    found = changes(rule)
    assert "`len(a)`: + 1" in found
    assert "`c.before` and `c.after` exchanged" in found
    assert "`c.sig`: another combine" in found
    assert any(c.startswith("operands of `generic(") for c in found)


def test_a_further_pattern_matches_anything():
    found = changes(RULES["share-padded-pack"])
    assert "the pattern `pack(x, layout=m)` of any `x`" in found


def test_mutants_are_many_and_of_the_same_left_side():
    found = {name: mutants(r) for name, r in RULES.items()}
    assert sum(map(len, found.values())) >= 300
    for name, made in found.items():
        assert all(m.rule != RULES[name] for m in made)
        assert all(m.rule.left == RULES[name].left for m in made)
        assert all(m.change for m in made)


def test_the_kinds_of_all_names_are_known():
    for rule in RULES.values():
        assert all(kinds_of(rule).values()), (rule.name, kinds_of(rule))


def test_a_break_changes_what_it_should():
    layout = make_layout((8, 8), (0, 1), (4, 2), (0, 1), "??")
    zero = make_layout((7, 8), (0,), (4,), (0, 1), "0")
    by = {b.name: b.change for b in BREAKS["layout"]}
    assert by["tile-plus-one"](layout) == make_layout((8, 8), (0, 1), (5, 2), (0, 1), "??")
    assert by["pos-reversed"](layout) == make_layout((8, 8), (1, 0), (4, 2), (0, 1), "??")
    assert by["outer-rotated"](layout).outer == (1, 0)
    assert by["zero-to-any"](zero).pads == ("?",)
    assert by["any-to-zero"](by["zero-to-any"](zero)) == zero
    many = {b.name: b.change for b in BREAKS["layouts"]}
    assert many["zero-to-any"]((None, zero)) == (None, by["zero-to-any"](zero))
    for kind, value in (("layout", zero), ("ints", (2, 0, 1)), ("int", 3), ("pads", ("0", "?"))):
        assert any(b.change(value) != value for b in BREAKS[kind])


AFTER = "unpack(y, layout=before_transpose(l, inverse(p)))"
WRONG = [
    ("transpose(transpose(x, perm=p), perm=q)", "transpose(x, perm=compose(p, q))", "compose(q"),
    ("transpose(unpack(y, layout=l), perm=p)", AFTER, "`p`: in"),
    ("pack(unpack(y, layout=m), layout=l)", "relax(y, layout=l)", "without the condition"),
]


@pytest.mark.parametrize(("rewrite", "to", "change"), WRONG)
def test_a_broken_rule_is_refuted_and_the_rule_is_not(rewrite: str, to: str, change: str):
    more = ["where: ['m == l']"] if "relax" in to else []
    rule = read(rewrite, to, *more)
    (wanted,) = [m for m in mutants(rule) if change in m.change]
    (verdict,) = judge(rule, wanted=[wanted])
    assert verdict.verdict in (KILLED, REFUSED)
    assert verdict.why
    rng = Random(1)
    drawn = [i for _ in range(200) if (i := draw(rule, rng)) is not None]
    assert [o.why for i in drawn if (o := attempt(i, rng)).why] == []


def test_what_changes_nothing_is_called_equal():
    rule = read("transpose(x, perm=p)", "transpose(x, perm=inverse(inverse(p)))")
    once = read("transpose(x, perm=p)", "transpose(x, perm=compose(p, identity(len(p))))")
    other = replace(rule, right=once.right)
    (verdict,) = judge(rule, wanted=[Mutant(other, "another way to say it")])
    assert verdict.verdict == EQUAL
    assert verdict.matches >= 100


def test_a_condition_that_only_limits_growth_is_listed_as_sound():
    rule = read(
        "transpose(transpose(x, perm=p), perm=q)", "transpose(x, perm=compose(p, q))",
        "where: ['not is_identity(p)']",
    )  # fmt: skip
    (wanted,) = [m for m in mutants(rule) if "condition" in m.change]
    (verdict,) = judge(rule, wanted=[wanted], evidence=300)
    assert verdict.verdict == SOUND
    assert verdict.why == "on all instances of ranks (1, 2)"
    assert verdict.differing >= 20
    assert "sound: tested: without the condition" in str(verdict)


def test_what_was_hardly_tried_is_called_missed():
    rule = read("transpose(x, perm=p)", "x", "where: ['x.rank == 9']")
    same = Mutant(rule, "nothing")
    found = judge(rule, matches=50, evidence=50, wanted=[same])
    assert found == [Verdict(same, MISSED, 0, 0)]


def test_the_judge_is_deterministic():
    rule = RULES["fold-transpose-into-pack"]
    assert judge(rule, evidence=50) == judge(rule, evidence=50)


@pytest.mark.parametrize("part", one_in(4, range(4)))
def test_a_share_of_all_mutants_is_refuted(part: int):
    count: Counter[str] = Counter()
    missed = []
    for n, rule in enumerate(RULES.values()):
        if n % 4 != part:
            continue
        wanted = mutants(rule)[n % SHARE :: SHARE]
        found = judge(rule, matches=80, evidence=40, wanted=wanted)
        count.update(v.verdict for v in found)
        missed += [str(v) for v in found if v.verdict == MISSED]
    assert len(missed) <= 0.08 * count.total(), missed
    assert count[KILLED] + count[REFUSED] > 0.5 * count.total()


def test_every_condition_of_the_default_rules_is_needed():
    judged = 0
    for rule in RULES.values():
        dropped = [m for m in mutants(rule) if m.change.startswith("without the condition")]
        # facts of the input program are guards against growth, too: no rule's own values have them
        dropped = [
            m for m in dropped if not re.search(r"(wasted|defined|short|sums_integers)\(", m.change)
        ]
        for v in judge(rule, evidence=200, wanted=dropped):
            assert v.verdict in (KILLED, REFUSED), str(v)
            judged += 1
    assert judged >= 5


def test_examples_are_instances_and_can_be_varied():
    example = "{name: e, given: {x: 'f32[8, 4]', w: 'f32[4, 6]'}, start: '%s', reaches: '%s'}"
    start = "transpose(matmul(x, w), perm=[1, 0])"
    rule = read(
        "transpose(generic(*xs, sig=g), perm=p)", "generic(*xs, sig=write_behind(g, p))",
        f"examples: [{example % (start, start)}]",
    )  # fmt: skip
    rng = Random(3)
    found = [s for s in seeds(rule, rng) if rows_at(s, rule)]
    assert found
    varied = [v for s in found for _ in range(20) if (v := vary(s, rng)) is not None]
    assert len(varied) >= 15 * len(found)
    assert len({v.attrs for v in varied}) > len(varied) // 2
    outcomes = [attempt(v, rng) for v in varied]
    assert sum(o.rows > 0 for o in outcomes) > len(varied) // 2
    assert [o.why for o in outcomes if o.why] == []


def test_rare_matches_are_found_by_the_drawer():
    name = next(n for n in ("fold-norm-into-weight", "pack-contraction") if n in RULES)
    drawer = Drawer(RULES[name], Random(5))
    found = [i for _ in range(400) if (i := drawer()) is not None]
    applied = [i for i in found if rows_at(i, RULES[name])]
    assert len(applied) >= 50
    kinds = {type(a) for i in applied for a in i.attrs}
    assert Generic in kinds or Layout in kinds


def test_a_mutant_whose_values_numpy_refuses_is_killed():
    """It gathers by floats, which NumPy refuses with a TypeError."""
    found = eqsat.rules("algebra/demand").rules
    (rule,) = (r for r in found if r.name == "gather-of-flat-rows")
    wanted = [m for m in mutants(rule) if m.change == "`c.rows`: another element type"]
    (verdict,) = judge(rule, matches=40, evidence=40, wanted=wanted)
    assert verdict.verdict == KILLED
    assert "cannot be computed" in verdict.why
