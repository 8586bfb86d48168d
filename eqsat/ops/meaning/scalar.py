"""Scalar functions of generic bodies: what each means in NumPy, its result type and its cost.

The reference holds every floating value in float64 and integers and bools in their own type;
integers wrap. Integer division, remainder, shifts and float → integer casts mean what XLA's do
(https://openxla.org/xla/operation_semantics).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.model.expr import BottomUp, Expr, walk_all
from eqsat.model.tensor import DTYPES, is_float

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ScalarFunction:
    """One scalar function.

    result: "same" (the type of its operands) or "bool". cost: operations, an addition being 1.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    cost: int = 1
    commutative: bool = False
    result: str = "same"


def _is_int(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _div(a: Array, b: Array) -> Array:
    if not _is_int(a):
        return np.divide(a, b)
    # XLA: truncation toward zero; x / 0 has all bits set
    floor = np.floor_divide(a, b)
    up = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.where(b == 0, np.invert(np.zeros_like(a)), floor + up.astype(a.dtype))


def _rem(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, np.fmod(a, b)) if _is_int(a) else np.fmod(a, b)


def _pow(a: Array, b: Array) -> Array:
    if not (_is_int(a) and _is_int(b)):
        return np.power(a, b)
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0))).astype(a.dtype)


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0.0)


def _shift_right_logical(a: Array, b: Array) -> Array:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.right_shift(a.astype(unsigned), b.astype(unsigned)).astype(a.dtype)


def _special(name: str) -> Callable[[Array], Array]:
    """A function that NumPy lacks, from SciPy."""

    def function(x: Array) -> Array:
        import scipy.special

        return getattr(scipy.special, name)(np.asarray(x, np.float64))

    return function


def _rsqrt(x: Array) -> Array:
    return np.divide(1.0, np.sqrt(x))


def _logistic(x: Array) -> Array:
    return np.divide(1.0, 1.0 + np.exp(-x))


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


INTEGER_ONLY = frozenset(
    {"and", "or", "xor", "not", "shift_left", "shift_right_arithmetic", "shift_right_logical"}
)

_TABLE = (
    ScalarFunction("add", 2, np.add, commutative=True),
    ScalarFunction("sub", 2, np.subtract),
    ScalarFunction("mul", 2, np.multiply, commutative=True),
    ScalarFunction("div", 2, _div, 4),
    ScalarFunction("max", 2, np.maximum, commutative=True),
    ScalarFunction("min", 2, np.minimum, commutative=True),
    ScalarFunction("pow", 2, _pow, 16),
    ScalarFunction("rem", 2, _rem, 8),
    ScalarFunction("neg", 1, np.negative),
    ScalarFunction("abs", 1, np.abs),
    ScalarFunction("sign", 1, np.sign),
    ScalarFunction("exp", 1, np.exp, 8),
    ScalarFunction("exp2", 1, np.exp2, 8),
    ScalarFunction("expm1", 1, np.expm1, 10),
    ScalarFunction("log", 1, np.log, 8),
    ScalarFunction("log1p", 1, np.log1p, 10),
    ScalarFunction("sqrt", 1, np.sqrt, 4),
    ScalarFunction("rsqrt", 1, _rsqrt, 4),
    ScalarFunction("cbrt", 1, np.cbrt, 12),
    ScalarFunction("sin", 1, np.sin, 12),
    ScalarFunction("cos", 1, np.cos, 12),
    ScalarFunction("tan", 1, np.tan, 16),
    ScalarFunction("tanh", 1, np.tanh, 12),
    ScalarFunction("sinh", 1, np.sinh, 12),
    ScalarFunction("cosh", 1, np.cosh, 12),
    ScalarFunction("asin", 1, np.arcsin, 16),
    ScalarFunction("acos", 1, np.arccos, 16),
    ScalarFunction("atan", 1, np.arctan, 16),
    ScalarFunction("atan2", 2, np.arctan2, 20),
    ScalarFunction("asinh", 1, np.arcsinh, 16),
    ScalarFunction("acosh", 1, np.arccosh, 16),
    ScalarFunction("atanh", 1, np.arctanh, 16),
    ScalarFunction("logistic", 1, _logistic, 12),
    ScalarFunction("erf", 1, _special("erf"), 12),
    ScalarFunction("erfc", 1, _special("erfc"), 14),
    ScalarFunction("erf_inv", 1, _special("erfinv"), 20),
    ScalarFunction("floor", 1, np.floor),
    ScalarFunction("ceil", 1, np.ceil),
    ScalarFunction("round_even", 1, np.rint),
    ScalarFunction("round_away", 1, _round_away, 2),
    ScalarFunction("select", 3, np.where),
    ScalarFunction("clamp", 3, _clamp, 2),
    ScalarFunction("eq", 2, np.equal, commutative=True, result="bool"),
    ScalarFunction("ne", 2, np.not_equal, commutative=True, result="bool"),
    ScalarFunction("lt", 2, np.less, result="bool"),
    ScalarFunction("le", 2, np.less_equal, result="bool"),
    ScalarFunction("gt", 2, np.greater, result="bool"),
    ScalarFunction("ge", 2, np.greater_equal, result="bool"),
    ScalarFunction("and", 2, np.bitwise_and, commutative=True),
    ScalarFunction("or", 2, np.bitwise_or, commutative=True),
    ScalarFunction("xor", 2, np.bitwise_xor, commutative=True),
    ScalarFunction("not", 1, np.invert),
    ScalarFunction("shift_left", 2, np.left_shift),
    ScalarFunction("shift_right_arithmetic", 2, np.right_shift),
    ScalarFunction("shift_right_logical", 2, _shift_right_logical),
    ScalarFunction("is_finite", 1, np.isfinite, result="bool"),
    ScalarFunction("nextafter", 2, np.nextafter, 4),
)
FUNCTIONS: dict[str, ScalarFunction] = {f.name: f for f in _TABLE}


