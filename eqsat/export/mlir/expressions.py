"""Scalar bodies as arith and math ops, with the meaning `ops.meaning.scalar` gives them.

Where arith leaves a result undefined (division by zero, shifts by too much, a float that does not
fit an integer), what XLA defines is written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.export.mlir import syntax
from eqsat.export.mlir.syntax import Writer
from eqsat.export.plan import Inexpressible
from eqsat.export.walk import BodyWriter, Typed
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.scalar import integer_range

# name -> op of floats, of signed integers, of unsigned integers, of bools; "" is: none
_ARITH = {
    "add": ("addf", "addi", "addi", "ori"),
    "sub": ("subf", "subi", "subi", ""),
    "mul": ("mulf", "muli", "muli", "andi"),
    "div": ("divf", "divsi", "divui", ""),
    "rem": ("remf", "remsi", "remui", ""),
    "max": ("maximumf", "maxsi", "maxui", "ori"),
    "min": ("minimumf", "minsi", "minui", "andi"),
    "and": ("", "andi", "andi", "andi"),
    "or": ("", "ori", "ori", "ori"),
    "xor": ("", "xori", "xori", "xori"),
    "shift_left": ("", "shli", "shli", ""),
    "shift_right_arithmetic": ("", "shrsi", "shrsi", ""),
    "shift_right_logical": ("", "shrui", "shrui", ""),
}
_COMPARE = {  # floats, signed integers, unsigned integers and bools
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
}
_MATH = {name: name for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt")}
_MATH |= {name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "floor")}
_MATH |= {name: name for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf")}
_MATH |= {"ceil": "ceil", "round_even": "roundeven", "round_away": "round"}
POWERS = 64  # constant exponents up to here are multiplied out


class Body(BodyWriter[str]):
    """The ops of one block; `operands` are the names its `arg` expressions stand for."""

    def __init__(self, writer: Writer, operands: Sequence[str]):
        super().__init__()
        self.writer = writer
        self.operands = list(operands)

    def operand(self, t: Typed) -> str:
        return self.operands[t.value]

    def literal(self, t: Typed) -> str:
        return self.constant(t.value, t.dtype)

    def constant(self, value: bool | int | float, dtype: str) -> str:
        literal = syntax.scalar(value, dtype)
        return self.op("arith.constant", [], "" if dtype == "bool" else dtype, literal)

    def op(self, name: str, args: Sequence[str], dtype: str, extra: str = "") -> str:
        """`name args : type`; extra: text in place of the operands."""
        name_ = self.writer.fresh()
        typed = f" : {syntax.element(dtype)}" if dtype else ""
        self.writer.line(f"{name_} = {name} {extra or ', '.join(args)}{typed}", 4)
        return name_

    def select(self, condition: str, yes: str, no: str, dtype: str) -> str:
        return self.op("arith.select", [condition, yes, no], dtype)

    def compare(self, fn: str, a: str, b: str, dtype: str) -> str:
        kind = DTYPES[dtype][1]
        predicate = _COMPARE[fn]["fi".find(kind) if kind in "fi" else 2]
        op = "arith.cmpf" if kind == "f" else "arith.cmpi"
        return self.op(op, [], dtype, f"{predicate}, {a}, {b}")

    # ---- functions -----------------------------------------------------------------------------
    def function(self, t: Typed, args: list[str]) -> str:
        dtype = t.args[-1].dtype
        if t.fn in _COMPARE:
            return self.compare(t.fn, args[0], args[1], dtype)
        if t.fn in _SPECIAL:
            return _SPECIAL[t.fn](self, t, args)
        if t.fn in _MATH and is_float(dtype):
            return self.op(f"math.{_MATH[t.fn]}", args, dtype)
        return self.arith(t.fn, args, dtype)

    def arith(self, fn: str, args: Sequence[str], dtype: str) -> str:
        names = _ARITH.get(fn)
        name = names["fiub".index(DTYPES[dtype][1])] if names else ""
        if not name:
            raise Inexpressible(f"`{fn}` of {dtype} has no form in arith or math")
        return self.op(f"arith.{name}", args, dtype)

    # ---- casts ---------------------------------------------------------------------------------
    def convert(self, op: str, x: str, source: str, dtype: str) -> str:
        return self.op(
            f"arith.{op}", [x], "", f"{x} : {syntax.element(source)} to {syntax.element(dtype)}"
        )

    def cast(self, v: str, source: str, dtype: str) -> str:
        if syntax.element(source) == syntax.element(dtype):
            return v
        if dtype == "bool":
            return self.compare("ne", v, self.constant(0, source), source)
        if is_float(source) and is_float(dtype):
            return self._between_floats(v, source, dtype)
        if is_float(dtype):
            return self.convert("sitofp" if _is_signed(source) else "uitofp", v, source, dtype)
        if is_float(source):
            return self._saturating(v, source, dtype)
        narrower = DTYPES[dtype][0] < _bits(source)
        widen = "extsi" if _is_signed(source) else "extui"
        return self.convert("trunci" if narrower else widen, v, source, dtype)

    def _between_floats(self, x: str, source: str, dtype: str) -> str:
        if _bits(source) == _bits(dtype):
            return self._between_floats(self.convert("extf", x, source, "f32"), "f32", dtype)
        wider = _bits(dtype) > _bits(source)
        return self.convert("extf" if wider else "truncf", x, source, dtype)

    def _saturating(self, x: str, source: str, dtype: str) -> str:
        """Truncate what fits, the ends of the range for what does not, 0 for NaN."""
        if _bits(source) < 32:
            return self._saturating(self.cast(x, source, "f32"), "f32", dtype)
        low, high = integer_range(dtype)
        least, most = (self.constant(float(v), source) for v in (low, high))
        above = self.compare("ge", x, most, source)
        below = self.compare("le", x, least, source)
        is_nan = self.compare("ne", x, x, source)
        outside = self.op("arith.ori", [above, below], "bool")
        skip = self.op("arith.ori", [outside, is_nan], "bool")
        inside = self.select(skip, self.constant(0.0, source), x, source)
        signed = "fptosi" if _is_signed(dtype) else "fptoui"
        whole = self.convert(signed, inside, source, dtype)
        cut = self.select(above, self.constant(high, dtype), whole, dtype)
        return self.select(below, self.constant(low, dtype), cut, dtype)

    # ---- functions that arith defines only in part -----------------------------------------------
    def divide(self, t: Typed, args: list[str]) -> str:
        """Quotient or remainder; x / 0 has all bits set, x rem 0 is x, and overflow wraps."""
        dtype = t.dtype
        if is_float(dtype) or _is_constant(t.args[1], lambda v: v not in (0, -1)):
            return self.arith(t.fn, args, dtype)
        x, y = args
        zero, one, ones = (self.constant(v, dtype) for v in (0, 1, integer_range(dtype)[1]))
        ones = self.constant(-1, dtype) if _is_signed(dtype) else ones
        by_zero = self.compare("eq", y, zero, dtype)
        negated = self.compare("eq", y, ones, dtype) if _is_signed(dtype) else by_zero
        unsafe = self.op("arith.ori", [by_zero, negated], "bool")
        quotient = self.arith(t.fn, [x, self.select(unsafe, one, y, dtype)], dtype)
        if _is_signed(dtype):
            turned = self.op("arith.subi", [zero, x], dtype) if t.fn == "div" else zero
            quotient = self.select(negated, turned, quotient, dtype)
        return self.select(by_zero, ones if t.fn == "div" else x, quotient, dtype)

    def shift(self, t: Typed, args: list[str]) -> str:
        """Shifts by the width or more leave nothing, or the sign."""
        bits = _bits(t.dtype)
        if _is_constant(t.args[1], lambda v: 0 <= v < bits):
            return self.arith(t.fn, args, t.dtype)
        most = self.constant(bits - 1, t.dtype)
        too_far = self.compare("gt", args[1], most, f"u{bits}" if bits > 1 else t.dtype)
        by = self.select(too_far, most, args[1], t.dtype)
        shifted = self.arith(t.fn, [args[0], by], t.dtype)
        if t.fn == "shift_right_arithmetic":
            return shifted
        return self.select(too_far, self.constant(0, t.dtype), shifted, t.dtype)

    def power(self, t: Typed, args: list[str]) -> str:
        exponent = t.args[1]
        if _is_constant(exponent, lambda v: float(v).is_integer() and abs(v) <= POWERS) and (
            is_float(t.dtype) or exponent.value >= 0
        ):
            return self._multiplied(args[0], int(exponent.value), t.dtype)
        by = self.cast(args[1], exponent.dtype, t.dtype)
        return self.op("math.powf" if is_float(t.dtype) else "math.ipowi", [args[0], by], t.dtype)

    def _multiplied(self, x: str, exponent: int, dtype: str) -> str:
        if exponent == 0:
            return self.constant(1, dtype)
        product, square, left = "", x, abs(exponent)
        while left:
            if left % 2:
                product = self.arith("mul", [product, square], dtype) if product else square
            left //= 2
            square = self.arith("mul", [square, square], dtype) if left else square
        if exponent > 0:
            return product
        return self.arith("div", [self.constant(1, dtype), product], dtype)

    def sign(self, t: Typed, args: list[str]) -> str:
        (x,), dtype = args, t.dtype
        zero, one = self.constant(0, dtype), self.constant(1, dtype)
        at_least_zero = self.select(self.compare("gt", x, zero, dtype), one, x, dtype)
        if DTYPES[dtype][1] == "u":
            return at_least_zero
        below = self.compare("lt", x, zero, dtype)
        return self.select(below, self.constant(-1, dtype), at_least_zero, dtype)

    def absolute(self, t: Typed, args: list[str]) -> str:
        if DTYPES[t.dtype][1] in "ub":
            return args[0]
        return self.op("math.absf" if is_float(t.dtype) else "math.absi", args, t.dtype)

    def negate(self, t: Typed, args: list[str]) -> str:
        if is_float(t.dtype):
            return self.op("arith.negf", args, t.dtype)
        return self.arith("sub", [self.constant(0, t.dtype), args[0]], t.dtype)

    def invert(self, t: Typed, args: list[str]) -> str:
        ones = True if t.dtype == "bool" else -1
        return self.arith("xor", [args[0], self.constant(ones, t.dtype)], t.dtype)

    def logistic(self, t: Typed, args: list[str]) -> str:
        one = self.constant(1.0, t.dtype)
        minus = self.op("arith.negf", args, t.dtype)
        below = self.arith("add", [one, self.op("math.exp", [minus], t.dtype)], t.dtype)
        return self.arith("div", [one, below], t.dtype)

    def erfc(self, t: Typed, args: list[str]) -> str:
        """1 - erf(x): compilers have no lowering of `math.erfc` yet."""
        below = self.op("math.erf", args, t.dtype)
        return self.arith("sub", [self.constant(1.0, t.dtype), below], t.dtype)

    def is_finite(self, t: Typed, args: list[str]) -> str:
        dtype = t.args[0].dtype
        if not is_float(dtype):
            return self.constant(True, "bool")
        size = self.op("math.absf", args, dtype)
        return self.compare("lt", size, self.constant(float("inf"), dtype), dtype)

    def clamp(self, t: Typed, args: list[str]) -> str:
        low, x, high = args
        return self.arith("min", [self.arith("max", [x, low], t.dtype), high], t.dtype)

    def choose(self, t: Typed, args: list[str]) -> str:
        return self.select(args[0], args[1], args[2], t.dtype)


_SPECIAL: dict[str, Callable[[Body, Typed, list[str]], str]] = {
    "div": Body.divide,
    "rem": Body.divide,
    "shift_left": Body.shift,
    "shift_right_arithmetic": Body.shift,
    "shift_right_logical": Body.shift,
    "pow": Body.power,
    "sign": Body.sign,
    "abs": Body.absolute,
    "neg": Body.negate,
    "not": Body.invert,
    "logistic": Body.logistic,
    "erfc": Body.erfc,
    "is_finite": Body.is_finite,
    "clamp": Body.clamp,
    "select": Body.choose,
}


def _bits(dtype: str) -> int:
    return 1 if dtype == "bool" else DTYPES[dtype][0]


def _is_signed(dtype: str) -> bool:
    return DTYPES[dtype][1] == "i"


def _is_constant(t: Typed, holds: Callable[[float], bool]) -> bool:
    return t.fn == "const" and holds(t.value)
