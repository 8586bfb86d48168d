"""Laws of rules: loops written out without their sizes, and brackets of any rank."""

from __future__ import annotations

import pytest

from eqsat.lang.rulesets import read_ruleset
from eqsat.model.diag import EqsatError
from eqsat.ops.algebra.laws import is_spelled, law, law_problem, loops_problem, read_law

LAW = "mk,kn->mn add mul(x0, x1); mn->n add x0 => mk->k add x0; k,kn->n add mul(x0, x1)"


def _loop(text, **sizes):
    (found,) = read_law(f"{text} => {text}").left
    return found.as_generic(sizes, "f32", "default")


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
    exact = read_law(LAW).left[0].as_generic(dict(m=8, k=6, n=4), "f32", "highest")
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


# ---- brackets ------------------------------------------------------------------------------------
AT = dict(b=3, m=8, k=6, n=4, p=5)
MUL = "mul(x0, x1)"


def _product(text):
    is_sum = set(text) - set(text.split("->")[1]) - set(",->")
    body = MUL if "," in text else "x0"
    return _loop(f"{text} {'add ' if is_sum else ''}{body}", **AT)


def _ops(text, *loops):
    found = law(text, *map(_product, loops))
    return None if found is None else [g for g in vars(found).values() if g is not None]


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("(a b) c => a (b c)", "mk,kn->mn mn,np->mp", "kn,np->kp mk,kp->mp"),
        ("(a b) c => a (b c)", "bmk,bkn->bmn bmn,pn->pbm", "bkn,pn->bkp bmk,bkp->pbm"),
        ("(a b) c => (a c) b", "mk,kn->mn mn,m->n", "mk,m->k k,kn->n"),
        ("c (a b) => (c a) b", "k,n->kn mk,kn->mn", "mk,k->m m,n->mn"),
        ("(x y) => (x) y", "mk,kn->mn mn->n", "mk->k k,kn->n"),
        ("(x y) => x y", "bmk,bkn->bmn bmn->mn", "bmk,bkn->mn"),
        ("x y => x (y)", "mk,n->mk", "n-> mk,->mk"),
        (
            "(a b) (c d) => (a c) (b d)",
            "mk,kn->mn mp,pn->mn mn,mn->",
            "mk,mp->kp kn,pn->kp kp,kp->",
        ),
    ],
)
def test_a_law_of_brackets_is_about_operands_of_any_rank(text, left, right):
    assert _ops(text, *left.split(" ")) == list(map(_product, right.split(" ")))


def test_a_bracket_that_has_nothing_to_do_is_no_law():
    assert _ops("(x y) => (x) y", "mk,kn->mn", "mn->n") is not None
    assert _ops("(x y) => (x) y", "mk,kn->mn", "mn->m") is None  # x has no sum of its own
    assert _ops("(x y) => x y", "mk,kn->mn", "mn->nm") is None  # a copy
    assert _ops("(x y) => (x) y", "mk,kn->mn") is None
    assert _ops("x y => (x) y", "mk,kn->mn", "mn->n") is None


def test_guards_are_about_work_and_about_sums():
    chain = "(a b) c => a (b c) if work <= {}"
    wide = ("mk,kn->mn", "mn,n->m")  # 8 6 4 + 8 4 against 6 4 + 8 6 multiply-adds
    assert _ops(chain.format(0.33), *wide) is not None
    assert _ops(chain.format(0.32), *wide) is None
    own = "(x y) => x y if settled"
    assert _ops(own, "bmk,bkn->bmn", "bmn->mn") is not None
    assert _ops(own, "mk,kn->mn", "mn->n") is None  # m is of x alone
    three = _loop("m,mk,k-> add mul(mul(x0, x1), x2)", **AT)
    least = [
        law(f"x y z => {right} if least", three) for right in ("(x y) z", "(x z) y", "(y z) x")
    ]
    assert [g is not None for g in least] == [True, False, False]  # 48 + 6 multiply-adds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a b", "no `=>` between"),
        ("(a b => a b", "a bracket stays open"),
        ("a) b => a b", "`)` is no operand such as `x`, and closes no bracket"),
        ("() a => a", "closes no bracket"),
        (" => a", "a side is empty"),
        ("a b => a + b", "`+` is no operand"),
        ("a b => a", "not products of the same operands"),
        ("((((a)))) => a", "may have 3 brackets"),
        ("a b => (a) b if cheap", "`cheap` is no guard: `work <= 0.9`, least"),
        ("a b => (a) b if order", "about products of three"),
    ],
)
def test_what_is_no_law_of_brackets_is_answered_with_a_sentence(text, says):
    assert says in law_problem(text)
