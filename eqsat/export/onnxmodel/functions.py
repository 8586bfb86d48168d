"""Functions of floats that ONNX has no op for, composed of ones it has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from eqsat.export.onnxmodel.graph import Value

if TYPE_CHECKING:
    from eqsat.export.onnxmodel.expressions import Body


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
