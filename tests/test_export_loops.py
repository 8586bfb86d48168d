"""Loops and branches in ONNX: onnxruntime computes what the reference does, eqsat reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx_oracle
import pytest
from exports import check
from jax import lax
from seeds import one_in

import eqsat
from eqsat.execute.draw import random_inputs
from eqsat.export.write import export
from eqsat.frontends.jaxpr import trace
from eqsat.model.control import controls
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_program

F32, I32 = "float32", "int32"


def decayed(h: Any, x: Any) -> Any:
    h = 0.5 * h + jnp.tanh(x)
    return h, h * 2


def cell(x: Any, w: Any, u: Any) -> Any:
    """A GRU: its weights are read from around the body."""

    def step(h: Any, row: Any) -> Any:
        (r, z, n), (ur, uz, un) = jnp.split(row @ w, 3, -1), jnp.split(h @ u, 3, -1)
        z = jax.nn.sigmoid(z + uz)
        h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + ur) * un) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], u.shape[0])), x)


def newton(x: Any, most: Any) -> Any:
    def going(s: Any) -> Any:
        return (s[0] < most) & (jnp.abs(s[1] * s[1] - x).max() > 1e-3)

    return lax.while_loop(going, lambda s: (s[0] + 1, 0.5 * (s[1] + x / s[1])), (0, x))


def switched(i: Any, x: Any) -> Any:
    return lax.switch(i, [lambda x: (x, x + 1), lambda x: (x * 2, x), lambda x: (-x, x)], x)


def nested(x: Any, w: Any) -> Any:
    """A branch and a loop in each step of a loop."""

    def step(h: Any, row: Any) -> Any:
        h = lax.cond(row.sum() > 0, lambda h: h @ w, lambda h: h - row, h)
        h, rows = lax.scan(lambda a, b: (a + b, a * b), h, jnp.stack([row, h]))
        return h, rows.sum(0)

    return lax.scan(step, x[0], x)


def flags(x: Any, h: Any) -> Any:
    """Carried values of other types, one of them passed on as it is; a result of no operand."""

    def step(state: Any, row: Any) -> Any:
        even, count, kept = state
        return (~even, count + 1, kept), (even, count, row, kept, jnp.ones(2))

    return lax.scan(step, (jnp.array(True), jnp.int8(125), h), x)


def until(x: Any, h: Any) -> Any:
    """A while loop in each step of a loop."""

    def step(h: Any, row: Any) -> Any:
        count, y = lax.while_loop(
            lambda s: (s[1].sum() < 10) & (s[0] < 5), lambda s: (s[0] + 1, s[1] + row), (0, h)
        )
        return y * 0.1, count

    return lax.scan(step, h, x)


# function, shapes of its arguments, the ops of control it must become
CASES: dict[str, tuple[Callable[..., Any], list[tuple[tuple[int, ...], str]], set[str]]] = {
    "scan": (lambda x, h: lax.scan(decayed, h, x), [((6, 4), F32), ((4,), F32)], {"Scan"}),
    "from the last": (
        lambda x, h: lax.scan(decayed, h, x, reverse=True), [((6, 4), F32), ((4,), F32)], {"Scan"},
    ),
    "nothing stacked": (
        lambda h: lax.scan(lambda h, _: (h * 0.9, h), h, None, 12, reverse=True),
        [((4,), F32)], {"Loop"},
    ),
    "no step": (lambda x, h: lax.scan(decayed, h, x), [((0, 4), F32), ((4,), F32)], set()),
    "gru": (cell, [((5, 2, 3), F32), ((3, 12), F32), ((4, 12), F32)], {"Scan"}),
    "while": (newton, [((5,), F32), ((), I32)], {"Loop"}),
    "branches": (switched, [((), I32), ((3,), F32)], {"If"}),
    "flags": (flags, [((5, 4), F32), ((4,), F32)], {"Scan"}),
    "until": (until, [((3, 4), F32), ((4,), F32)], {"Scan", "Loop"}),
    "nested": (nested, [((4, 3), F32), ((3, 3), F32)], {"Scan", "If"}),
}  # fmt: skip


def program_of(name: str) -> Program:
    function, shapes, _ = CASES[name]
    return trace(function, tuple(jax.ShapeDtypeStruct(s, t) for s, t in shapes)).program


def every_node(graph: Any) -> Iterator[Any]:
    for n in graph.node:
        yield n
        for a in n.attribute:
            yield from every_node(a.g)


def inputs_of(program: Program, number: int) -> list[Any]:
    """Positive floats; whole numbers from -1 on, so that an index may lie outside its branches."""
    given = random_inputs(program, np.random.default_rng(number))
    found = [np.abs(x) + np.float32(0.5) if x.dtype.kind == "f" else x for x in given]
    return [x if x.dtype.kind == "f" else np.asarray(5 * number - 1, x.dtype) for x in found]


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_loops_and_branches_compute_the_same_there_and_back(name: str, tmp_path: Path) -> None:
    program = program_of(name)
    data = export(program, "onnx", {}, {}).data
    kinds = {n.op_type for n in every_node(onnx.load_from_string(data).graph)}
    assert kinds & {"Scan", "Loop", "If"} == CASES[name][2]
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    back = eqsat.read(str(path))
    assert bool(controls(back.program)) == bool(CASES[name][2])
    for number in range(3):
        inputs = inputs_of(program, number)
        wanted = evaluate_program(program, inputs, {})
        check(program, onnx_oracle.run(data, inputs), wanted, 1e-5)
        check(program, evaluate_program(back.program, inputs, back.weights), wanted, 1e-5)


def test_a_searched_body_is_written_as_it_was_chosen() -> None:
    function, shapes, _ = CASES["gru"]
    arguments = [np.ones(s, t) * np.float32(0.1) for s, t in shapes]
    rules = ("layout/contract", "layout/pack")
    run = eqsat.optimize(function, *arguments, target="avx512-xla", rules=rules)
    assert run.schedule is not None
    assert any(a.schedules for _, a in controls(run.schedule.program))
    inputs = inputs_of(run.program, 1)
    found = onnx_oracle.run(run.export("onnx").data, inputs)
    check(run.program, found, evaluate_program(run.program, inputs, {}), 1e-5)


def test_what_a_body_holds_that_onnx_has_not_is_listed(tmp_path: Path) -> None:
    def sorts(h: Any, row: Any) -> Any:
        return h + jnp.sort(row), h

    rows = jax.ShapeDtypeStruct((3, 4), F32)
    program = trace(lambda x: lax.scan(sorts, x[0], x), (rows,)).program
    with pytest.raises(eqsat.EqsatError, match=r"1 of \d+ ops .*a JAX primitive kept whole"):
        export(program, "onnx", {}, {})
    model = onnx.load_from_string(export(program, "onnx", {}, {}, partial=True).data)
    assert [n.op_type for n in every_node(model.graph) if n.domain] == ["sort"]
    onnx.checker.check_model(model)
