"""Conversions between element types as vector code, as XLA's ConvertElementType.

Float to integer truncates and saturates, NaN becomes 0; integers wrap; floats are rounded to the
nearest, ties to even. A bf16 is the upper half of an f32, held in 16 bits.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels.ir import Code
from eqsat.execute.kernels.kinds import Value, lanes_of, vector
from eqsat.execute.kernels.lanes import F32, F64, Lanes
from eqsat.model.nest import NoNest
from eqsat.model.tensor import DTYPES

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
    """What was loaded as a value: a mask of the bytes of bools."""
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
