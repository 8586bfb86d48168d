"""What a dispatch costs does not depend on which of its results is called its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

import eqsat
from eqsat.extract.check import check
from eqsat.lang.programs import parse_program

SOFTMAX = """program softmax
input x: f32[{shape}]
m = generic(x, loops=[{shape}], maps=[[d0, d1]], body=x0, combine=max, rank=1)
e = generic(x, m, loops=[{shape}], maps=[[d0, d1], [d0]], body=exp(sub(x0, x1)))
{turned}t = generic({summed}, loops=[{shape}], maps=[{map}], body=x0, combine=add, rank=1)
y = generic(e, t, loops=[{shape}], maps=[[d0, d1], [d0]], body=div(x0, x1))
return y
"""
IN_TWO_STEPS = """program softmax
input x: f32[64, 64]
m = generic(x, loops=[64, 64], maps=[[d0, d1]], body=x0, combine=max, rank=1)
c = generic(x, m, loops=[64, 64], maps=[[d1, d0], [d1]], body=sub(x0, x1))
u = transpose(c, perm=[1, 0])
e = generic(u, loops=[64, 64], maps=[[d0, d1]], body=exp(x0))
t = generic(e, loops=[64, 64], maps=[[d0, d1]], body=x0, combine=add, rank=1)
y = generic(e, t, loops=[64, 64], maps=[[d0, d1], [d0]], body=div(x0, x1))
return y
"""
PLAIN = {"turned": "", "summed": "e", "map": "[d0, d1]"}
TURNED = {"turned": "u = transpose(e, perm=[1, 0])\n", "summed": "u", "map": "[d1, d0]"}


def searched(text: str, *settings: str) -> eqsat.Run:
    return eqsat.optimize(parse_program(text), target="avx512-xla", settings=settings)


def test_all_that_is_written_hides_behind_arithmetic():
    """A matmul long enough to hide the write of its raw result, which is read outside as well."""
    text = (
        "input a: f32[64, 512]\ninput b: f32[512, 64]\ny = matmul(a, b)\nz = tanh(y)\nreturn y, z\n"
    )
    run = searched(text)
    assert run.selection is not None
    (both,) = run.selection.groups
    assert len(both.writes) == 2
    alone = searched(text.replace("return y, z", "return z")).selection
    assert alone is not None
    assert both.time_ps == alone.groups[0].time_ps
    assert run.egraph is not None
    dearer = replace(both, time_ps=both.time_ps + 1)
    faults = check(run.egraph, run.target, replace(run.selection, groups=(dearer,)))
    assert any("takes" in f for f in faults)


@pytest.mark.parametrize("shape", ["64, 64", "256, 384"])
def test_what_is_computed_again_does_not_depend_on_the_spelling(shape: str):
    """A softmax: its exponentials are cheap, however the second use of them is written."""
    goals = [
        [g.value for _, g in searched(SOFTMAX.format(shape=shape, **how)).selection.goals]
        for how in (PLAIN, TURNED)
    ]
    assert goals[0] == goals[1]
    banned = searched(SOFTMAX.format(shape=shape, **PLAIN), "fusion.clone=[fill]").selection
    assert banned.goal("memory").value >= goals[0][1]


def test_a_chain_of_cheap_ops_is_as_cheap_as_one():
    """The difference below a transposed map has one reader, which two others need."""
    plain = searched(SOFTMAX.format(shape="64, 64", **PLAIN)).selection
    split = searched(IN_TWO_STEPS).selection
    assert [g.value for _, g in split.goals] == [g.value for _, g in plain.goals]
