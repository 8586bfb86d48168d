"""Functions of integers and bools as vector code, with XLA's meaning of every operand.

Arithmetic wraps. x / 0 has all bits set and x rem 0 is x; the lowest number over -1 is itself.
A shift by as many bits as there are, or more, leaves zeros, or the sign.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ll

from eqsat.execute.kernels.kinds import I32, Value, vector
from eqsat.execute.kernels.lanes import Lanes

WORDS = 16  # lanes of 32 bits that are one vector

Function = Callable[..., Value]


def _emit(name: str) -> Function:
    return lambda v, *xs: getattr(v.code.builder, name)(*xs)


def _intrinsic(name: str) -> Function:
    return lambda v, a, b: v.code.intrinsic(name, a, b)


def _compare(how: str, signed: bool) -> Function:
    name = "icmp_signed" if signed else "icmp_unsigned"
    return lambda v, a, b: getattr(v.code.builder, name)(how, a, b)


def _like(v: Lanes, x: Value, value: int) -> Value:
    kind = x.type.element if v.lanes > 1 else x.type
    return v.code.constant(kind, value, v.lanes)


def _width(v: Lanes, x: Value) -> int:
    return int((x.type.element if v.lanes > 1 else x.type).width)


def _abs(v: Lanes, x: Value) -> Value:
    b = v.code.builder
    return v.select(b.icmp_signed("<", x, _like(v, x, 0)), b.neg(x), x)


def _sign(v: Lanes, x: Value) -> Value:
    b, zero, one = v.code.builder, _like(v, x, 0), _like(v, x, 1)
    positive = v.select(b.icmp_signed(">", x, zero), one, zero)
    return v.select(b.icmp_signed("<", x, zero), _like(v, x, -1), positive)


def _sign_unsigned(v: Lanes, x: Value) -> Value:
    some = v.code.builder.icmp_unsigned("!=", x, _like(v, x, 0))
    return v.select(some, _like(v, x, 1), _like(v, x, 0))


def _divided(rem: bool, signed: bool) -> Function:
    """Division with the operands that trap put aside."""

    def function(v: Lanes, a: Value, d: Value) -> Value:
        b = v.code.builder
        zero = b.icmp_unsigned("==", d, _like(v, d, 0))
        safe = v.select(zero, _like(v, d, 1), d)
        if not signed:
            result = (b.urem if rem else b.udiv)(a, safe)
            return v.select(zero, a if rem else _like(v, a, -1), result)
        minus = b.icmp_signed("==", d, _like(v, d, -1))
        safe = v.select(minus, _like(v, d, 1), safe)
        result = (b.srem if rem else b.sdiv)(a, safe)
        result = v.select(minus, _like(v, a, 0) if rem else b.neg(a), result)
        return v.select(zero, a if rem else _like(v, a, -1), result)

    return function


def _shifted(name: str) -> Function:
    def function(v: Lanes, a: Value, n: Value) -> Value:
        b, width = v.code.builder, _width(v, a)
        if width < 32 and v.lanes <= WORDS and not isinstance(n, ll.Constant):
            return wide(v, a, n)
        inside = b.icmp_unsigned("<", n, _like(v, n, width))
        safe = v.select(inside, n, _like(v, n, width - 1))
        result = getattr(b, name)(a, safe)
        return result if name == "ashr" else v.select(inside, result, _like(v, a, 0))

    def wide(v: Lanes, a: Value, n: Value) -> Value:
        """As 32 bits: x86 has no such shifts of bytes. By 31 nothing is left of a short number."""
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
