"""Scalar bodies as vector code: an expression DAG over typed operands, each part computed once.

Values mean what `ops.meaning.scalar` says they do, rounded to their element types as XLA rounds.
f32 functions are approximations with stated bounds; f16 and bf16 are computed in f32 and rounded
after every function. Bools are masks, integers vectors of their bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll
import numpy as np

from eqsat.execute.kernels import approximations, wide
from eqsat.execute.kernels.ir import Code
from eqsat.execute.kernels.kinds import Value, mangled
from eqsat.execute.kernels.lanes import (
    BOOLS,
    F32,
    SIGNED,
    UNSIGNED,
    Lanes,
    lane_convert,
    lane_nearest,
)
from eqsat.execute.kernels.lanes import ELEMENTS as NUMBERS
from eqsat.model.expr import BottomUp, Expr
from eqsat.model.nest import NoNest
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.scalar import FUNCTIONS, hold, integer_range, typing

# bound of every approximated f32 function, in units in the last place
ULPS: Mapping[str, float] = approximations.ULPS | wide.ULPS


@dataclass(frozen=True)
class Typed:
    """A value and its element type; a Python scalar without a type is a constant of any."""

    value: Value
    dtype: str | None


def lower_bodies(
    code: Code,
    lanes: int,
    bodies: Sequence[Expr],
    leaves: Sequence[Typed],
    dtype: str = "f32",
) -> list[Typed]:
    """The values of bodies whose operand i is `leaves[i]`; what they share is computed once.

    dtype: the type of a choice between constants. Raises NoNest with the name of a function (and
    type) that has no vector code.
    """
    return Lowering(code, lanes, leaves, dtype)(bodies)


class Lowering:
    """Bodies over the same operands, lowered one after another at the end of the same code."""

    def __init__(
        self,
        code: Code,
        lanes: int,
        leaves: Sequence[Typed],
        dtype: str = "f32",
    ):
        self.code, self.lanes, self.leaves, self.dtype = code, lanes, leaves, dtype
        self._types = typing([x.dtype or dtype for x in leaves])
        self._value: BottomUp[Expr, Typed] = BottomUp(self._step, self._parts)

    def __call__(self, bodies: Sequence[Expr]) -> list[Typed]:
        return [self._value(body) for body in bodies]

    def _parts(self, e: Expr) -> Sequence[Expr]:
        """A float that becomes an integer need not be brought between its ends: the cast does; nor
        be rounded before."""
        if e.fn != "cast" or DTYPES.get(e.value, (0, ""))[1] not in "iu":
            return e.args
        x = self._unclipped(e)
        nearest = self._nearest(e, x)
        return (x,) if nearest is None else (nearest[0],)

    def _unclipped(self, e: Expr) -> Expr:
        """Operand of a cast to an integer, without the clipping that the cast does anyhow."""
        (x,), (low, high) = e.args, integer_range(e.value)
        while _clips_beyond(x, low, high) and self._types(x.args[0]) in FLOAT_LANES:
            x = x.args[0]
        return x

    def _nearest(self, e: Expr, x: Expr) -> tuple[Expr, int] | None:
        """y and z where a short integer is round_even(y) + z, as QuantizeLinear has it."""
        if DTYPES[e.value][0] > SHORT_BITS:
            return None
        zero = 0
        if x.fn == "add" and x.args[1].fn == "const" and abs(x.args[1].value) < 1 << SHORT_BITS:
            x, zero = x.args[0], x.args[1].value
        if x.fn != "round_even" or zero != int(zero) or self._types(x.args[0]) != "f32":
            return None
        return x.args[0], int(zero)

    def _step(self, e: Expr, values: Sequence[Typed]) -> Typed:
        if e.fn == "arg":
            return self.leaves[e.value]
        if e.fn == "const":
            return Typed(e.value, "bool" if isinstance(e.value, bool) else None)
        if e.fn == "cast":
            is_integer = DTYPES.get(e.value, (0, ""))[1] in "iu"
            nearest = self._nearest(e, self._unclipped(e)) if is_integer else None
            if nearest is None:
                return lane_cast(self.code, self.lanes, values[0], e.value)
            x = lane_cast(self.code, self.lanes, values[0], "f32").value
            v = Lanes(self.code, self.lanes)
            return Typed(lane_nearest(v, x, nearest[1], e.value), e.value)
        return self._call(e.fn, values)

    def _call(self, fn: str, values: Sequence[Typed]) -> Typed:
        peers = values[1:] if fn == "select" else values
        dtype = next((x.dtype for x in peers if x.dtype), None)
        if fn == "pow":
            dtype = values[0].dtype or values[1].dtype
        if dtype is None and all(isinstance(x.value, bool | int | float) for x in values):
            folded = FUNCTIONS[fn].numpy(*(np.asarray(x.value) for x in values))
            return Typed(folded.item(), None)
        dtype = dtype or self.dtype
        if dtype in ("f16", "bf16"):
            return self._through_f32(fn, values, dtype)
        typed = [lane_cast(self.code, self.lanes, x, dtype).value for x in peers]
        if fn == "select":
            typed.insert(0, lane_cast(self.code, self.lanes, values[0], "bool").value)
        result = "bool" if FUNCTIONS[fn].result == "bool" else dtype
        return Typed(
            lane_call(Lanes(self.code, self.lanes, ELEMENTS[dtype]), fn, typed, dtype), result
        )

    def _through_f32(self, fn: str, values: Sequence[Typed], dtype: str) -> Typed:
        halves = ("f16", "bf16")
        raised = [
            lane_cast(self.code, self.lanes, x, "f32") if x.dtype in halves else x for x in values
        ]
        result = self._call(fn, raised)
        return result if result.dtype == "bool" else lane_cast(self.code, self.lanes, result, dtype)


def _clips_beyond(e: Expr, low: int, high: int) -> bool:
    """Whether it is no more, or no less, than a number that is not between two ends."""
    if e.fn not in ("min", "max") or e.args[1].fn != "const" or e.args[0].fn == "const":
        return False
    limit = e.args[1].value
    return limit >= high if e.fn == "min" else limit <= low


FLOAT_LANES = ("f32", "f64")
SHORT_BITS = 16  # of integers to which floats are rounded by an addition
ELEMENTS: dict[str, Any] = {"bool": ll.IntType(1)} | NUMBERS


def lane_constant(code: Code, lanes: int, value: Any, dtype: str) -> Value:
    """A Python scalar as a value of an element type in every lane."""
    if dtype in ("f16", "bf16"):
        return lane_cast(
            code, lanes, Typed(lane_constant(code, lanes, value, "f32"), "f32"), dtype
        ).value
    kind = ELEMENTS[dtype]
    return code.constant(kind, float(value) if is_float(dtype) else int(value), lanes)


def lane_cast(code: Code, lanes: int, x: Typed, dtype: str) -> Typed:
    """Constant converted as by XLA's ConvertElementType: see `ops.meaning.scalar.hold`."""
    if dtype not in ELEMENTS or (x.dtype and x.dtype not in ELEMENTS):
        raise NoNest(f"kernels compute no {dtype if dtype not in ELEMENTS else x.dtype}")
    if x.dtype is None or isinstance(x.value, (bool, int, float)):
        return Typed(lane_constant(code, lanes, _held(x.value, dtype), dtype), dtype)
    if x.dtype == dtype:
        return x
    return Typed(lane_convert(Lanes(code, lanes), x.value, x.dtype, dtype), dtype)


