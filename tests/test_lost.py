"""No column keeps to itself what others need and may not compute again."""

from __future__ import annotations

import eqsat
from eqsat.lang.programs import parse_program

HALVES = """
program halves
input x: f32[64, 64]
weight w: f32[64, 128]
weight c: f32[64, 128]
y = generic(x, w, loops=[64, 128, 64], maps=[[d0, d2], [d2, d1]], body=mul(x0, x1), combine=add)
u = add(y, c)
a = slice(u, start=[0, 0], limit=[64, 64])
b = slice(u, start=[0, 64], limit=[64, 128])
g = tanh(b)
z = mul(a, g)
return z
"""


def test_the_relaxation_does_not_add_up_two_halves():
    found = eqsat.optimize(parse_program(HALVES), target="avx512", goals=["time"]).selection
    assert found.stop == "optimal"
    assert found.goal("time").proof == "relaxation"
