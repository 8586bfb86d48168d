"""f32 functions computed in f64: powers, hyperbolic functions, arcs and roots.

Rare ones, where twice the width costs less than two parts of every number. The fits are of this
project, as those of `approximations`; their errors, below 1e-10, vanish in the rounding to f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from eqsat.execute.kernels.kinds import Value
from eqsat.execute.kernels.lanes import Lanes

# largest error in units in the last place of the correctly rounded f32
ULPS = dict.fromkeys(
    (
        "pow",
        "cbrt",
        "sinh",
        "cosh",
        "asin",
        "acos",
        "atan",
        "atan2",
        "asinh",
        "acosh",
        "atanh",
    ),
    0.51,
)

_INF = math.inf
_ROUND = 1.5 * 2.0**52
_EXP2 = (  # (2ʳ - 1) / r
    0.6931471805481748,
    0.2402265069811787,
    0.05550410935431586,
    0.009618128614904813,
    0.0013333454695075783,
    0.0001540382595831395,
    1.5309201371181332e-05,
    1.31788996584942e-06,
)
_LOG = (  # (atanh(s) / s - 1) / s² in s²
    0.3333333333793391,
    0.19999997798237382,
    0.1428605605068757,
    0.11088027926926673,
    0.09793098230039897,
)
_ATAN = (  # (atan(t) / t - 1) / t² in t²
    -0.33333333331696446,
    0.199999996855131,
    -0.14285693590559156,
    0.11110449853715809,
    -0.09079135979591949,
    0.07568528845052734,
    -0.05891018768728803,
    0.03089413455351544,
)
_SINH = (  # (sinh(x) / x - 1) / x² in x², |x| at most 1
    0.16666666667069113,
    0.00833333327633949,
    0.00019841296046037532,
    2.755206399327934e-06,
    2.5529822776018417e-08,
)


def _through(function: Callable[..., Value]) -> Callable[..., Value]:
    """The f32 function of one in f64."""

    def narrow(v: Lanes, *xs: Value) -> Value:
        return v.narrowed(function(v.wide, *(v.widened(x) for x in xs)))

    return narrow


# ---- in f64 --------------------------------------------------------------------------------------
def _exp2(v: Lanes, x: Value) -> Value:
    """2ˣ for |x| < 1000, of which f32 keeps what it can."""
    x = v.most(v.c(1000.0), v.least(v.c(-1000.0), x))
    z = v.add(x, v.c(_ROUND))
    r = v.sub(x, v.sub(z, v.c(_ROUND)))
    p = v.fma(r, v.poly(r, _EXP2), v.c(1.0))
    return v.mul(p, v.float_of(v.shl(v.plus(v.bits(z), 1023), 52)))


def _log(v: Lanes, x: Value) -> tuple[Value, Value]:
    """k and the logarithm of m of a positive finite x = 2ᵏ · m, m in [√½, √2)."""
    b = v.bits(x)
    e = v.ashr(v.plus(b, -0x3FE6A09E667F3BCD), 52)
    f = v.sub(v.float_of(v.code.builder.sub(b, v.shl(e, 52))), v.c(1.0))
    s = v.div(f, v.add(f, v.c(2.0)))
    z = v.mul(s, s)
    twice = v.add(s, s)
    return v.rounded(e), v.fma(v.mul(twice, z), v.poly(z, _LOG), twice)


def _log2(v: Lanes, x: Value) -> Value:
    k, y = _log(v, x)
    return v.fma(y, v.c(math.log2(math.e)), k)


def _ln(v: Lanes, x: Value) -> Value:
    k, y = _log(v, x)
    return v.fma(k, v.c(math.log(2)), y)


def _atan2(v: Lanes, y: Value, x: Value) -> Value:
    """The angle of (x, y), by the octant it lies in and half of that."""
    a, b = v.abs(y), v.abs(x)
    steep = v.test(">", a, b)
    low, high = v.select(steep, b, a), v.select(steep, a, b)
    t = v.div(low, high)
    t = v.select(v.test("==", low, v.c(0.0)), v.c(0.0), t)  # 0 / 0
    t = v.select(v.test("==", low, v.c(_INF)), v.c(1.0), t)  # inf / inf
    outer = v.test(">", t, v.c(math.tan(math.pi / 8)))
    turned = v.div(v.sub(t, v.c(1.0)), v.add(t, v.c(1.0)))
    t = v.select(outer, turned, t)
    z = v.mul(t, t)
    r = v.fma(v.mul(t, z), v.poly(z, _ATAN), t)
    r = v.add(r, v.select(outer, v.c(math.pi / 4), v.c(0.0)))
    r = v.select(steep, v.sub(v.c(math.pi / 2), r), r)
    left = v.code.builder.icmp_signed("<", v.bits(x), v.i(0))
    r = v.select(left, v.sub(v.c(math.pi), r), r)
    ordered = v.code.builder.fcmp_ordered("ord", x, y)
    return v.select(ordered, v.copysign(r, y), v.add(x, y))


def _atan(v: Lanes, x: Value) -> Value:
    return _atan2(v, x, v.c(1.0))


def _asin(v: Lanes, x: Value) -> Value:
    return _atan2(v, x, _other_side(v, x))


def _acos(v: Lanes, x: Value) -> Value:
    return _atan2(v, _other_side(v, x), x)


def _other_side(v: Lanes, x: Value) -> Value:
    """√(1 - x²), NaN beyond ±1."""
    return v.sqrt(v.mul(v.sub(v.c(1.0), x), v.add(v.c(1.0), x)))


def _sinh(v: Lanes, x: Value) -> Value:
    a = v.abs(x)
    z = v.mul(x, x)
    near = v.fma(v.mul(x, z), v.poly(z, _SINH), x)
    e = _exp2(v, v.mul(a, v.c(math.log2(math.e))))
    far = v.copysign(v.mul(v.c(0.5), v.sub(e, v.div(v.c(1.0), e))), x)
    return v.select(v.test("<", a, v.c(1.0)), near, far)


def _cosh(v: Lanes, x: Value) -> Value:
    e = _exp2(v, v.mul(v.abs(x), v.c(math.log2(math.e))))
    return v.mul(v.c(0.5), v.add(e, v.div(v.c(1.0), e)))


def _asinh(v: Lanes, x: Value) -> Value:
    a = v.abs(x)
    y = _ln(v, v.add(a, v.sqrt(v.fma(a, a, v.c(1.0)))))
    z = v.mul(x, x)
    near = v.fma(v.mul(x, z), v.c(-1 / 6), x)
    y = v.copysign(v.select(v.test("<", a, v.c(1e-3)), near, y), x)
    return v.select(v.test("<", a, v.c(_INF)), y, x)


def _acosh(v: Lanes, x: Value) -> Value:
    y = _ln(v, v.add(x, v.sqrt(v.fma(x, x, v.c(-1.0)))))
    y = v.select(v.test("<", x, v.c(_INF)), y, x)
    return v.select(v.test("<", x, v.c(1.0)), v.c(math.nan), y)


def _atanh(v: Lanes, x: Value) -> Value:
    a = v.abs(x)
    y = v.mul(v.c(0.5), _ln(v, v.div(v.add(v.c(1.0), a), v.sub(v.c(1.0), a))))
    z = v.mul(x, x)
    near = v.fma(v.mul(x, z), v.c(1 / 3), x)
    y = v.select(v.test("<", a, v.c(1e-3)), near, v.copysign(y, x))
    y = v.select(v.test("==", a, v.c(1.0)), v.copysign(v.c(_INF), x), y)
    return v.select(v.test("<=", a, v.c(1.0)), y, v.c(math.nan))


def _cbrt(v: Lanes, x: Value) -> Value:
    a = v.abs(x)
    y = v.copysign(_exp2(v, v.mul(_log2(v, a), v.c(1 / 3))), x)
    plain = v.code.builder.and_(v.test("<", a, v.c(_INF)), v.test(">", a, v.c(0.0)))
    return v.select(plain, y, x)


def _pow(v: Lanes, x: Value, y: Value) -> Value:
    """xʸ by C's rules for zeros, infinities and NaN: 1 if y is 0 or x is 1, whatever the other."""
    b = v.code.builder
    a = v.abs(x)
    r = _exp2(v, v.mul(_log2(v, a), y))
    # |x| of 0 and inf are the ends of r, inverted where y is negative
    end = v.select(v.test("<", y, v.c(0.0)), v.div(v.c(1.0), a), a)
    ended = b.or_(v.test("==", a, v.c(0.0)), v.test("==", a, v.c(_INF)))
    r = v.select(ended, end, r)
    whole = v.test("==", v.code.intrinsic("llvm.floor", y), y)
    half = v.mul(y, v.c(0.5))
    odd = b.and_(whole, v.test("!=", v.code.intrinsic("llvm.floor", half), half))
    negative = b.icmp_signed("<", v.bits(x), v.i(0))
    r = v.select(b.and_(odd, negative), v.neg(r), r)
    rootless = b.and_(v.test("<", x, v.c(0.0)), v.test("<", a, v.c(_INF)))
    finite = v.test("<", v.abs(y), v.c(_INF))
    undefined = b.and_(b.and_(rootless, finite), b.not_(whole))
    r = v.select(undefined, v.c(math.nan), r)
    # of an infinite y: 1 at |x| = 1, else 0 or inf
    grows = b.xor(v.test(">", a, v.c(1.0)), v.test("<", y, v.c(0.0)))
    limit = v.select(grows, v.c(_INF), v.c(0.0))
    limit = v.select(v.test("==", a, v.c(1.0)), v.c(1.0), limit)
    r = v.select(finite, r, limit)
    r = v.select(b.fcmp_ordered("ord", x, y), r, v.add(x, y))
    ones = b.or_(v.test("==", y, v.c(0.0)), v.test("==", x, v.c(1.0)))
    return v.select(ones, v.c(1.0), r)


def _flushed(function: Callable[..., Value]) -> Callable[..., Value]:
    """Of operands whose denormals are 0, as they are to XLA: in f64 they would be numbers."""

    def flushed(v: Lanes, *xs: Value) -> Value:
        small = [v.test("<", v.abs(x), v.c(2.0**-126)) for x in xs]
        zero = v.c(0.0)
        return function(
            v, *(v.select(s, v.copysign(zero, x), x) for s, x in zip(small, xs, strict=True))
        )

    return flushed


power = _through(_flushed(_pow))
cbrt = _through(_flushed(_cbrt))
sinh = _through(_sinh)
cosh = _through(_cosh)
asin = _through(_asin)
acos = _through(_acos)
atan = _through(_atan)
atan2 = _through(_flushed(_atan2))
asinh = _through(_asinh)
acosh = _through(_acosh)
atanh = _through(_atanh)
