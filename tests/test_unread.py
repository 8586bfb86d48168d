"""Values are cut to what is read of them before the search: less is computed, nothing changes."""

from __future__ import annotations

import math

import pytest
from hunts.equal import are_equal
from hunts.small import small_program

from eqsat.lang.programs import parse_program
from eqsat.model.generic import Generic
from eqsat.model.program import Program
from eqsat.ops.spelling.chains import canonical
from eqsat.ops.spelling.normal import normal
from eqsat.ops.spelling.unread import without_waste

SUM = "body=mul(x0, x1), combine=add, rank="
# lines of a program, and the shape of every loop nest that is left
CUT = {
    "last row": (
        ["input x: f32[8, 6]", "input w: f32[6, 4]", "y = relu(matmul(x, w))",
         "z = slice(y, start=[7, 0], limit=[8, 4])"],
        {(1, 4)},
    ),
    "last token of rows joined": (
        ["input x: f32[6, 5]", "input w: f32[5, 4]", "y = matmul(x, w)",
         "r = reshape(y, shape=[2, 3, 4])", "z = slice(r, start=[0, 2, 0], limit=[2, 3, 4])"],
        {(2, 4)},
    ),
    "two overlapping parts": (
        ["input x: f32[20, 6]", "input w: f32[6, 4]", "y = matmul(x, w)",
         "u = slice(y, start=[2, 0], limit=[8, 4])", "v = slice(y, start=[4, 0], limit=[10, 4])",
         "z = concat(exp(u), tanh(v), axis=0)"],
        {(8, 4), (6, 4)},
    ),
    "every third": (
        ["input x: f32[12, 6]", "input w: f32[6, 4]", "y = transpose(matmul(x, w), perm=[1, 0])",
         "z = slice(y, start=[0, 1], limit=[4, 12], stride=[1, 3])"],
        {(4, 4)},
    ),
    "a window": (
        ["input x: f32[2, 20]", "input w: f32[3, 2, 3]",
         f"y = generic(pad(x, low=[0, 1], high=[0, 1], value=0.0), w, loops=[3, 20, 2, 3], "
         f"maps=[[d2, d1 + d3], [d0, d2, d3]], {SUM}2)",
         "z = slice(y, start=[0, 0], limit=[3, 4])"],
        {(3, 4)},
    ),
    "one of two joined": (
        ["input x: f32[4, 6]", "input y: f32[4, 6]", "input w: f32[6, 4]",
         "c = concat(exp(x), matmul(y, w), axis=1)", "z = slice(c, start=[1, 1], limit=[3, 5])"],
        {(2, 4)},
    ),
    "rows that a gather picks of some columns": (
        ["input x: f32[9, 12]", "input i: i32[5]", "g = gather(exp(x), i, axis=0)",
         "z = slice(g, start=[0, 0], limit=[2, 3])"],
        {(9, 3)},
    ),
}  # fmt: skip


def read(lines: list[str]) -> Program:
    return parse_program("\n".join(("program p", *lines, "return z")), "p.eqs")


@pytest.mark.parametrize("name", CUT)
def test_values_are_cut_to_what_is_read(name: str) -> None:
    lines, shapes = CUT[name]
    program = read(lines)
    found = without_waste(program)
    found.verify()
    assert are_equal(program, found)
    generics = [n for n in found.nodes if isinstance(n.attr, Generic)]
    assert {n.type.shape for n in generics} <= shapes
    assert work(found) < work(program)
    assert without_waste(found) == found


def work(program: Program) -> int:
    return sum(math.prod(n.attr.sizes) for n in program.nodes if isinstance(n.attr, Generic))


KEPT = {
    "all parts": (
        "q = slice(y, start=[0, 0], limit=[10, 4])", "k = slice(y, start=[10, 0], limit=[20, 4])",
        "z = concat(exp(q), tanh(k), axis=0)",
    ),
    "nearly all": ("z = slice(y, start=[1, 0], limit=[20, 4])",),
    "a part of what is returned": (
        "z = concat(y, slice(y, start=[0, 0], limit=[2, 4]), axis=0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_is_read_stays(name: str) -> None:
    program = read(["input x: f32[20, 6]", "input w: f32[6, 4]", "y = matmul(x, w)", *KEPT[name]])
    assert without_waste(program) == program


@pytest.mark.parametrize("seed", range(0, 120, 4))
def test_random_programs_compute_the_same(seed: int) -> None:
    program = normal(small_program(seed))
    found = without_waste(program)
    found.verify()
    if max(t.size for n in found.nodes for t in n.types) < 20_000:
        assert are_equal(program, found)
    assert canonical(canonical(program)) == canonical(program)
