"""Mutants: every standard break is made, and the judge refutes what is wrong and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
from fuzz.judge import KILLED, MISSED, REFUSED, judge
from fuzz.mutants import mutants
from seeds import one_in

import eqsat
from eqsat.hunt.instances import draw, seeds
from eqsat.hunt.search import attempt, rows_at
from eqsat.hunt.vary import vary
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.rules import Rule

RULES = {r.name: r for r in eqsat.rules("default").rules}
SHARE = 15  # every so manieth mutant of every rule is judged here; `make rules` judges all of them


def read(rewrite: str, to: str, *more: str) -> Rule:
    text = f"  - name: tested\n    doc: A rule.\n    rewrite: {rewrite}\n    to: {to}\n"
    lines = "".join(f"    {m}\n" for m in more)
    return read_ruleset(f"ruleset: s\ndoc: A set.\nrules:\n{text}{lines}", "s.yaml").rules[0]


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
