"""Scalar bodies as ONNX ops on tensors that broadcast.

Functions of floats that ONNX has no op for are composed of ones it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eqsat.export.onnxmodel.graph import Graph, Value
from eqsat.export.plan import Inexpressible
from eqsat.export.walk import BodyWriter, Typed
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.scalar import integer_range


def _exp2(b: Body, x: Value) -> Value:
    return b.op("Exp", b.op("Mul", x, b.number(math.log(2), x)))


def _expm1(b: Body, x: Value) -> Value:
    """tanh(x/2) · (exp(x) + 1) keeps the digits near 0, exp(x) - 1 does not overflow."""
    e = b.op("Exp", x)
    half = b.op("Tanh", b.op("Mul", x, b.number(0.5, x)))
    one = b.number(1.0, x)
    small = b.compare("Less", b.op("Abs", x), one)
    return b.where(small, b.op("Mul", half, b.op("Add", e, one)), b.op("Sub", e, one))


def _log1p(b: Body, x: Value) -> Value:
    """log(u) · x / (u - 1) with u = 1 + x makes up for what 1 + x loses."""
    one = b.number(1.0, x)
    u = b.op("Add", one, x)
    lost = b.op("Sub", u, one)
    same = b.compare("Equal", u, one)
    plain = b.compare("Greater", b.op("Abs", x), one)
    ratio = b.op("Div", x, b.where(same, one, lost))
    log = b.op("Log", u)
    return b.where(same, x, b.where(plain, log, b.op("Mul", log, ratio)))


def _rsqrt(b: Body, x: Value) -> Value:
    return b.op("Reciprocal", b.op("Sqrt", x))


def _cbrt(b: Body, x: Value) -> Value:
    root = b.op("Pow", b.op("Abs", x), b.number(1 / 3, x))
    return b.op("Mul", b.op("Sign", x), root)


def _erfc(b: Body, x: Value) -> Value:
    return b.op("Sub", b.number(1.0, x), b.floating("Erf", [x]))


def _atan2(b: Body, y: Value, x: Value) -> Value:
    """The angle of (x, y): that of y / x, half a turn on if x is negative."""
    zero, pi = b.number(0.0, x), b.number(math.pi, x)
    no_x = b.compare("Equal", x, zero)
    base = b.floating("Atan", [b.op("Div", y, b.where(no_x, b.number(1.0, x), x))])
    turn = b.where(b.compare("Less", y, zero), b.op("Neg", pi), pi)
    turned = b.where(b.compare("Less", x, zero), b.op("Add", base, turn), base)
    upright = b.op("Mul", b.op("Sign", y), b.number(math.pi / 2, x))
    return b.where(no_x, upright, turned)


def _round_away(b: Body, x: Value) -> Value:
    size = b.op("Abs", x)
    whole = b.op("Floor", size)
    rest = b.op("Sub", size, whole)
    up = b.compare("GreaterOrEqual", rest, b.number(0.5, x))
    away = b.where(up, b.op("Add", whole, b.number(1.0, x)), whole)
    return b.op("Mul", b.op("Sign", x), away)


COMPOSED: dict[str, Callable[..., Value]] = {
    "exp2": _exp2,
    "expm1": _expm1,
    "log1p": _log1p,
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "erfc": _erfc,
    "atan2": _atan2,
    "round_away": _round_away,
}


_WIDE = {"f64": "f64", "i32": "i32", "i64": "i64", "u32": "i64", "bool": "bool"}
_PLAIN = {"add": "Add", "sub": "Sub", "mul": "Mul", "max": "Max", "min": "Min", "neg": "Neg"}
_PLAIN |= {"abs": "Abs", "sign": "Sign"}
_FLOAT = {"div": "Div", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos"}
_FLOAT |= {"tan": "Tan", "tanh": "Tanh", "sinh": "Sinh", "cosh": "Cosh", "asin": "Asin"}
_FLOAT |= {"acos": "Acos", "atan": "Atan", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh"}
_FLOAT |= {"logistic": "Sigmoid", "erf": "Erf", "floor": "Floor", "ceil": "Ceil"}
_FLOAT |= {"round_even": "Round"}
_COMPARE = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater"}
_COMPARE |= {"ge": "GreaterOrEqual"}
_BOOL = {"add": "Or", "or": "Or", "max": "Or", "mul": "And", "and": "And", "min": "And"}
_BOOL |= {"xor": "Xor", "ne": "Xor"}
_BITS = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}
_LEAVES_WIDTH = frozenset({"add", "sub", "mul", "neg", "abs", "pow", "shift_left", "div"})


def wide(dtype: str) -> str:
    """The type in which values of this one are computed; Inexpressible for u64."""
    if dtype == "u64":
        raise Inexpressible("ONNX's arithmetic on u64 is not what XLA's is")
    return _WIDE.get(dtype, "f32" if is_float(dtype) else "i32")


class Body(BodyWriter[Value]):
    """The ops of one body; `operands` are in their own element types.

    `emit` gives a value in the type that its own is computed in.
    """

    def __init__(self, graph: Graph, operands: Sequence[Value]):
        super().__init__()
        self.graph = graph
        self.operands = operands

    def operand(self, t: Typed) -> Value:
        return self.graph.cast(self.operands[t.value], wide(t.dtype))

    def literal(self, t: Typed) -> Value:
        return self.graph.scalar(t.value, wide(t.dtype))

    def function(self, t: Typed, args: list[Value]) -> Value:
        result = self._unwrapped(t, args)
        return self.wrap(result, t.dtype) if t.fn in _LEAVES_WIDTH else result

    def op(self, name: str, *args: Value, dtype: str = "") -> Value:
        return self.graph.broadcast(name, *args, dtype=dtype)

    def number(self, value: int | float, like: Value) -> Value:
        return self.graph.scalar(value, like.dtype)

    def compare(self, name: str, a: Value, b: Value) -> Value:
        return self.op(name, a, b, dtype="bool")

    def negated(self, a: Value) -> Value:
        return self.op("Not", a, dtype="bool")

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where the condition holds; ONNX's Where takes no bools."""
        if yes.dtype != "bool":
            return self.op("Where", condition, yes, no)
        return self.op(
            "Or",
            self.op("And", condition, yes),
            self.op("And", self.negated(condition), no),
        )

    # ---- casts ---------------------------------------------------------------------------------
    def wrap(self, v: Value, dtype: str) -> Value:
        """An integer cut to the width of its type."""
        if is_float(dtype) or dtype in ("bool", v.dtype):
            return v
        if dtype == "u4":
            return self.op("Mod", v, self.number(16, v))
        if dtype != "i4":
            return self.graph.cast(self.graph.cast(v, dtype), v.dtype)
        shifted = self.op("Add", v, self.number(8, v))
        return self.op("Sub", self.op("Mod", shifted, self.number(16, v)), self.number(8, v))

    def cast(self, v: Value, source: str, dtype: str) -> Value:
        if dtype == "bool":
            return self.negated(self.compare("Equal", v, self.number(0, v)))
        if is_float(source) and not is_float(dtype):
            return self._saturating(v, dtype)
        converted = self.graph.cast(v, wide(dtype))
        return converted if is_float(dtype) or source == "bool" else self.wrap(converted, dtype)

    def _saturating(self, v: Value, dtype: str) -> Value:
        """The ends of the range for what does not fit, 0 for NaN."""
        low, high = integer_range(dtype)
        v = self.graph.cast(v, "f64") if DTYPES[dtype][0] >= 32 else v
        is_nan = self.op("IsNaN", v, dtype="bool")
        inner = min(float(high), math.nextafter(2.0**63, 0))  # the last that fits
        number = self.where(is_nan, self.number(0.0, v), v)
        below = self.op("Min", number, self.number(inner, v))
        inside = self.op("Max", below, self.number(float(low), v))
        converted = self.graph.cast(inside, wide(dtype))
        if inner == float(high):
            return converted
        above = self.compare("GreaterOrEqual", v, self.number(float(high), v))
        return self.where(above, self.number(high, converted), converted)

    # ---- functions -----------------------------------------------------------------------------
    def _unwrapped(self, t: Typed, args: list[Value]) -> Value:
        dtype = t.args[-1].dtype
        if t.fn in _SPECIAL:
            return _SPECIAL[t.fn](self, t, args)
        if dtype == "bool" and t.fn in _BOOL:
            return self.op(_BOOL[t.fn], *args, dtype="bool")
        if t.fn == "ne":
            return self.negated(self.compare("Equal", args[0], args[1]))
        if t.fn in _COMPARE:
            return self._compared(t.fn, args)
        if is_float(dtype) and t.fn in _FLOAT:
            return self.floating(_FLOAT[t.fn], args)
        if dtype != "bool" and t.fn in _PLAIN:
            return self.op(_PLAIN[t.fn], *args)
        if not is_float(dtype) and t.fn in _BITS:
            return self.op(_BITS[t.fn], *args)
        raise Inexpressible(f"`{t.fn}` of {dtype} has no form in ONNX")

    def _compared(self, fn: str, args: list[Value]) -> Value:
        if args[0].dtype == "bool" and fn != "eq":
            args = [self.graph.cast(a, "i32") for a in args]
        return self.compare(_COMPARE[fn], args[0], args[1])

    def floating(self, name: str, args: list[Value]) -> Value:
        """Runtimes have some functions in f32 only."""
        if args[0].dtype == "f64" and name not in _DOUBLE:
            narrow = [self.graph.cast(a, "f32") for a in args]
            return self.graph.cast(self.op(name, *narrow), "f64")
        return self.op(name, *args)

    def divide(self, t: Typed, args: list[Value]) -> Value:
        """Quotient or remainder; x / 0 has all bits set, x rem 0 is x, and overflow wraps."""
        x, y = args
        if is_float(t.dtype):
            if t.fn == "div":
                return self.op("Div", x, y)
            return self.graph.add("Mod", args, x.dtype, _shape(args), fmod=1)
        by_zero = self.compare("Equal", y, self.number(0, y))
        negated = self.compare("Equal", y, self.number(-1, y))
        safe = self.where(self.op("Or", by_zero, negated), self.number(1, y), y)
        if t.fn == "rem":
            quotient = self.graph.add("Mod", [x, safe], x.dtype, _shape(args), fmod=1)
            return self.where(by_zero, x, self.where(negated, self.number(0, x), quotient))
        quotient = self.where(negated, self.op("Neg", x), self.op("Div", x, safe))
        return self.where(by_zero, self.number(-1, x), quotient)

    def power(self, t: Typed, args: list[Value]) -> Value:
        if is_float(t.dtype):
            return self.op("Pow", args[0], self.graph.cast(args[1], args[0].dtype))
        if t.args[1].fn != "const" or not 0 <= t.args[1].value <= 64:
            raise Inexpressible("an integer to a power that is no small constant")
        product = self.graph.scalar(1, args[0].dtype)
        for _ in range(t.args[1].value):
            product = self.wrap(self.op("Mul", product, args[0]), t.dtype)
        return product

    def shift(self, t: Typed, args: list[Value]) -> Value:
        """Shifts by a constant, as products and quotients by a power of two."""
        bits = DTYPES[t.dtype][0]
        by = t.args[1]
        if by.fn != "const" or not 0 <= by.value < min(bits, 62) or bits > 32:
            raise Inexpressible(f"`{t.fn}` by what is no constant, or of {t.dtype}")
        x = self.graph.cast(args[0], "i64")
        factor = self.number(2**by.value, x)
        if t.fn == "shift_left":
            return self.graph.cast(self.wrap(self.op("Mul", x, factor), t.dtype), args[0].dtype)
        if t.fn == "shift_right_logical":
            x = self.op("Mod", x, self.number(2**bits, x))
        whole = self.op("Sub", x, self.op("Mod", x, factor))
        shifted = self.wrap(self.op("Div", whole, factor), t.dtype)
        return self.graph.cast(shifted, args[0].dtype)

    def invert(self, t: Typed, args: list[Value]) -> Value:
        if t.dtype == "bool":
            return self.negated(args[0])
        return self.wrap(self.op("BitwiseNot", args[0]), t.dtype)

    def is_finite(self, t: Typed, args: list[Value]) -> Value:
        x = args[0]
        if not is_float(t.args[0].dtype):
            return self.compare("Equal", x, x)
        return self.compare("Less", self.op("Abs", x), self.number(math.inf, x))

    def clamp(self, t: Typed, args: list[Value]) -> Value:
        low, x, high = args
        return self.op("Min", self.op("Max", x, low), high)

    def choose(self, t: Typed, args: list[Value]) -> Value:
        return self.where(*args)

    def composed(self, t: Typed, args: list[Value]) -> Value:
        """Functions ONNX lacks, of floats."""
        if not is_float(t.dtype):
            raise Inexpressible(f"`{t.fn}` of {t.dtype} has no form in ONNX")
        return COMPOSED[t.fn](self, *args)


_DOUBLE = frozenset({"Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Floor", "Ceil", "Round", "Div"})
_SPECIAL: Mapping[str, Callable[[Body, Typed, list[Value]], Value]] = {
    "div": Body.divide,
    "rem": Body.divide,
    "pow": Body.power,
    "shift_left": Body.shift,
    "shift_right_arithmetic": Body.shift,
    "shift_right_logical": Body.shift,
    "not": Body.invert,
    "is_finite": Body.is_finite,
    "clamp": Body.clamp,
    "select": Body.choose,
} | dict.fromkeys(
    ("exp2", "expm1", "log1p", "rsqrt", "cbrt", "erfc", "atan2", "round_away"), Body.composed
)


def _shape(args: Sequence[Value]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(a.shape for a in args))
