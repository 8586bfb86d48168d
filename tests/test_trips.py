"""While loops with a known count are priced with it, however large it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnxmodels import Writer, value

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.control import EXACT, bounded, controls
from eqsat.ops.spelling.passes import canonical
from eqsat.report.finished import stop_warnings

X = jax.ShapeDtypeStruct((8, 8), "float32")
LOOP = """input x: f32[4]
start = fill(value={start}) : {dtype}[]
body condition
  input i: {dtype}[]
  input x: f32[4]
  go = generic(i, loops=[], maps=[[]], body={op}({first}, {second})) : bool[]
  return go
end
body step
  input i: {dtype}[]
  input x: f32[4]
  next = generic(i, loops=[], maps=[[]], body=add(x0, {step})) : {dtype}[]
  y = generic(x, loops=[4], maps=[[d0]], body=mul(x0, 2.0)) : f32[4]
  return next, y
end
w = while_loop(start, x, consts=0, carries=2, bodies=["condition", "step"]) : {dtype}[], f32[4]
y = result(w, index=1) : f32[4]
return y
"""
HOLDS = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def trips(source: eqsat.Source | Any) -> list[int | None]:
    program = source.program if hasattr(source, "program") else source
    return [a.trips for _, a in controls(canonical(program))]


def traced(function: Any) -> eqsat.Source:
    return eqsat.optimize(function, X, stop_after="program", target="reference").source


def counted(condition: Any, step: Any, start: Any) -> Any:
    def function(x: Any) -> Any:
        state = jax.lax.while_loop(
            lambda s: condition(*s), lambda s: (*step(*s[:-1]), s[-1] @ s[-1]), (*start(x), x)
        )
        return state[-1]

    return function


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["i8", "u8", "i32"]), st.sampled_from(list(HOLDS)), st.integers(-20, 20),
    st.integers(-20, 127), st.integers(-9, 9), st.booleans(),
)  # fmt: skip
def test_the_count_is_that_of_the_loop(
    dtype: str, op: str, start: int, bound: int, step: int, mirrored: bool
) -> None:
    unsigned = dtype == "u8"
    start, bound = (abs(v) if unsigned else v for v in (start, bound))
    names = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
    first, second = ("x0", str(bound)) if not mirrored else (str(bound), "x0")
    text = LOOP.format(
        dtype=dtype, op=names[op] if mirrored else op, start=start, step=step, first=first,
        second=second,
    )  # fmt: skip
    (found,) = trips(parse_program(text))
    low, high = (0, 255) if unsigned else (-128, 127)
    i, wanted = start, 0
    while HOLDS[op](i, bound) and wanted < 400:
        i, wanted = i + step, wanted + 1
        if dtype != "i32" and not low <= i <= high:
            assert found is None  # the counter wraps round
            return
    assert found == (wanted if wanted < 400 else None)


@pytest.mark.parametrize(
    ("condition", "step", "start", "wanted"),
    [
        (lambda i, x: i < 10, lambda i: (i + 1,), lambda x: (jnp.int32(0),), 10),
        (lambda i, go, x: (i < 10) & go, lambda i, go: (i + 1, go),
         lambda x: (jnp.int32(4), jnp.bool_(True)), 6),
        (lambda i, go, x: (i < 10) & go, lambda i, go: (i + 1, i > 2),
         lambda x: (jnp.int32(4), jnp.bool_(True)), None),
        (lambda i, j, x: (i < 10) & (j > 0), lambda i, j: (i + 1, j - 2),
         lambda x: (jnp.int32(0), jnp.int32(7)), 4),
        (lambda i, x: (i < 10) & (x[0, 0] < 3), lambda i: (i + 1,), lambda x: (jnp.int32(0),),
         None),
        (lambda i, x: i < 10, lambda i: (i * 2,), lambda x: (jnp.int32(1),), None),
        (lambda i, x: i < 10, lambda i: (i + 1,), lambda x: (x[0, 0].astype("int32"),), None),
        (lambda i, x: i != 10, lambda i: (i + 1,), lambda x: (jnp.int32(0),), None),
    ],
)  # fmt: skip
def test_loops_of_jax(condition: Any, step: Any, start: Any, wanted: int | None) -> None:
    assert trips(traced(counted(condition, step, start))) == [wanted]


def test_a_known_count_is_priced_and_the_targets_guess_is_not() -> None:
    known = counted(lambda i, x: i < 50, lambda i: (i + 1,), lambda x: (jnp.int32(0),))
    often, again = (
        eqsat.optimize(known, X, settings=(f"trips={n}",), verify=n == 1, target="reference")
        for n in (1, 9)
    )
    assert often.schedule is not None and again.schedule is not None
    (loop,) = often.schedule.held
    *condition, body = loop.schedules  # a loop that only counts is a scan, which asks nothing
    asked = sum(c.time_ps for c in condition)
    inside = 50 * (asked + body.time_ps) + asked
    assert often.schedule.time_ps == again.schedule.time_ps >= inside
    assert often.schedule.bytes_moved >= 50 * body.bytes_moved
    assert often.verification is not None and often.verification.ok


@pytest.mark.parametrize("count", [10**7, 2**31 - 1])
def test_a_price_that_no_solver_can_add_up_is_bounded(count: int) -> None:
    """At 2^53 ps the solver's sums are no longer exact."""
    wide = np.zeros((512, 512), "f4")

    def function(x: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda i, c: jnp.tanh(c @ wide), x)

    run = eqsat.optimize(function, jax.ShapeDtypeStruct((512, 512), "float32"), target="avx512-xla")
    s = run.summary()
    assert EXACT / 1e6 < s["goals"]["time_us"]["value"] < 2.1 * EXACT / 1e6
    assert s["goals"]["time_us"]["value"] <= s["baseline"]["time_us"]
    assert list(s["loops"].values()) == [{"trips": count, "bounded": True}]
    assert [w.code for w in stop_warnings(run)] == ["E409"]


@given(st.integers(0, 2**70), st.integers(0, 2**70))
def test_bounded_keeps_the_order(a: int, b: int) -> None:
    assert bounded(a) <= bounded(b) if a <= b else bounded(a) >= bounded(b)
    assert bounded(a) <= 2 * EXACT
    assert a > EXACT or bounded(a) == a


def test_an_onnx_loop_of_2_to_the_62_trips_is_searched(tmp_path: Path) -> None:
    w = Writer()
    count = w.constant("trips", np.asarray(2**62, np.int64))
    nodes = [
        helper.make_node("Identity", ["cond_in"], ["cond_out"]),
        helper.make_node("Mul", ["s_in", "x"], ["s_out"]),
    ]
    inputs = [
        value("number", TensorProto.INT64), value("cond_in", TensorProto.BOOL),
        value("s_in", TensorProto.FLOAT),
    ]  # fmt: skip
    outputs = [value("cond_out", TensorProto.BOOL), value("s_out", TensorProto.FLOAT)]
    y = w.op(
        "Loop", "/Loop", count, "", "x0", body=helper.make_graph(nodes, "body", inputs, outputs)
    )
    model = w.model(
        [value("x0", TensorProto.FLOAT), value("x", TensorProto.FLOAT)],
        [helper.make_empty_tensor_value_info(y)],
    )
    path = tmp_path / "loop.onnx"
    path.write_bytes(model.SerializeToString())
    source = eqsat.read(str(path))
    assert trips(source) == [2**31 - 1]  # what a counter of 32 bits reaches
    run = eqsat.optimize(source, target="reference")
    assert run.schedule is not None
    assert run.schedule.time_ps > 2**31
