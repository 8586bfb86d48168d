"""Loops and branches of MLIR: what an export writes is read back as the same program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import one_in

pytest.importorskip("iree.compiler")

import eqsat
from eqsat.model.control import controls
from eqsat.model.diag import EqsatError
from eqsat.ops.meaning.programs import evaluate_program

STACK, STATE = np.ones((5, 4, 3), "f4"), np.ones((4, 3), "f4")
TABLE = np.arange(600, dtype="f4").reshape(50, 4, 3) / 600  # too large to be written in place


def running(x: Any, h: Any) -> Any:
    def step(h: Any, t: Any) -> Any:
        h = jnp.tanh(h * 0.5 + t)
        return h, (h * 2, h + t)

    return jax.lax.scan(step, h, x)


def backwards(x: Any, h: Any) -> Any:
    return jax.lax.scan(lambda h, t: (h * 0.5 + t, h), h, x, reverse=True)


def of_a_table(x: Any, h: Any) -> Any:
    return jax.lax.scan(lambda h, t: (h @ TABLE[3].T @ TABLE[7] + t, h.sum()), h, x)


def counted(x: Any, h: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, s: s * 1.5 + i, h)


def until(x: Any, h: Any) -> Any:
    step = (lambda s: (s[0] < 7) & (s[1].sum() < 50), lambda s: (s[0] + 1, s[1] * 1.5 + x[0]))
    return jax.lax.while_loop(*step, (0, h))


def chosen(x: Any, h: Any) -> Any:
    number = (x[0, 0, 0] * 3).astype(jnp.int32)
    return jax.lax.switch(number, [lambda y: y * 2, jnp.sin, lambda y: y - x[1]], h)


def nested(x: Any, h: Any) -> Any:
    def outer(h: Any, t: Any) -> Any:
        inner = jax.lax.fori_loop(0, 3, lambda i, s: s + t * i, h)
        return jax.lax.cond(inner.sum() > 3, lambda y: y - 1, lambda y: y * 2, inner), inner

    return jax.lax.scan(outer, h, x)


@pytest.mark.parametrize(
    "function", one_in(3, [nested, running, backwards, until, of_a_table, counted, chosen])
)
def test_an_exported_loop_is_read_back_as_the_same_function(
    function: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "loop.mlir"
    run = eqsat.optimize(function, STACK, STATE, target="reference", time_limit=20)
    run.export("mlir", path)
    back = eqsat.read(str(path))
    assert controls(back.program) and len(back.program.inputs) == len(run.program.inputs)
    rng = np.random.default_rng(0)
    for _ in range(4):
        given = [rng.standard_normal(run.program.leaf(i).type.shape).astype("f4")
                 for i in run.program.inputs]  # fmt: skip
        wanted = evaluate_program(run.program, given, dict(run.weights))
        found = evaluate_program(back.program, given, dict(back.weights))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


# ---- forms that others write ---------------------------------------------------------------------
INLINE = """
func.func @f(%x: tensor<6x4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<6x4xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant {step} : index
  %c6 = arith.constant {end} : index
  %e = tensor.empty() : tensor<6x4xf32>
  %r:2 = scf.for %i = %c0 to %c6 step %c1 iter_args(%a = %h, %o = %e)
      -> (tensor<4xf32>, tensor<6x4xf32>) {{
    %s = tensor.extract_slice %x[{place}, 0] [1, 4] [1, 1] : tensor<6x4xf32> to tensor<4xf32>
    %n = arith.addf %a, %s : tensor<4xf32>
    %p = tensor.insert_slice %n into %o[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<6x4xf32>
    scf.yield %n, %p : tensor<4xf32>, tensor<6x4xf32>
  }}
  return %r#0, %r#1 : tensor<4xf32>, tensor<6x4xf32>
}}
"""
WHILE = """
func.func @f(%h: tensor<4xf32>) -> tensor<4xf32> {
  %r = scf.while (%a = %h) : (tensor<4xf32>) -> tensor<4xf32> {
    %c0 = arith.constant 0 : index
    %v = tensor.extract %a[%c0] : tensor<4xf32>
    %c = arith.constant 5.0 : f32
    %g = arith.cmpf olt, %v, %c : f32
    %b = arith.addf %a, %a : tensor<4xf32>
    scf.condition(%g) PASSED : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    %b = arith.addf %a, %a : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""


def read(text: str, tmp_path: Path) -> Any:
    path = tmp_path / "f.mlir"
    path.write_text(text, encoding="utf-8")
    return eqsat.read(str(path)).program


def test_a_loop_with_its_body_in_place_is_a_scan(tmp_path: Path) -> None:
    program = read(INLINE.format(step=1, end=6, place="%i"), tmp_path)
    ((_, attr),) = controls(program)
    assert (attr.op, attr.consts, attr.carries, attr.length) == ("scan", 0, 1, 6)
    x = np.arange(24, dtype="f4").reshape(6, 4)
    last, all_ = evaluate_program(program, [x, np.zeros(4, "f4")], {})
    np.testing.assert_array_equal(all_, np.cumsum(x, 0))
    np.testing.assert_array_equal(last, x.sum(0))


def test_a_while_loop_with_its_body_in_place(tmp_path: Path) -> None:
    program = read(WHILE.replace("PASSED", "%a"), tmp_path)
    (found,) = evaluate_program(program, [np.ones(4, "f4")], {})
    np.testing.assert_array_equal(found, np.full(4, 8, "f4"))


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (INLINE.format(step=2, end=6, place="%i"), "E375", "not one after another"),
        (INLINE.format(step=1, end=4, place="%i"), "E375", "4 steps over slices of 6"),
        (INLINE.format(step=1, end=6, place="%c0"), "E375", ""),
        (WHILE.replace("PASSED", "%b"), "E375", "hands on other values"),
    ],
)
def test_what_no_program_says_is_refused_with_its_place(
    text: str, code: str, said: str, tmp_path: Path
) -> None:
    if not said:  # a slice at a fixed place is no slice of the loop's: it is read as it is
        ((_, attr),) = controls(read(text, tmp_path))
        assert attr.consts == 1
        return
    with pytest.raises(EqsatError) as error:
        read(text, tmp_path)
    (found,) = error.value.diagnostics
    assert (found.code, said in found.message) == (code, True), found.message
    assert found.span is not None