def _held(value: Any, dtype: str) -> Any:
    return hold(value, dtype).item()


def lane_call(v: Lanes, fn: str, values: Sequence[Value], dtype: str) -> Value:
    """A function of values of one element type."""
    kind = DTYPES[dtype][1]
    tables = {"f": FLOATS, "b": BOOLS, "i": SIGNED, "u": UNSIGNED}
    function = tables[kind].get(fn) if dtype != "f64" or fn in EXACT else None
    if function is None:
        raise NoNest(f"`{fn}` of {dtype} has no vector code")
    return function(v, *values)


# ---- functions of floats that need no approximation ----------------------------------------------
def _maximum(v: Lanes, a: Value, b: Value) -> Value:
    """NaN where either is; 0 is more than -0."""
    limit, x = (a, b) if _constant_value(a) is not None else (b, a)
    if not _constant_value(limit):  # not known, or a zero
        if _constant_value(limit) is None or math.copysign(1.0, _constant_value(limit)) < 0:
            return v.code.intrinsic("llvm.maximum", a, b)
        x = v.add(x, v.c(0.0))  # -0 is 0 now
    return v.least(limit, x)


def _minimum(v: Lanes, a: Value, b: Value) -> Value:
    limit, x = (a, b) if _constant_value(a) is not None else (b, a)
    if not _constant_value(limit) and (
        _constant_value(limit) is None or math.copysign(1.0, _constant_value(limit)) < 0
    ):
        return v.code.intrinsic("llvm.minimum", a, b)
    return v.most(limit, x)


