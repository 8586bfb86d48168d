"""Ops of plug-ins: programs, rules and NumPy meanings with them."""

from __future__ import annotations

from pathlib import Path

from wheels import PACKAGE, Interpreter, build_wheel, python, unpack


def test_programs_print_and_read_back(plugged: Interpreter) -> None:
    code = """
from eqsat.lang.programs import load_program, parse_program
from eqsat.model.program import Program

p = load_program("rolled.eqs")
p.verify()
text = p.to_text()
assert "roll(%y.add, axis=0, shift=1) : f32[64, 48]" in text, text
assert parse_program(text) == p
again = Program.from_json(p.to_json())
assert again == p and hash(again.nodes[-1].attr) == hash(p.nodes[-1].attr)
"""
    plugged(code)


MISTAKES = {
    "roll(x, shift=1)": ("E312", "`roll` needs attribute `axis`"),
    "roll(x, shift=1, axis=0, to=3)": ("E312", "`roll` has no attribute `to`"),
    "roll(x, shift=1, axis=2)": ("E301", "`roll` has no axis 2 of 2"),
    "roll(x, x, shift=1, axis=1)": ("E301", "`roll` takes 1 operand(s), got 2"),
    "roll(x, shift=0.5, axis=1)": ("E300", "a whole number is wanted here"),
    'near(x, cast(x, i32), within=1, mode="absolute", axes=[0])': (
        "E301",
        "operand 1 of `near` is floating, not i32",
    ),
    "rol(x, shift=1, axis=1)": ("E311", "no op named `rol`"),
    "roll(x, shift=1, axis=1) : f32[9]": ("E305", "`roll` gives f32[4, 3], not f32[9]"),
}


def test_mistakes_in_programs_are_sentences(plugged: Interpreter) -> None:
    code = f"""
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError

for term, (code, message) in {MISTAKES!r}.items():
    try:
        parse_program(f"input x: f32[4, 3]\\nreturn {{term}}" if ":" not in term
                      else f"input x: f32[4, 3]\\ny = {{term}}\\nreturn y")
    except EqsatError as error:
        (found,) = error.diagnostics
        assert (found.code, message in found.message) == (code, True), found
    else:
        raise AssertionError(term)
"""
    plugged(code)


def test_instances_of_a_plugin_s_op_are_varied_like_any_other(plugged: Interpreter) -> None:
    """Which dims go together is asked of the record: all of a rolled tensor have other extents."""
    code = """
from random import Random
from eqsat.hunt.instances import draw
from eqsat.hunt.vary import vary
from eqsat.lang.rulesets import load_ruleset

rng = Random(0)
rule = next(r for r in load_ruleset("roll").rules if r.left.op == "roll")
drawn = filter(None, (draw(rule, rng) for _ in range(500)))
instance = next(i for i in drawn if len(i.attrs[0].shape) == 2)
found = filter(None, (vary(instance, rng) for _ in range(100)))
seen = {v.attrs[0].shape for v in found}
assert all(len({s[d] for s in seen}) > 1 for d in (0, 1)), seen
"""
    plugged(code)


def test_rules_of_the_plugin_are_checked_and_hunted(plugged: Interpreter) -> None:
    code = """
from eqsat.hunt.instances import check_examples
from eqsat.hunt.search import hunt
from eqsat.lang.rulesets import load_ruleset, read_ruleset

good = load_ruleset("roll")
assert check_examples(good) == []
for rule in good.rules:
    found = hunt(rule, instances=40)
    assert found.instances >= 40 and found.counterexample is None, (rule.name, found.counterexample)

bad = '''
ruleset: wrong
doc: Each of them is.
rules:
  - name: same-axis
    doc: The axis does not move.
    rewrite: transpose(roll(x, shift=s, axis=a), perm=p)
    to:      roll(transpose(x, perm=p), shift=s, axis=a)
  - name: one-shift
    doc: One of two shifts is lost.
    rewrite: roll(roll(x, shift=s, axis=a), shift=t, axis=a)
    to:      roll(x, shift=t, axis=a)
  - name: two-axes
    doc: Both axes are taken for one.
    rewrite: roll(roll(x, shift=s, axis=a), shift=t, axis=b)
    to:      roll(x, shift=roll.sum(s, t), axis=a)
  - name: into-a-pack
    doc: Padding is rolled into the data.
    rewrite: pack(roll(x, shift=s, axis=a), layout=l)
    to:      roll(pack(x, layout=l), shift=s, axis=a)
'''
for rule in read_ruleset(bad, "wrong.yaml").rules:
    assert hunt(rule, instances=200).counterexample is not None, rule.name
"""
    plugged(code)


def test_rules_of_the_plugin_are_hunted_once_per_version_of_its_code(tmp_path: Path) -> None:
    code = """
import eqsat_roll
from pathlib import Path
from eqsat.hunt import findings
from eqsat.hunt.findings import check_rules
from eqsat.lang.rulesets import load_ruleset

good = load_ruleset("roll")
found = check_rules(good)
assert set(found.hunted) == {r.name for r in good.rules} and not found.no_instance, found
assert all(findings.recall(r) for r in good.rules)
before = {findings._key(r) for r in good.rules}
own = load_ruleset("layout/transpose").rules
others = {findings._key(r) for r in own}
with Path(eqsat_roll.__file__).open("a") as file:
    file.write("# the shift may mean something else now")
assert not before & {findings._key(r) for r in good.rules}
assert others == {findings._key(r) for r in own}  # these name nothing of the plug-in
"""
    python(code, unpack(build_wheel(PACKAGE, tmp_path)))


def test_attributes_of_every_kind(plugged: Interpreter) -> None:
    code = """
import numpy as np
import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.hunt.search import hunt
from eqsat.model.program import Program

text = '''input x: f32[6, 4]
input y: f32[6, 4]
a = near(x, y, within=1, mode="relative", axes=[1])
b = near(x, y, axes=[], mode="absolute", within=2.0)
return a, b
'''
p = parse_program(text)
assert 'near(x, y, axes=[1], mode="relative", within=1.0) : bool[6]' in p.to_text()
assert parse_program(p.to_text(), "program") == p == Program.from_json(p.to_json())
run = eqsat.optimize(p, rules="roll", verify=True)
assert run.verification.ok
rule, = read_ruleset('''
ruleset: one
doc: A literal of kind float is matched, and made.
rules:
  - name: wider
    doc: It is not sound to compare more loosely.
    rewrite: near(x, y, within=0.0, mode=m, axes=a)
    to:      near(x, y, within=2.0, mode=m, axes=a)
''', "one.yaml").rules
assert "right True" in str(hunt(rule).counterexample), hunt(rule)
"""
    plugged(code)


def test_lanes_that_depend_on_garbage_are_found(plugged: Interpreter) -> None:
    code = """
import numpy as np
from eqsat.ops.registry import dependent_lanes
from eqsat.ops.registry import op_record

attr = op_record("roll").attribute([(4, 2)], {"shift": 1, "axis": 0})
opened = np.zeros((4, 2), bool)
opened[3, 1] = True
for x in (np.ones((4, 2)), np.full((4, 2), np.nan), np.ones((4, 2), np.int8), opened):
    lanes = dependent_lanes(attr, [x], [opened])
    assert lanes.sum() == 1 and lanes[0, 1], lanes
"""
    plugged(code)
