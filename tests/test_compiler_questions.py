"""What a compiler is asked about, in which order, and how its answers are compared."""

from typing import Any

import jax
from jax import export
from jax.sharding import SingleDeviceSharding

from eqsat.execute.compilers.child import compile_way
from eqsat.lang.programs import parse_program
from eqsat.model.compiled import Figures
from eqsat.model.layout import Border, MemoryOrders, Ordered
from eqsat.model.schedule import Schedule
from eqsat.run.checked import way_of
from eqsat.run.contenders import Contender, diverse


def test_a_kernel_that_moves_as_little_as_one_of_the_other_side_is_no_more_unknown():
    def told(*labels: str) -> Figures:
        return Figures(cycles=90, uncounted=labels)

    plain = told("reshape f32[2048]", "softmax f32[64,64]")
    assert not told("reshape bf16[1,1,2048]").has_more_unknown(plain)
    assert not told("softmax f32[64,64]", "reshape f32[2048]").has_more_unknown(plain)
    assert told("reshape f32[2049]").has_more_unknown(plain)
    assert told("reshape bf16[8]", "reshape bf16[8]").has_more_unknown(plain)
    assert told("copy bf16[8]").has_more_unknown(plain)
    assert told("softmax f32[8,8]").has_more_unknown(plain)  # no move: nothing is known of it
    two = told("reshape f32[100]", "reshape f32[10]")
    assert not told("reshape f32[10]", "reshape f32[99]").has_more_unknown(two)
    assert told("reshape f32[11]", "reshape f32[99]").has_more_unknown(two)


def test_where_a_modules_arguments_and_results_lie():
    x, y, state = (Border("input", i) for i in range(3))
    result = Border("result", 1)
    own = Ordered("x", x, (2, 0, 1), "search", "")
    fixed = Ordered("y", y, (1, 0), "caller", "")
    orders = MemoryOrders((own, fixed), left=(state, result), ties=((2, 0),))
    assert way_of(orders, "", (3, 4, 5)) == ({}, {})
    assert way_of(orders, "plain", (3, 4, 5)) == ({3: [1, 2, 0]}, {})
    assert way_of(orders, "compiler's", (3, 4, 5)) == ({3: "auto"}, {1: "auto"})


def test_arguments_of_a_module_lie_as_they_are_asked_for():

    shape = jax.ShapeDtypeStruct((4, 6), "float32")
    module = export.export(jax.jit(lambda x, y: (x + y.T, y)), platforms=["cpu"])(
        shape, jax.ShapeDtypeStruct((6, 4), "float32")
    )
    here = SingleDeviceSharding(jax.devices("cpu")[0])
    text = compile_way(module, "cpu", here, {"1": [1, 0]}, {"0": [1, 0]})["text"]
    head = text.splitlines()[0].replace(" ", "")
    wanted = "(f32[4,6]{1,0},f32[6,4]{0,1})->(f32[4,6]{0,1},f32[6,4]{1,0})"
    assert wanted in head


def test_programs_that_differ_in_their_contractions_are_asked_about_first():
    selection: Any = None  # is not looked at

    def one(name: str, text: str) -> Contender:
        program = parse_program(text)
        return Contender(name, "near", selection, Schedule(program, (), (), (), ""))

    head = "input a: f32[4, 8]\ninput b: f32[8, 6]\ninput c: f32[6, 5]\n"
    left = head + "return matmul(matmul(a, b), c)\n"
    right = head + "return matmul(a, matmul(b, c))\n"
    moved = (
        head + "return transpose(transpose(matmul(matmul(a, b), c), perm=[1, 0]), perm=[1, 0])\n"
    )
    found = [one("same", left), one("moved", moved), one("other", right), one("again", right)]
    names = [c.name for c in diverse(found, [one("chosen", left)])]
    assert names == ["other", "moved", "same", "again"]
