"""Laws of rules: loops written out without their sizes."""

from __future__ import annotations

import pytest

from eqsat.lang.rulesets import read_ruleset
from eqsat.model.diag import EqsatError
from eqsat.ops.algebra.laws import is_spelled, law, loops_problem, read_law

LAW = "mk,kn->mn add mul(x0, x1); mn->n add x0 => mk->k add x0; k,kn->n add mul(x0, x1)"


def _loop(text, **sizes):
    (found,) = read_law(f"{text} => {text}").left
    return found.made(sizes, "f32", "default")


@pytest.mark.parametrize("sizes", [(8, 6, 4), (1, 6, 4), (8, 1, 1), (2, 2, 2)])
def test_a_law_gives_the_loops_of_its_right_side_at_the_sizes_of_its_left(sizes):
    m, k, n = sizes
    product = _loop("mk,kn->mn add mul(x0, x1)", m=m, k=k, n=n)
    total = _loop("mn->n add x0", m=m, n=n)
    found = law(LAW, product, total)
    assert found is not None
    assert found.first == _loop("mk->k add x0", m=m, k=k)
    assert found.second == _loop("k,kn->n add mul(x0, x1)", k=k, n=n)
    assert found.third is None


def test_a_law_holds_for_the_loops_it_says_only():
    product = _loop("mk,kn->mn add mul(x0, x1)", m=8, k=6, n=4)
    rows, columns = _loop("mn->m add x0", m=8, n=4), _loop("mn->n max x0", m=8, n=4)
    assert law(LAW, product, rows) is None
    assert law(LAW, product, columns) is None
    assert law(LAW, product) is None
    other = _loop("mn->n add x0", m=7, n=4)  # a letter is one size
    assert law(LAW, product, other) is None
    assert is_spelled("ab->a add x0", rows)
    assert not is_spelled("ab->b add x0", rows)


def test_a_law_keeps_precision():
    exact = read_law(LAW).left[0].made(dict(m=8, k=6, n=4), "f32", "highest")
    found = law(LAW, exact, _loop("mn->n add x0", m=8, n=4))
    assert found is not None and found.second is not None
    assert found.second.precision == "highest"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mn->m", "letters,letters->letters"),
        ("mn->m x0", "a word such as `add`"),
        ("mn->mn add x0", "a word such as `add`"),
        ("mn->nn x0", "names a loop twice"),
        ("mn->mn ad(x0)", "no operand `x0`, number or scalar function"),
        ("mn->mn add(x0)", "`add` takes 2 operand(s), got 1"),
        ("mn,n->mn x0", "the body reads [0] of 2"),
        ("mn->mn exp(x0", "cannot read"),
    ],
)
def test_what_is_no_loop_is_answered_with_a_sentence(text, says):
    assert says in loops_problem(text)


def test_a_law_in_a_rule_is_read_when_the_file_is():
    text = f"""ruleset: test/law
doc: A law whose right side has a size of its own.
rules:
  - name: wrong-law
    doc: No law.
    phase: canonicalise
    rewrite: generic(generic(x, y, sig=g), sig=h)
    let: c = law("{LAW.replace("mk->k add x0", "mq->q add x0")}", g, h)
    to: generic(generic(x, sig=c.first), y, sig=c.second)
"""
    with pytest.raises(EqsatError) as caught:
        read_ruleset(text, "law.yaml")
    (problem,) = caught.value.diagnostics
    assert problem.code == "E026" and "`q`" in problem.message
    assert problem.span is not None and problem.span.line == 8
