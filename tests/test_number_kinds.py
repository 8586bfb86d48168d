"""What is true of whole numbers and not of floats, of finite floats and not of NaN and infinity.

The hunt draws integers over their full range, bools, NaN, infinities and -0.0 for every rule that
is not tagged `inexact`; here whole sets are held to it, with what is done before a search.
"""

from __future__ import annotations

import pytest

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.ops.spelling.passes import canonical
from eqsat.saturate import saturate

NEVER, FULL, ALWAYS = (), ("full",), ("full", "exact")
OF_ONE = "generic(x, loops=[6], maps=[[d0]], body={})"
TABLE = [
    # element type, body, body that it might be, with which sets it is that
    ("f32", "mul(x0, 0.0)", "0.0", NEVER),  # of NaN and infinity it is NaN
    ("i32", "mul(x0, 0)", "0", ALWAYS),
    ("f32", "sub(x0, x0)", "0.0", NEVER),
    ("i32", "sub(x0, x0)", "0", ALWAYS),
    ("f32", "div(x0, x0)", "1.0", NEVER),
    ("i32", "div(x0, x0)", "1", NEVER),  # 0 / 0 is -1
    ("f32", "add(x0, 0.0)", "x0", FULL),  # -0.0 + 0.0 is 0.0
    ("i32", "add(x0, 0)", "x0", ALWAYS),
    ("f32", "mul(x0, 1.0)", "x0", ALWAYS),
    ("i8", "div(mul(x0, 2), 2)", "x0", NEVER),  # 100 * 2 wraps
    ("f32", "div(mul(x0, 2.0), 2.0)", "x0", NEVER),  # the largest float times 2 is infinite
    ("f32", "sub(add(x0, 1.0), 1.0)", "x0", NEVER),
    ("f32", "select(eq(x0, x0), 1.0, 0.0)", "1.0", NEVER),  # NaN is not itself
    ("f32", "cast(cast(x0, bf16), f32)", "x0", NEVER),
    ("i32", "cast(cast(x0, i8), i32)", "x0", NEVER),
    ("bool", "and(x0, not(x0))", "x0", NEVER),
]
SUMS = [
    # element type, how it is reduced, with which sets two steps are one
    ("f32", "add", FULL), ("f32", "max", ALWAYS), ("i32", "add", ALWAYS), ("i8", "mul", ALWAYS),
    ("bool", "or", ALWAYS), ("f32", "mul", FULL),
]  # fmt: skip


def are_one(text: str, rules: str) -> bool:
    """Whether both results of a program are one class."""
    program = canonical(parse_program(text))
    graph = saturate(program, eqsat.rules(rules), eqsat.target("reference"))
    assert graph.stop == "saturated"
    one, two = (graph.values[r] for r in program.results)
    return one == two


@pytest.mark.parametrize(("dtype", "body", "other", "sets"), TABLE)
def test_bodies(dtype: str, body: str, other: str, sets: tuple[str, ...]) -> None:
    result = "x" if other == "x0" else "z"
    text = f"""program p
input x: {dtype}[6]
y = {OF_ONE.format(body)} : {dtype}[6]
z = {OF_ONE.format(other)} : {dtype}[6]
return y, {result}
"""
    assert tuple(s for s in ALWAYS if are_one(text, s)) == sets


@pytest.mark.parametrize(("dtype", "combine", "sets"), SUMS)
def test_sums_of_sums(dtype: str, combine: str, sets: tuple[str, ...]) -> None:
    text = f"""program p
input x: {dtype}[4, 6]
a = generic(x, loops=[4, 6], maps=[[d0, d1]], body=x0, combine={combine}, rank=1) : {dtype}[4]
y = generic(a, loops=[4], maps=[[d0]], body=x0, combine={combine}, rank=0) : {dtype}[]
z = generic(x, loops=[4, 6], maps=[[d0, d1]], body=x0, combine={combine}, rank=0) : {dtype}[]
return y, z
"""
    assert tuple(s for s in ALWAYS if are_one(text, s)) == sets
