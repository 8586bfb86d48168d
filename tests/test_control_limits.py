"""Loops that do not end, are nested too deeply, or are written by hand and wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from loops import X, array

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.lang.programs import parse_program
from eqsat.model.control import every_program
from eqsat.model.diag import EqsatError
from eqsat.model.selection import TIME_LIMIT, Cut, GoalResult, Selection
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.run.bodies import Bodies, Other, Site


@pytest.mark.slow
def test_a_loop_that_does_not_end_is_not_checked_forever():
    def forever(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < 1e9, lambda c: c * 0.5, x)

    run = eqsat.optimize(forever, X[0], target="avx512-xla")
    found = run.verify(work_limit=1e7)
    assert (found.ok, found.outcome, found.samples) == (False, "unproven", 0)
    assert "has not ended after 1.0e+07 operations" in found.reason
    with pytest.raises(EqsatError) as e:
        evaluate_program(run.program, [X[0]], {})
    assert e.value.diagnostics[0].code == "E331"


def test_a_huge_count_is_no_work():
    def long(x: Any) -> Any:
        return jax.lax.fori_loop(0, 10**9, lambda i, c: c * 0.5 + 1.0, x)

    run = eqsat.optimize(long, X, target="avx512-xla")
    assert run.schedule is not None and run.schedule.time_ps > 10**14
    found = run.verify()
    assert (found.ok, found.outcome, found.samples) == (False, "unproven", 0)
    assert "takes 1.3e+15 operations at least" in found.reason


def deep(n: int) -> Callable[..., Any]:
    if n == 0:
        return lambda x: x * 0.5
    inner = deep(n - 1)
    return lambda x: jax.lax.cond(x[0] > 0, inner, lambda x: -x, x)


def test_bodies_are_nested_so_deep_and_no_deeper():
    assert len(every_program(trace(deep(3), (X[0],)).program)) == 7
    with pytest.raises(EqsatError) as e:
        trace(deep(17), (X[0],))
    assert e.value.diagnostics[0].code == "E332"
    lines = [f"{'body b' + str(i)}\ninput x: f32[4]" for i in range(40)]
    with pytest.raises(EqsatError) as e:
        parse_program("\n".join(lines))
    assert e.value.diagnostics[0].code == "E332"


LOOP = """
input c0: f32[4]
input xs: f32[3, 4]
body step
  input c: f32[4]
  input x: f32[4]
  d = add(c, x)
  return d, c
end
s = scan(c0, xs, carries=1, length=3, bodies=["step"])
a = result(s, index=0)
return a
"""


def test_a_loop_written_by_hand():
    p = parse_program(LOOP)
    x, xs = array(1, 4), array(2, 3, 4)
    assert np.allclose(evaluate_program(p, [x, xs], {})[0], x + xs.sum(0))
    assert parse_program(p.to_text()) == replace(p, name="program")
    assert eqsat.optimize(p, target="avx512-xla", verify=True).verification.ok  # type: ignore[union-attr]


WRONG = {
    "no body": (LOOP.replace('["step"]', '["stop"]'), "E330", "no body named `stop`"),
    "no end": (LOOP.replace("end\n", ""), "E313", "does not end"),
    "no return": (LOOP.replace("  return d, c\n", ""), "E313", "returns nothing"),
    "twice": (
        LOOP.replace("end\n", "end\nbody step\ninput c: f32[4]\nreturn c\nend\n"),
        "E304",
        "defined twice",
    ),
    "operands": (LOOP.replace("scan(c0, xs,", "scan(xs, c0,"), "E301", "`scan` takes"),
    "carry": (LOOP.replace("return d, c", "return xs, c"), "E303", "no value named `xs`"),
    "state": (
        LOOP.replace("  return d, c", "  e = reshape(d, shape=[2, 2])\n  return e, c"),
        "E301",
        "does not give what it carries",
    ),
    "weight": (
        LOOP.replace("  d = add(c, x)", "  weight w: f32[4]\n  d = add(c, w)"),
        "E301",
        "holds a weight",
    ),
    "length": (LOOP.replace("length=3", "length=4"), "E301", "`scan` takes"),
    "bodies": (LOOP.replace('["step"]', '["step", "step"]'), "E301", "has 2 bodies"),
    "condition": (LOOP.replace("scan(", "while_loop(").replace(", length=3", ""), "E301", "1 bod"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_sentence_names_what_is_wrong(name: str):
    text, code, message = WRONG[name]
    with pytest.raises(EqsatError) as e:
        parse_program(text)
    found = {d.code: d.message for d in e.value.diagnostics}
    assert message in found.get(code, str(found))
    assert all(d.span is not None for d in e.value.diagnostics)


def test_what_only_hands_on_is_searched_in_no_time():
    """A branch without an op, or a whole program of that kind: there is nothing to leave out."""
    run = eqsat.optimize(lambda x, y: (y, x), X, X[0], target="avx2", time_limit=0.0)
    assert run.selection is not None and run.selection.cuts == ()
    assert not run.need_schedule().dispatches


def test_what_is_not_proven_of_a_body_is_not_proven_of_the_program():
    run = eqsat.optimize(
        lambda x: jax.lax.fori_loop(0, 8, lambda i, c: jax.numpy.tanh(c), x), X, target="avx512-xla"
    )
    whole = Selection((), (), (("time", GoalResult(800, 800, "search")),), "optimal", candidates=5)
    hoisted: Any = None

    def proven(bound: int, stop: str, cuts: tuple[Cut, ...]) -> Selection:
        goals = (("time", GoalResult(100, bound)), ("memory", GoalResult(9, 9)))
        body = replace(run, selection=Selection((), (), goals, stop, cuts=cuts, candidates=2))
        site = Site(0, 0, Other(hoisted, (body,)), hoisted, (), (), ())
        return Bodies(run.program, (), (site,), {}, True).proven_in(whole)

    assert proven(100, "optimal", ()) == replace(whole, candidates=7)
    cut = proven(40, "time", (Cut("groups", 3, TIME_LIMIT),))
    assert cut.goals == (("time", GoalResult(800, 320)),)
    assert cut.claim == "best found of 7 candidates, 3 places cut"
    assert proven(99, "gap", ()).claim == "gap"
