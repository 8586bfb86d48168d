"""Scalar bodies: what drops out keeps every bit, and linear forms mean the body."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.tensor import DTYPES
from eqsat.ops.algebra.linear import affine_in, factors, fold_scale, terms
from eqsat.ops.algebra.simplify import keeps_values, simplified
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.meaning.scalar import evaluate_body, result_dtype


# ---- scalar bodies -------------------------------------------------------------------------------
def body(rng: Random, depth: int, operands: int, functions: list[str]) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.3:
            return const(rng.choice([0.0, -0.0, 1.0, -1.0, 2.5]))
        return arg(rng.randrange(operands))
    fn = rng.choice(functions)
    arity = {"neg": 1, "abs": 1, "cast": 1, "floor": 1}.get(fn, 2)
    args = [body(rng, depth - 1, operands, functions) for _ in range(arity)]
    if fn == "cast":
        return cast(args[0], "f64") if args[0].operands() else args[0]
    return call(fn, *args)


SPECIAL = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 1e300, 5e-324, 3.25]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    nan = np.isnan(a) & np.isnan(b)
    return bool(np.all(nan | ((a == b) & (np.signbit(a) == np.signbit(b)))))


def test_simplification_keeps_every_bit():
    names = ["add", "sub", "mul", "div", "max", "min", "neg", "neg", "abs", "cast", "floor"]
    rng, taken = Random(3), 0
    xs = [np.array(v) for v in np.meshgrid(*[SPECIAL] * 3)]
    for _ in range(1500):
        e = body(rng, rng.randint(1, 4), 3, names)
        if not e.operands():
            continue
        small = simplified(e, ("f64",) * 3)
        taken += small != e
        old, new = (np.broadcast_to(evaluate_body(x, xs), xs[0].shape) for x in (e, small))
        assert same_bits(old, new), (str(e), str(small))
    assert taken > 300


@pytest.mark.parametrize(
    ("text", "small"),
    [
        (call("mul", arg(0), const(1.0)), arg(0)),
        (call("add", arg(0), const(-0.0)), arg(0)),
        (call("add", arg(0), const(0.0)), None),  # -0.0 + 0.0 is 0.0
        (call("sub", arg(0), const(0.0)), arg(0)),
        (call("mul", arg(0), const(0.0)), None),  # 0 · NaN is NaN
        (call("max", call("max", arg(0), const(0.0)), const(0.0)), call("max", arg(0), const(0.0))),
        (call("exp", call("log", arg(0))), None),
        (cast(cast(arg(0), "f64"), "f32"), arg(0)),
        (cast(cast(arg(0), "f16"), "f32"), None),
        (cast(cast(arg(0), "i32"), "f32"), None),
    ],
)
def test_what_goes_and_what_stays(text: Expr, small: Expr | None):
    assert simplified(text, ("f32",)) == (text if small is None else small)


def test_integers_have_one_zero():
    assert simplified(call("add", arg(0), const(0)), ("i32",)) == arg(0)
    assert simplified(call("add", call("mul", arg(0), const(0)), arg(1)), ("i32",) * 2) == arg(1)
    assert simplified(cast(cast(arg(0), "i32"), "i8"), ("i8",)) == arg(0)
    assert simplified(cast(cast(arg(0), "i8"), "i32"), ("i32",)) != arg(0)


WHOLE = [
    call("mul", arg(0), const(0)), call("and", arg(0), const(0)), call("sub", arg(0), arg(0)),
    call("xor", arg(0), arg(0)),
]  # fmt: skip
COMPARED = [call(fn, arg(0), arg(0)) for fn in ("lt", "gt", "ne", "le", "ge", "eq")]


@pytest.mark.parametrize("dtype", ["i8", "u8"])
@pytest.mark.parametrize("e", WHOLE + COMPARED, ids=str)
def test_known_values_of_whole_numbers(e: Expr, dtype: str):
    small = simplified(e, (dtype,))
    assert not small.operands()
    assert result_dtype(small, (dtype,)) == result_dtype(e, (dtype,))
    every = np.arange(256).astype("u1").view(element_dtype(dtype))
    assert (evaluate_body(e, [every]) == evaluate_body(small, [every])).all()


@pytest.mark.parametrize("e", WHOLE + COMPARED, ids=str)
def test_known_values_of_floating_numbers(e: Expr):
    """Only x < x and x > x: they are false for NaN, too."""
    if e.fn in ("and", "xor"):
        return
    assert (simplified(e, ("f32",)) == const(False)) == (e.fn in ("lt", "gt"))


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("fn", ["and", "or"])
def test_known_values_of_truth(fn: str, value: bool):
    e = call(fn, arg(0), const(value))
    small = simplified(e, ("bool",))
    assert small == (arg(0) if value == (fn == "and") else const(fn == "or"))
    both = np.array([False, True])
    assert (evaluate_body(e, [both]) == evaluate_body(small, [both])).all()


def test_what_is_known_keeps_its_type():
    """7 / 2 of whole numbers is 3, whatever became of the operand."""
    zero = call("mul", arg(0), const(0))
    e = call("div", call("add", zero, const(7)), const(2))
    small = simplified(e, ("i32",))
    assert small == cast(const(3), "i32")
    assert evaluate_body(small, [np.ones(3, np.int32)]).max() == 3


@pytest.mark.parametrize("narrow", [d for d in DTYPES if DTYPES[d][0] <= 16 and d != "bool"])
def test_a_cast_that_holds_loses_nothing(narrow: str):
    small = element_dtype(narrow)
    bits = np.arange(2 ** min(DTYPES[narrow][0], 16))
    values = bits.astype(small) if narrow == "i4" else bits.astype(f"u{small.itemsize}").view(small)
    known = [w for w in DTYPES if w != narrow and keeps_values(narrow, w)]
    assert known or narrow.endswith("fnuz")
    for wide_type in known:
        with np.errstate(all="ignore"):
            known_to_numpy = values.astype("i1") if wide_type in ("i4", "u4") else values
            wide = known_to_numpy.astype(element_dtype(wide_type))
            # 4-bit integers have no casts to one another
            back = (wide.astype("i1") if wide_type in ("i4", "u4") else wide).astype(small)
            there, here = back.astype("f8"), values.astype("f8")
        assert same_bits(there, here), wide_type


def test_linear_forms_mean_the_body():
    rng, found = Random(5), Counter[str]()
    data = np.random.default_rng(0)
    xs = [data.uniform(0.5, 2, 7) * data.choice([-1, 1], 7) for _ in range(4)]
    allowed = {2, 3}
    for _ in range(1500):
        e = body(rng, rng.randint(1, 4), 4, ["add", "sub", "mul", "mul", "div", "neg"])
        with np.errstate(all="ignore"):
            want = np.broadcast_to(evaluate_body(e, xs), (7,))
        if not np.isfinite(want).all() or not e.operands():
            continue
        form = affine_in(e, 0)
        if form is not None:
            scale = evaluate_body(form.scale, xs) if form.scale else 0.0
            shift = evaluate_body(form.shift, xs) if form.shift else 0.0
            agree(want, scale * xs[0] + shift)
            found["affine"] += 0 in e.operands()
        a, x = factors(e, allowed.__contains__)
        assert set(a.operands()) <= allowed
        agree(want, evaluate_body(a, xs) * evaluate_body(x, xs))
        p, b = terms(e, allowed.__contains__)
        assert b is None or set(b.operands()) <= allowed
        agree(want, sum((evaluate_body(t, xs) for t in (p, b) if t is not None), np.zeros(7)))
        found["factors"] += bool(a.operands() and x.operands())
        found["terms"] += p is not None and b is not None
        folded = fold_scale(e, 0, ("f32",) * 4, allowed.__contains__)
        if folded is not None:
            new = [evaluate_body(folded.scale, xs) * xs[0], *xs[1:]]
            agree(want, evaluate_body(folded.body, new))
            found["fold"] += 1
    assert min(found.values()) > 40 and len(found) == 4, found


def agree(a: np.ndarray, b: np.ndarray) -> None:
    b = np.broadcast_to(b, a.shape)
    fine = np.isfinite(b)  # an expanded form may overflow or divide where the body does not
    np.testing.assert_allclose(a[fine], b[fine], rtol=1e-6, atol=1e-6 * np.abs(a).max())
