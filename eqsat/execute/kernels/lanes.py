"""Arithmetic on vectors of one width: floats, integers, and conversions between element types.

Floats are f32 (or f64, the same lanes twice as wide), integers of their bits. NaN goes through
`least` and `most`, which is what the order of their operands is for. Conversions are XLA's
ConvertElementType: float to integer truncates and saturates, NaN becomes 0; integers wrap; floats
are rounded to the nearest, ties to even. A bf16 is the upper half of an f32, held in 16 bits.

Functions of integers and bools have XLA's meaning of every operand: arithmetic wraps. x / 0 has all
bits set and x rem 0 is x; the lowest number over -1 is itself. A shift by as many bits as there
are, or more, leaves zeros, or the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels.ir import Code
from eqsat.execute.kernels.kinds import I32, I64, Value, lanes_of, vector
from eqsat.model.nest import NoNest
from eqsat.model.tensor import DTYPES

F32, F64 = ll.FloatType(), ll.DoubleType()


@dataclass(frozen=True)
class Lanes:
    """Vectors of `lanes` elements of a float type, written at the end of `code`."""

    code: Code
    lanes: int
    kind: Any = F32

    @property
    def wide(self) -> Lanes:
        """These lanes in f64."""
        return Lanes(self.code, self.lanes, F64)

    # ---- constants -------------------------------------------------------------------------------
    def c(self, value: float) -> Value:
        return self.code.constant(self.kind, value, self.lanes)

    def i(self, value: int) -> Value:
        """An integer of the float's width in every lane."""
        return self.code.constant(self.bits_kind, value, self.lanes)

    @property
    def bits_kind(self) -> Any:
        return I32 if self.kind is F32 else I64

    # ---- floats ----------------------------------------------------------------------------------
    def add(self, a: Value, b: Value) -> Value:
        return self.code.builder.fadd(a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.code.builder.fsub(a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.code.builder.fmul(a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.code.builder.fdiv(a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.code.fma(a, b, c)

    def neg(self, a: Value) -> Value:
        return self.code.builder.fneg(a)

    def abs(self, a: Value) -> Value:
        return self.code.intrinsic("llvm.fabs", a)

    def sqrt(self, a: Value) -> Value:
        return self.code.intrinsic("llvm.sqrt", a)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return self.code.intrinsic("llvm.copysign", magnitude, sign)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Σ coefficients[i] · xⁱ by Horner's rule."""
        total = self.c(coefficients[-1])
        for k in reversed(coefficients[:-1]):
            total = self.fma(total, x, self.c(k))
        return total

    def test(self, how: str, a: Value, b: Value) -> Value:
        """A mask; false where either is NaN, but for `!=`, which is true there."""
        compare = self.code.builder.fcmp_unordered if how == "!=" else None
        return (compare or self.code.builder.fcmp_ordered)(how, a, b)

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        return self.code.builder.select(mask, a, b)

    def most(self, limit: Value, x: Value) -> Value:
        """x but no more than a limit; NaN where x is."""
        return self.select(self.test("<", limit, x), limit, x)

    def least(self, limit: Value, x: Value) -> Value:
        """x but no less than a limit; NaN where x is."""
        return self.select(self.test(">", limit, x), limit, x)

    # ---- bits and conversions --------------------------------------------------------------------
    def bits(self, x: Value) -> Value:
        return self.code.builder.bitcast(x, vector(self.bits_kind, self.lanes))

    def float_of(self, bits: Value) -> Value:
        return self.code.builder.bitcast(bits, vector(self.kind, self.lanes))

    def rounded(self, integer: Value) -> Value:
        """The float nearest to a signed integer."""
        return self.code.builder.sitofp(integer, vector(self.kind, self.lanes))

    def widened(self, x: Value) -> Value:
        return self.code.builder.fpext(x, vector(F64, self.lanes))

    def narrowed(self, x: Value) -> Value:
        return self.code.builder.fptrunc(x, vector(F32, self.lanes))

    # ---- integers --------------------------------------------------------------------------------
    def shl(self, a: Value, n: int) -> Value:
        return self.code.builder.shl(a, _like(a, n))

    def lshr(self, a: Value, n: int) -> Value:
        return self.code.builder.lshr(a, _like(a, n))

    def ashr(self, a: Value, n: int) -> Value:
        return self.code.builder.ashr(a, _like(a, n))

    def plus(self, a: Value, n: int) -> Value:
        return self.code.builder.add(a, _like(a, n))

    def masked(self, a: Value, n: int) -> Value:
        """a & n"""
        return self.code.builder.and_(a, _like(a, n))

    # ---- control ---------------------------------------------------------------------------------
    def where_any(
        self, mask: Value, then: Callable[[], Sequence[Value]], otherwise: Sequence[Value]
    ) -> list[Value]:
        """`then()` if any lane is set, which is rare, else the values given."""
        some = (
            mask
            if self.lanes == 1
            else self.code.intrinsic("llvm.vector.reduce.or", mask, result=mask.type.element)
        )
        return self.code.when(some, then, lambda: otherwise)


def _like(a: Value, n: int) -> Value:
    element = a.type.element if isinstance(a.type, ll.VectorType) else a.type
    one = ll.Constant(element, n)
    count = lanes_of(a)
    return one if count == 1 else ll.Constant(a.type, [one] * count)


# element type → that of the lanes of a value; in memory a bool is a byte
ELEMENTS: dict[str, Any] = {
    "bool": ll.IntType(1),
    "f32": F32,
    "f64": F64,
    "f16": ll.HalfType(),
    "bf16": ll.IntType(16),
} | {f"{sign}{bits}": ll.IntType(bits) for sign in "iu" for bits in (8, 16, 32, 64)}


def lane_convert(v: Lanes, x: Value, source: str, target: str) -> Value:
    """A value of the type `source`, which is not `target`, as one of that."""
    if source == "bf16":
        x = _from_bf16(v, x)
        return x if target == "f32" else lane_convert(v, x, "f32", target)
    if target == "bf16":
        return _to_bf16(v, x if source == "f32" else lane_convert(v, x, source, "f32"))
    kinds = DTYPES[source][1], DTYPES[target][1]
    if target == "bool":
        return _to_bool(v, x, kinds[0])
    if kinds == ("f", "f"):
        wider = DTYPES[target][0] > DTYPES[source][0]
        b = v.code.builder
        return (b.fpext if wider else b.fptrunc)(x, vector(ELEMENTS[target], v.lanes))
    if kinds[0] == "f":
        return _to_integer(v, x, kinds[1], ELEMENTS[target])
    return _from_integer(v, x, source, target)


def _to_bool(v: Lanes, x: Value, kind: str) -> Value:
    zero = v.code.zero(x.type.element if v.lanes > 1 else x.type, v.lanes)
    if kind == "f":
        return v.code.builder.fcmp_unordered("!=", x, zero)
    return v.code.builder.icmp_unsigned("!=", x, zero)


def _to_integer(v: Lanes, x: Value, kind: str, element: Any) -> Value:
    """The ends by comparisons: LLVM's own saturating conversion goes lane by lane on x86."""
    b = v.code.builder
    if _lane(x) == ELEMENTS["f16"]:  # has no vector instructions of its own
        return _to_integer(v, b.fpext(x, vector(F32, v.lanes)), kind, element)
    floats = Lanes(v.code, v.lanes, _lane(x))
    bits = element.width
    low, end = (0.0, 2.0**bits) if kind == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
    if bits <= 16:  # by 32 bits; both ends are numbers of every float type
        number = floats.select(floats.test("==", x, x), x, floats.c(0.0))
        number = floats.least(floats.c(low), floats.most(floats.c(end - 1), number))
        return b.trunc(b.fptosi(number, vector(ll.IntType(32), v.lanes)), vector(element, v.lanes))
    inside = floats.least(
        floats.c(low), floats.select(floats.test("<", x, floats.c(end)), x, floats.c(0.0))
    )
    wanted = vector(element, v.lanes)
    integer = (b.fptoui if kind == "u" else b.fptosi)(inside, wanted)
    last = v.code.constant(element, int(end) - 1, v.lanes)
    return floats.select(floats.test(">=", x, floats.c(end)), last, integer)


def lane_nearest(v: Lanes, x: Value, zero: int, target: str) -> Value:
    """round_even(x) + zero as a short integer, saturated, NaN as 0: one addition rounds to what the
    last bits of the sum then are, as 1.5 · 2^23 and more has none behind the point."""
    b, bits = v.code.builder, ELEMENTS[target].width
    low, high = (0, 2**bits - 1) if target[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if low:
        x = v.select(v.test("==", x, x), x, v.c(-zero))
    least, most = v.c(low - zero), v.c(high - zero)
    x = v.select(v.test(">", x, least), x, least)  # NaN is the least
    x = v.select(v.test("<", x, most), x, most)
    even = zero if zero % 2 == 0 else 0  # an odd one would turn ties
    whole = v.bits(v.add(x, v.c(1.5 * 2**23 + even)))
    return b.trunc(
        whole if even == zero else v.plus(whole, zero), vector(ELEMENTS[target], v.lanes)
    )


def _lane(x: Value) -> Any:
    return x.type.element if isinstance(x.type, ll.VectorType) else x.type


def _from_integer(v: Lanes, x: Value, source: str, target: str) -> Value:
    b, wanted = v.code.builder, vector(ELEMENTS[target], v.lanes)
    signed = DTYPES[source][1] == "i"
    if DTYPES[target][1] == "f":
        return (b.sitofp if signed else b.uitofp)(x, wanted)
    have = 1 if source == "bool" else DTYPES[source][0]
    bits = DTYPES[target][0]
    if bits == have:
        return x
    if bits < have:
        return b.trunc(x, wanted)
    return (b.sext if signed else b.zext)(x, wanted)


def _from_bf16(v: Lanes, x: Value) -> Value:
    wide = v.code.builder.zext(x, vector(ll.IntType(32), v.lanes))
    return v.float_of(v.shl(wide, 16))


def _to_bf16(v: Lanes, x: Value) -> Value:
    """Half of what is cut off is added first, less one where the last bit kept is even."""
    b, bits = v.code.builder, v.bits(x)
    last = v.masked(v.lshr(bits, 16), 1)
    nearest = v.lshr(b.add(v.plus(bits, 0x7FFF), last), 16)
    quiet = b.or_(v.lshr(bits, 16), v.i(0x40))  # a NaN may have no bit left above
    word = v.select(v.test("!=", x, x), quiet, nearest)
    return b.trunc(word, vector(ll.IntType(16), v.lanes))


def lane_type(dtype: str) -> Any:
    """The type of a lane; NoNest where kernels have none."""
    if dtype not in ELEMENTS:
        raise NoNest(f"kernels have no {dtype}")
    return ELEMENTS[dtype]


def memory(dtype: str) -> Any:
    """The type of an element in memory, where a bool is a byte; NoNest where kernels have none."""
    return ll.IntType(8) if dtype == "bool" else lane_type(dtype)


def loaded(code: Code, x: Value, dtype: str) -> Value:
    """A loaded vector as a value: a mask of the bytes of bools."""
    if dtype != "bool":
        return x
    zero = code.zero(ll.IntType(8), lanes_of(x))
    return code.builder.icmp_unsigned("!=", x, zero)


def stored(code: Code, x: Value, dtype: str) -> Value:
    """A value as it is stored: undoes `loaded`."""
    return code.builder.zext(x, vector(ll.IntType(8), lanes_of(x))) if dtype == "bool" else x


def memory_constant(code: Code, value: Any, dtype: str) -> Value:
    """A Python scalar as one element in memory."""
    if dtype == "bf16":
        import ml_dtypes
        import numpy as np

        value = int(np.asarray(value, ml_dtypes.bfloat16).view(np.uint16))
    elif DTYPES[dtype][1] != "f":
        value = int(value)
    return code.constant(memory(dtype), value)


WORDS = 16  # lanes of 32 bits that are one vector

Function = Callable[..., Value]


def _emit(name: str) -> Function:
    return lambda v, *xs: getattr(v.code.builder, name)(*xs)


def _intrinsic(name: str) -> Function:
    return lambda v, a, b: v.code.intrinsic(name, a, b)


def _compare(how: str, signed: bool) -> Function:
    name = "icmp_signed" if signed else "icmp_unsigned"
    return lambda v, a, b: getattr(v.code.builder, name)(how, a, b)


def _integer_like(v: Lanes, x: Value, value: int) -> Value:
    kind = x.type.element if v.lanes > 1 else x.type
    return v.code.constant(kind, value, v.lanes)


def _width(v: Lanes, x: Value) -> int:
    return int((x.type.element if v.lanes > 1 else x.type).width)


def _abs(v: Lanes, x: Value) -> Value:
    b = v.code.builder
    return v.select(b.icmp_signed("<", x, _integer_like(v, x, 0)), b.neg(x), x)


def _sign(v: Lanes, x: Value) -> Value:
    b, zero, one = v.code.builder, _integer_like(v, x, 0), _integer_like(v, x, 1)
    positive = v.select(b.icmp_signed(">", x, zero), one, zero)
    return v.select(b.icmp_signed("<", x, zero), _integer_like(v, x, -1), positive)


def _sign_unsigned(v: Lanes, x: Value) -> Value:
    some = v.code.builder.icmp_unsigned("!=", x, _integer_like(v, x, 0))
    return v.select(some, _integer_like(v, x, 1), _integer_like(v, x, 0))


def _divided(rem: bool, signed: bool) -> Function:
    """Division with the operands that trap put aside."""

    def function(v: Lanes, a: Value, d: Value) -> Value:
        b = v.code.builder
        zero = b.icmp_unsigned("==", d, _integer_like(v, d, 0))
        safe = v.select(zero, _integer_like(v, d, 1), d)
        if not signed:
            result = (b.urem if rem else b.udiv)(a, safe)
            return v.select(zero, a if rem else _integer_like(v, a, -1), result)
        minus = b.icmp_signed("==", d, _integer_like(v, d, -1))
        safe = v.select(minus, _integer_like(v, d, 1), safe)
        result = (b.srem if rem else b.sdiv)(a, safe)
        result = v.select(minus, _integer_like(v, a, 0) if rem else b.neg(a), result)
        return v.select(zero, a if rem else _integer_like(v, a, -1), result)

    return function


def _shifted(name: str) -> Function:
    def function(v: Lanes, a: Value, n: Value) -> Value:
        b, width = v.code.builder, _width(v, a)
        if width < 32 and v.lanes <= WORDS and not isinstance(n, ll.Constant):
            return wide(v, a, n)
        inside = b.icmp_unsigned("<", n, _integer_like(v, n, width))
        safe = v.select(inside, n, _integer_like(v, n, width - 1))
        result = getattr(b, name)(a, safe)
        return result if name == "ashr" else v.select(inside, result, _integer_like(v, a, 0))

    def wide(v: Lanes, a: Value, n: Value) -> Value:
        """Shift as 32 bits: x86 has none of bytes. By 31 nothing is left of a short number."""
        b, words = v.code.builder, vector(I32, v.lanes)
        a32 = (b.sext if name == "ashr" else b.zext)(a, words)
        most = v.code.constant(I32, 31, v.lanes)
        n32 = v.code.intrinsic("llvm.umin", b.zext(n, words), most)
        return b.trunc(getattr(b, name)(a32, n32), a.type)

    return function


def _clamp(signed: bool) -> Function:
    low, high = ("llvm.smax", "llvm.smin") if signed else ("llvm.umax", "llvm.umin")
    return lambda v, a, x, z: v.code.intrinsic(high, v.code.intrinsic(low, a, x), z)


_BITS: dict[str, Function] = {
    "and": _emit("and_"),
    "or": _emit("or_"),
    "xor": _emit("xor"),
    "not": _emit("not_"),
    "select": Lanes.select,
    "eq": _compare("==", True),
    "ne": _compare("!=", True),
}


def _ordered(signed: bool) -> dict[str, Function]:
    signs = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    return {name: _compare(sign, signed) for name, sign in signs.items()}


def _numbers(signed: bool) -> dict[str, Function]:
    letter = "s" if signed else "u"
    return (
        _BITS
        | _ordered(signed)
        | {
            "add": _emit("add"),
            "sub": _emit("sub"),
            "mul": _emit("mul"),
            "neg": _emit("neg"),
            "div": _divided(False, signed),
            "rem": _divided(True, signed),
            "max": _intrinsic(f"llvm.{letter}max"),
            "min": _intrinsic(f"llvm.{letter}min"),
            "abs": _abs if signed else lambda v, x: x,
            "sign": _sign if signed else _sign_unsigned,
            "clamp": _clamp(signed),
            "shift_left": _shifted("shl"),
            "shift_right_arithmetic": _shifted("ashr"),
            "shift_right_logical": _shifted("lshr"),
        }
    )


SIGNED = _numbers(True)
UNSIGNED = _numbers(False)
BOOLS: dict[str, Function] = (
    _BITS
    | _ordered(False)
    | {
        "add": _emit("or_"),
        "max": _emit("or_"),
        "mul": _emit("and_"),
        "min": _emit("and_"),
    }
)
