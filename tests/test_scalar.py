"""Scalar functions: NumPy meaning, casts, zero padding and neutral elements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.model.expr import arg, call, cast, const
from eqsat.ops.meaning import scalar


def run(body, *operands):
    return scalar.evaluate_body(body, [np.asarray(o) for o in operands])


@pytest.mark.parametrize("a", [7, -7, 6, -128, 127])
@pytest.mark.parametrize("b", [2, -2, 3, 1])
def test_integer_division_truncates_toward_zero(a, b):
    q = run(call("div", arg(0), arg(1)), np.int8(a), np.int8(b))
    r = run(call("rem", arg(0), arg(1)), np.int8(a), np.int8(b))
    assert q == math.trunc(a / b)
    assert r == int(math.fmod(a, b))
    assert q * b + r == a


def test_integer_division_by_zero_is_xlas():
    zero = np.zeros(2, np.int32)
    x = np.array([5, -5], np.int32)
    assert run(call("div", arg(0), arg(1)), x, zero).tolist() == [-1, -1]
    assert run(call("rem", arg(0), arg(1)), x, zero).tolist() == [5, -5]
    u = np.array([5], np.uint8)
    assert run(call("div", arg(0), arg(1)), u, np.zeros(1, np.uint8)).tolist() == [255]


def test_integers_wrap_and_constants_take_their_type():
    x = np.array([100, -100], np.int8)
    got = run(call("add", arg(0), const(100)), x)
    assert got.dtype == np.int8
    assert got.tolist() == [-56, 0]


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (2.9, "i32", 2), (-2.9, "i32", -2), (300.0, "i8", 127), (-300.0, "u8", 0),
        (math.nan, "i16", 0), (math.inf, "i64", 2**63 - 1), (-math.inf, "i64", -(2**63)),
        (0.5, "bool", True), (0.0, "bool", False), (9.0, "i4", 7),
    ],
)  # fmt: skip
def test_float_casts_truncate_and_saturate(value, dtype, want):
    assert run(cast(arg(0), dtype), np.float64(value)) == want


def test_casts_between_integers_wrap_and_between_floats_do_not_round():
    assert run(cast(arg(0), "i8"), np.int32(300)) == 44
    assert run(cast(arg(0), "i4"), np.int8(9)) == -7
    third = np.float64(1 / 3)
    assert run(cast(cast(arg(0), "bf16"), "f32"), third) == third


def test_rounding_ties():
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994])
    assert run(call("round_even", arg(0)), x).tolist() == [0, 2, 2, 0, -2, 0]
    assert run(call("round_away", arg(0)), x).tolist() == [1, 2, 3, -1, -3, 0]


def test_shifts_beyond_the_width():
    x = np.array([-8, 8], np.int8)
    by = np.array([9, 9], np.int8)
    assert run(call("shift_left", arg(0), arg(1)), x, by).tolist() == [0, 0]
    assert run(call("shift_right_arithmetic", arg(0), arg(1)), x, by).tolist() == [-1, 0]
    one = np.array([1, 1], np.int8)
    assert run(call("shift_right_logical", arg(0), arg(1)), x, one).tolist() == [124, 4]


@settings(max_examples=80, deadline=None)
@given(st.floats(-0.9999999, 0.9999999))
def test_erf_inv_undoes_erf(y):
    x = float(run(call("erf_inv", arg(0)), np.float64(y)))
    assert math.erf(x) == pytest.approx(y, rel=1e-12, abs=1e-300)


def test_erf_inv_at_the_ends():
    got = run(call("erf_inv", arg(0)), np.array([-1.0, 1.0, 1.5]))
    assert got[0] == -np.inf
    assert got[1] == np.inf
    assert np.isnan(got[2])


KEEPS = {
    "relu": (call("max", arg(0), const(0.0)), {0}, True),
    "tanh": (call("tanh", arg(0)), {0}, True),
    "silu": (call("mul", arg(0), call("logistic", arg(0))), {0}, True),
    "gelu": (call("mul", arg(0), call("erfc", call("neg", arg(0)))), {0}, True),
    "sum of zeroed": (call("add", arg(0), arg(1)), {0, 1}, True),
    "cast": (cast(arg(0), "i32"), {0}, True),
    "over a constant": (call("div", arg(0), const(8.0)), {0}, True),
    "same mask": (call("select", arg(1), arg(0), const(0.0)), {0}, True),
    "exp": (call("exp", arg(0)), {0}, False),
    "logistic": (call("logistic", arg(0)), {0}, False),
    "bias": (call("add", arg(0), arg(1)), {0}, False),
    "plus one": (call("add", arg(0), const(1.0)), {0}, False),
    "times anything": (call("mul", arg(0), arg(1)), {0}, False),
    "times infinity": (call("mul", arg(0), const(math.inf)), {0}, False),
    "over anything": (call("div", arg(0), arg(1)), {0}, False),
    "over itself": (call("div", arg(0), arg(0)), {0}, False),
    "clamp beyond zero": (call("clamp", const(1.0), arg(0), const(2.0)), {0}, False),
    "clamp around zero": (call("clamp", const(-1.0), arg(0), const(2.0)), {0}, True),
    "nothing zeroed": (arg(0), set(), False),
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_keeps_zero(name):
    body, zeroed, want = KEEPS[name]
    value = scalar.constant_value(body, dict.fromkeys(zeroed, np.float64(0)))
    assert (value is not None and bool(value == 0)) is want


def test_folding_knows_the_element_type():
    ratio = call("min", call("div", arg(2), call("div", arg(0), arg(1))), arg(3))
    assert np.isnan(scalar.constant_value(ratio, dict.fromkeys(range(4), np.float64(0))))
    assert scalar.constant_value(call("div", arg(0), arg(0)), {0: np.int32(0)}) == -1
    doubled = call("min", call("add", arg(0), arg(0)), const(127))
    assert scalar.constant_value(doubled, {0: np.int8(127)}) == -2  # it wraps before it is compared


REDUCTIONS = [(c, d) for c in ("add", "mul", "max", "min") for d in ("f32", "i8", "u8")]
REDUCTIONS += [(c, d) for c in ("and", "or") for d in ("i8", "u8", "bool")]


@pytest.mark.parametrize(("combine", "dtype"), REDUCTIONS)
def test_neutral_elements_change_nothing(combine, dtype):
    held = scalar.held_dtype(dtype)
    x = np.array([0, 1] if dtype == "bool" else [0, 1, 5, 100]).astype(held)
    start = np.full_like(x, scalar.neutral(combine, dtype))
    assert np.array_equal(run(call(combine, arg(0), arg(1)), x, start), x)


def test_flags_of_the_table_say_what_the_functions_do():
    rng = np.random.default_rng(0)
    for name, f in scalar.FUNCTIONS.items():
        integer = name in scalar.INTEGER_ONLY
        x = [rng.integers(0, 5, 20) if integer else rng.uniform(0.1, 0.9, 20) for _ in range(3)]
        if name == "select":
            x[0] = x[0] > 0.5
        got = run(call(name, *(arg(i) for i in range(f.arity))), *x[: f.arity])
        assert (got.dtype == np.bool_) == (f.result == "bool"), name
        if f.arity == 2:
            same = np.array_equal(got, run(call(name, arg(1), arg(0)), *x[:2]))
            assert same == f.commutative, name


def test_result_dtype():
    assert scalar.result_dtype(call("add", arg(0), const(1)), ["i8"]) == "i8"
    assert scalar.result_dtype(call("lt", arg(0), arg(0)), ["f32"]) == "bool"
    assert scalar.result_dtype(call("select", arg(0), arg(1), const(0.0)), ["bool", "f16"]) == "f16"
    assert scalar.result_dtype(call("mul", cast(arg(0), "f32"), const(2.0)), ["bf16"]) == "f32"
    assert scalar.result_dtype(const(1.0), []) is None
    with pytest.raises(ValueError, match="f16 and f32"):
        scalar.result_dtype(call("add", arg(0), arg(1)), ["f32", "f16"])