def _divided(v: Lanes, a: Value, b: Value) -> Value:
    """a / b; by a constant as two products with its reciprocal, a third of a division's time.

    The reciprocal is an f32 nearer to zero and an f32 for the rest of the same sign, so that
    infinite quotients have no NaN; the sum is rounded once (Brisebarre and Muller, "Correctly
    rounded multiplication by arbitrary precision constants", 2008).
    """
    divisor = _constant_value(b)
    if v.kind is not F32 or divisor is None or not 2.0**-90 <= abs(divisor) <= 2.0**90:
        return v.div(a, b)
    divisor = float(np.float32(divisor))
    high = np.float32(1 / divisor)
    if abs(float(high)) > abs(1 / divisor):
        high = np.nextafter(high, np.float32(0))
    low = float(np.float32(1 / divisor - float(high)))
    product = v.mul(a, v.c(low)) if low else None
    return v.mul(a, v.c(float(high))) if product is None else v.fma(a, v.c(float(high)), product)


def _constant_value(x: Value) -> Any:
    """The number in every lane of a constant that is not NaN, else None."""
    if not isinstance(x, ll.Constant):
        return None
    value = x.constant[0].constant if isinstance(x.constant, list) else x.constant
    return value if isinstance(value, float) and not math.isnan(value) else None


def _sign(v: Lanes, x: Value) -> Value:
    one = v.select(v.test("==", x, v.c(0.0)), v.c(0.0), v.c(1.0))
    return v.select(v.test("!=", x, x), x, v.copysign(one, x))


def _clamp(v: Lanes, low: Value, x: Value, high: Value) -> Value:
    return _minimum(v, _maximum(v, low, x), high)


def _intrinsic(name: str) -> Callable[..., Value]:
    return lambda v, x: v.code.intrinsic(name, x)


def _test(how: str) -> Callable[..., Value]:
    return lambda v, a, b: v.test(how, a, b)


EXACT: dict[str, Callable[..., Value]] = {
    "add": Lanes.add,
    "sub": Lanes.sub,
    "mul": Lanes.mul,
    "div": _divided,
    "max": _maximum,
    "min": _minimum,
    "neg": Lanes.neg,
    "abs": Lanes.abs,
    "sign": _sign,
    "sqrt": Lanes.sqrt,
    "floor": _intrinsic("llvm.floor"),
    "ceil": _intrinsic("llvm.ceil"),
    "round_even": _intrinsic("llvm.roundeven"),
    "round_away": _intrinsic("llvm.round"),
    "select": Lanes.select,
    "clamp": _clamp,
    "eq": _test("=="),
    "ne": _test("!="),
    "lt": _test("<"),
    "le": _test("<="),
    "gt": _test(">"),
    "ge": _test(">="),
    "is_finite": lambda v, x: v.test("<", v.abs(x), v.c(math.inf)),
}
FLOATS: dict[str, Callable[..., Value]] = EXACT | {
    "exp": approximations.exp,
    "exp2": approximations.exp2,
    "expm1": approximations.expm1,
    "log": approximations.log,
    "log1p": approximations.log1p,
    "rsqrt": approximations.rsqrt,
    "logistic": approximations.logistic,
    "tanh": approximations.tanh,
    "erf": approximations.erf,
    "erfc": approximations.erfc,
    "erf_inv": approximations.erf_inv,
    "sin": approximations.sin,
    "cos": approximations.cos,
    "tan": approximations.tan,
    "pow": wide.power,
    "cbrt": wide.cbrt,
    "sinh": wide.sinh,
    "cosh": wide.cosh,
    "asin": wide.asin,
    "acos": wide.acos,
    "atan": wide.atan,
    "atan2": wide.atan2,
    "asinh": wide.asinh,
    "acosh": wide.acosh,
    "atanh": wide.atanh,
}


def combine(v: Lanes, how: str, a: Value, b: Value, dtype: str) -> Value:
    """Two parts of a reduction made one: add, mul, max, min, and, or.

    Which zero the largest or smallest of zeros is depends on the order anyhow.
    """
    if how in ("max", "min") and dtype in ("f32", "f64"):
        name = f"llvm.{how}imum.{mangled(a.type)}"
        return v.code.call_external(name, a.type, [a, b], fastmath=("nsz",))
    return lane_call(v, how, [a, b], dtype)
