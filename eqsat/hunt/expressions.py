"""Random scalar bodies: well-typed expressions over the operands of a generic."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.scalar import FUNCTIONS, INTEGER_ONLY

_FLOAT_ONLY = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan",
        "tanh", "sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh",
        "logistic", "erf", "erfc", "erf_inv", "floor", "ceil", "round_even", "round_away",
        "is_finite", "nextafter",
    }
)  # fmt: skip
# exact on whatever they get: a sum over them may be taken in any order while values stay small
EXACT = frozenset(
    {
        "arg", "const", "cast", "add", "sub", "mul", "max", "min", "neg", "abs", "sign", "floor",
        "ceil", "round_even", "round_away", "select", "clamp", "eq", "ne", "lt", "le", "gt", "ge",
        "and", "or", "xor", "not", "is_finite",
    }
)  # fmt: skip
_BOOL_RESULT = tuple(f.name for f in FUNCTIONS.values() if f.result == "bool")
_SHIFTS = ("shift_left", "shift_right_arithmetic", "shift_right_logical")
_BY_KIND: dict[str, tuple[str, ...]] = {
    "f": tuple(n for n, f in FUNCTIONS.items() if n not in INTEGER_ONLY and n not in _BOOL_RESULT),
    "i": tuple(n for n in FUNCTIONS if n not in _FLOAT_ONLY and n not in (*_BOOL_RESULT, *_SHIFTS)),
    "b": ("and", "or", "xor", "not", "select", *_BOOL_RESULT),
}
# what programs are mostly made of
_COMMON: dict[str, tuple[str, ...]] = {
    "f": ("add", "sub", "mul", "div", "max", "min", "neg", "exp", "tanh", "abs"),
    "i": ("add", "sub", "mul", "max", "min", "neg", "div", "rem", "and", "or"),
    "b": ("and", "or", "not", "lt", "eq"),
}
_CONSTANTS: dict[str, tuple[bool | int | float, ...]] = {
    "f": (0.0, 1.0, 2.0, -1.0, 0.5, 3.0, float("-inf")),
    "i": (0, 1, 2, 3, 7),
    "b": (False, True),
}


def kind_of(dtype: str) -> str:
    """f, i (signed or not) or b."""
    return DTYPES[dtype][1].replace("u", "i")


def random_body(
    rng: Random, operands: Sequence[str], dtype: str, *, is_exact: bool = False
) -> Expr:
    """An expression of type `dtype` that reads every operand; `operands` are their types.

    is_exact: only functions that float64 computes without rounding, on small whole numbers.
    """
    order = list(range(len(operands)))
    if not order:
        return _constant(rng, dtype)
    expr = _as(rng, arg(order[0]), operands[order[0]], dtype)
    if rng.random() < 0.5:
        expr = _wrap(rng, expr, dtype, is_exact)
    for i in order[1:]:
        expr = _join(rng, expr, _as(rng, arg(i), operands[i], dtype), dtype, is_exact)
    if rng.random() < 0.3:
        expr = _wrap(rng, expr, dtype, is_exact)
    return expr


def is_exact(body: Expr) -> bool:
    """Whether float64 computes the body without rounding on small whole numbers."""
    return all(e.fn in EXACT for e in body.walk())


def _as(rng: Random, expr: Expr, have: str, want: str) -> Expr:
    """The value in another element type: a cast, or a comparison for a bool."""
    if have == want:
        return expr
    if want == "bool" and rng.random() < 0.5:
        return call(rng.choice(("lt", "ge", "ne")), expr, _constant(rng, have))
    return cast(expr, want)


def _constant(rng: Random, dtype: str) -> Expr:
    value = rng.choice(_CONSTANTS[kind_of(dtype)][: 4 if rng.random() < 0.9 else None])
    return const(value)


def _pick(rng: Random, dtype: str, arity: int, is_exact: bool) -> str:
    kind = kind_of(dtype)
    names = (_COMMON if rng.random() < 0.6 else _BY_KIND)[kind]
    fit = [n for n in names if FUNCTIONS[n].arity == arity and (not is_exact or n in EXACT)]
    return rng.choice(fit or ["neg" if kind != "b" else "not"])


def _wrap(rng: Random, expr: Expr, dtype: str, is_exact: bool) -> Expr:
    """One more function around a value: f(x), f(x, constant), select, or a cast there and back."""
    kind = kind_of(dtype)
    choice = rng.random()
    if choice < 0.1 and kind != "b":
        other = rng.choice(("f32", "i32", "f16") if kind == "f" else ("i32", "i8", "i64"))
        return cast(cast(expr, other), dtype)
    if choice < 0.45:
        name = _pick(rng, dtype, 1, is_exact)
        return _compared(rng, name, expr, dtype) if kind == "b" else call(name, expr)
    if choice < 0.5 and kind != "b":
        return call("clamp", const(_CONSTANTS[kind][0]), expr, const(_CONSTANTS[kind][2]))
    if choice < 0.55 and kind == "i":  # by less than the width: more is undefined
        return call(rng.choice(_SHIFTS), expr, const(rng.randint(1, 3)))
    if choice < 0.6 and kind != "b":
        test = call(rng.choice(("gt", "lt", "eq")), expr, _constant(rng, dtype))
        return call("select", test, *rng.sample([expr, _constant(rng, dtype)], 2))
    return _join(rng, expr, _constant(rng, dtype), dtype, is_exact)


def _join(rng: Random, a: Expr, b: Expr, dtype: str, is_exact: bool) -> Expr:
    name = _pick(rng, dtype, 2, is_exact)
    if kind_of(dtype) != "b":
        return call(name, *((a, b) if rng.random() < 0.7 else (b, a)))
    return call(name, a, b) if name in ("and", "or", "xor") else _compared(rng, name, a, dtype, b)


def _compared(rng: Random, name: str, a: Expr, dtype: str, b: Expr | None = None) -> Expr:
    """A function that gives a bool, of bools: comparisons are made on integers."""
    if name == "not":
        return call("not", a if b is None else call("or", a, b))
    right = b if b is not None else _constant(rng, dtype)
    if name == "is_finite":
        return call("and", call("is_finite", cast(a, "f32")), right)
    return call(name, cast(a, "i32"), cast(right, "i32"))


def reduction_body(rng: Random, operands: Sequence[str], dtype: str, combine: str) -> Expr:
    """A body under a reduction: what is added up or multiplied stays exact."""
    if combine in ("max", "min", "and", "or") or not is_float(dtype):
        return random_body(rng, operands, dtype)
    return random_body(rng, operands, dtype, is_exact=True)
