"""Quantised programs written in f32 (QDQ): products of stored integers, scaled behind the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxmodels
import pytest

import eqsat
from eqsat.model.generic import Generic
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.meaning.programs import evaluate_program

RULES = ["default", "algebra/quantised"]


def quantised(x, scale, zero, dtype):
    ends = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x / scale) + zero, ends.min, ends.max).astype(dtype)


def dequantised(q, scale, zero=0):
    return (jnp.asarray(q).astype(jnp.int32) - zero).astype(jnp.float32) * scale


def round_trip(x, scale, zero, dtype):
    return dequantised(quantised(x, scale, zero, dtype), scale, zero)


def integers(rng, *shape):
    return rng.integers(-127, 128, shape).astype(np.int8)


def two_layers(zero, dtype):
    """x @ w1 @ w2 with a ReLU and a bias between them, every value quantised."""
    rng = np.random.default_rng(0)
    weights = [integers(rng, 40, 48), integers(rng, 48, 24)]
    scales = [rng.uniform(0.001, 0.002, w.shape[1]).astype("f4") for w in weights]
    bias = rng.standard_normal(48).astype("f4")

    def function(x):
        y = round_trip(x, 0.02, zero, dtype) @ dequantised(weights[0], scales[0])
        y = round_trip(jax.nn.relu(y + bias), 0.03, 0, jnp.uint8)
        return round_trip(y @ dequantised(weights[1], scales[1]), 0.05, zero, dtype)

    return function, (rng.standard_normal((9, 40)).astype("f4"),), 0.05


def convolution(zero, dtype):
    """3x3 with pads; the filters are on the right of one layout and on the left of the other."""
    rng = np.random.default_rng(0)
    w, scale = integers(rng, 3, 3, 16, 32), rng.uniform(0.001, 0.002, 32).astype("f4")

    def function(x):
        y = jax.lax.conv_general_dilated(
            round_trip(x, 0.02, zero, dtype), dequantised(w, scale), (1, 1), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        return round_trip(y, 0.04, zero, dtype)

    return function, (rng.standard_normal((1, 7, 8, 16)).astype("f4"),), 0.04


CASES = {
    "layers, symmetric": (two_layers, 0, jnp.int8),
    "layers, zero point": (two_layers, 117, jnp.uint8),
    "convolution, zero point": (convolution, 117, jnp.uint8),
}


@pytest.mark.parametrize("case", CASES)
def test_quantised_layers_multiply_bytes(case):
    """All products are of i8 or u8, no f32 is between two of them, and only ties may differ."""
    make, zero, dtype = CASES[case]
    function, given, quantum = make(zero, dtype)
    run = eqsat.optimize(function, *given, target="avx512-vnni", rules=RULES)
    program = run.schedule.program
    products = [n.attr for n in program.nodes if is_product(n.attr)]
    assert products
    for g in products:
        assert set(g.dtypes) <= {"i8", "u8"}, g
    kept = [program.nodes[w].type for d in run.schedule.dispatches for w in d.writes]
    assert {t.dtype for t in kept[:-1]} <= {"i8", "u8", "i32"}
    (wanted,) = evaluate_program(run.program, list(given), run.weights)
    apart = np.abs(np.asarray(run.compile()(*given)) - wanted) / quantum
    assert apart.max() < 1.001
    assert np.mean(apart > 0.5) < 0.01


def test_layers_of_an_exporter_multiply_bytes(tmp_path):
    """Zero points per channel that are all zero are none; those of activations are pads, too."""
    file = str(tmp_path / "block.onnx")
    onnx.save(onnxmodels.qdq_block(32, 14), file)  # of few channels f32 is as quick
    run = eqsat.optimize(file, target="avx512-vnni", rules=RULES, stop_after="schedule")
    products = [n.attr for n in run.schedule.program.nodes if is_product(n.attr)]
    assert len(products) == 2
    assert all(set(g.dtypes) == {"u8", "i8"} for g in products)


def is_product(attr):
    return isinstance(attr, Generic) and contraction_roles(attr) is not None


def test_a_sum_that_may_leave_i32_stays_in_f32():
    """131,073 products of -128 with -128 are more than 2^31."""

    def function(x, w):
        return dequantised(x, 0.5) @ dequantised(w, 0.25)

    def types(depth):
        given = [jax.ShapeDtypeStruct(s, "int8") for s in ((2, depth), (depth, 2))]
        run = eqsat.optimize(function, *given, rules=RULES, stop_after="egraph")
        found = {n.attr.yields[0].dtype for n in run.egraph.nodes if is_product(n.attr)}
        return found

    assert types(131_071) == {"f32", "i32"}
    assert types(131_072) == {"f32"}