def held_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type the reference holds an element type in; i4 sits in int8,
    u4 in uint8."""
    bits, kind = DTYPES[dtype]
    if kind == "f":
        return np.dtype(np.float64)
    if kind == "b":
        return np.dtype(np.bool_)
    return np.dtype(f"{kind}{max(bits, 8) // 8}")


def integer_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    bits, kind = DTYPES[dtype]
    return (0, 2**bits - 1) if kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def hold(x: Any, dtype: str) -> Array:
    """Convert to the held form of an element type as XLA's ConvertElementType does.

    float → integer truncates and saturates, NaN becomes 0; integer → integer wraps; float → float
    stays exact, because the reference does not round.
    """
    value = np.asarray(x)
    held = held_dtype(dtype)
    if held.kind == "b":
        return np.not_equal(value, 0)
    if held.kind in "iu" and value.dtype.kind not in "iub":
        return _saturate(value.astype(np.float64), dtype, held)
    value = value.astype(held)
    return _wrap_half(value) if dtype in ("i4", "u4") else value


def _wrap_half(value: Array) -> Array:
    """The low four bits, with the sign they have in the held type."""
    return np.right_shift(np.left_shift(value, 4), 4).astype(value.dtype)


def _saturate(x: Array, dtype: str, held: np.dtype[Any]) -> Array:
    low, high = integer_range(dtype)
    inside = (x > low) & (x < high)
    whole = np.trunc(np.where(inside, x, 0.0)).astype(held)
    ends = np.where(x >= high, held.type(high), np.where(x <= low, held.type(low), held.type(0)))
    return np.where(inside, whole, ends)


def evaluate_body(expr: Expr, operands: Sequence[Array]) -> Array:
    """The body on operands that broadcast against one another, with NumPy float64 meaning."""
    return evaluate_all([expr], operands)[0]


def evaluate_all(bodies: Sequence[Expr], operands: Sequence[Array]) -> list[Array]:
    """`evaluate_body` of several bodies; what they share is computed once."""

    return computed(bodies, lambda e, values: called(e, values, operands))


def called(e: Expr, values: Sequence[Any], operands: Sequence[Array]) -> Any:
    """The root of an expression on the values of its arguments."""
    if e.fn == "arg":
        return operands[e.value]
    if e.fn == "const":
        return e.value
    if e.fn == "cast":
        return hold(values[0], e.value)
    function = FUNCTIONS[e.fn]
    return function.numpy(*_typed(function, values))


def computed(bodies: Sequence[Expr], step: Callable[[Expr, Sequence[Any]], Any]) -> list[Array]:
    """The values of bodies; each part is computed once and dropped after its last use."""
    left = Counter(a for e in walk_all(bodies) for a in e.args)
    left.update(bodies)
    values: dict[Expr, Any] = {}

    def keep(e: Expr, _: Sequence[None]) -> None:
        values[e] = step(e, [values[a] for a in e.args])
        for a in e.args:
            left[a] -= 1
            if not left[a]:
                del values[a]

    compute = BottomUp(keep)
    with np.errstate(all="ignore"):
        for body in bodies:
            compute(body)
    return [np.asarray(values[body]) for body in bodies]


def _typed(function: ScalarFunction, values: Sequence[Any]) -> list[Array]:
    """Python scalars take the element type of the operands beside them."""
    peers = values[1:] if function.name == "select" else values
    strong = [v.dtype for v in peers if isinstance(v, np.ndarray | np.generic)]
    weak = np.result_type(*[np.asarray(v) for v in peers])
    peer = strong[0] if strong else weak
    typed = [v if hasattr(v, "dtype") else np.asarray(v, peer) for v in peers]
    return typed if len(peers) == len(values) else [np.asarray(values[0]), *typed]


def typing(operands: Sequence[str]) -> BottomUp[Expr, str | None]:
    """`result_dtype` for many parts of the bodies over these operands, each computed once."""

    def step(e: Expr, dtypes: Sequence[str | None]) -> str | None:
        if e.fn == "arg":
            return operands[int(e.value)]
        if e.fn == "const":
            return "bool" if isinstance(e.value, bool) else None
        return str(e.value) if e.fn == "cast" else _called_dtype(e.fn, dtypes)

    return BottomUp(step, lambda e: () if e.fn == "cast" else e.args)


def result_dtype(expr: Expr, operands: Sequence[str]) -> str | None:
    """The element type of a body; None if only constants decide it.

    ValueError if the operands of a function differ in type.
    """
    return typing(operands)(expr)


def _called_dtype(fn: str, dtypes: Sequence[str | None]) -> str | None:
    if FUNCTIONS[fn].result == "bool":
        return "bool"
    if fn == "pow":  # an integer exponent is fine
        return dtypes[0] or dtypes[1]
    kinds = {k for k in (dtypes[1:] if fn == "select" else dtypes) if k is not None}
    if len(kinds) > 1:
        raise ValueError(f"`{fn}` of {' and '.join(sorted(kinds))}: cast one of them")
    return kinds.pop() if kinds else None


def cost(expr: Expr) -> int:
    """Scalar operations of one evaluation of a body: what it names twice is computed once.

    Casts cost 1.
    """
    return cost_all((expr,))


@lru_cache(maxsize=10_000)
def cost_all(bodies: tuple[Expr, ...]) -> int:
    """`cost` of several bodies together, what they share once."""
    return sum(
        FUNCTIONS[e.fn].cost if e.fn in FUNCTIONS else e.fn not in ("arg", "const")
        for e in walk_all(bodies)
    )


def constant_value(expr: Expr, operands: Mapping[int, Any]) -> Any:
    """The value of a body from the operands that are in `operands`, None if it depends on others.

    Values are scalars in held form. 0 · x is 0 only if x is known and finite, because 0 · NaN is
    not 0. With zeros put in, this tells what survives padding: relu, tanh, mul … do; exp,
    + constant, x / y do not.
    """

    def step(e: Expr, values: Sequence[Any]) -> Any:
        if e.fn == "arg":
            return operands.get(int(e.value))
        return e.value if e.fn == "const" else _folded_call(e, values)

    with np.errstate(all="ignore"):
        return BottomUp(step)(expr)


def _folded_call(e: Expr, values: Sequence[Any]) -> Any:
    if e.fn == "cast":
        return None if values[0] is None else hold(values[0], e.value)[()]
    if e.fn == "select" and values[0] is None:
        same = values[1] is not None and values[2] is not None and values[1] == values[2]
        return values[1] if same else None
    if e.fn == "and" and any(v is not None and v == 0 for v in values):
        return 0
    if any(v is None for v in values):
        return None
    function = FUNCTIONS[e.fn]
    return function.numpy(*_typed(function, values))[()]


def neutral(combine: str, dtype: str) -> bool | int | float:
    """The value a reduction starts from: x combined with it is x."""
    kind = DTYPES[dtype][1]
    if kind == "b":
        return combine in ("and", "min", "mul")
    low, high = (-math.inf, math.inf) if is_float(dtype) else integer_range(dtype)
    ones = high if kind == "u" else -1
    return {"add": 0, "mul": 1, "max": low, "min": high, "and": ones, "or": 0}[combine]
