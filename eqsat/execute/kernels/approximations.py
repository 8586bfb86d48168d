"""Minimax approximations of f32 functions as vector code: polynomials and quotients of them.

Coefficients are minimax fits of this project (Lawson's iteration on Chebyshev nodes, mpmath as the
reference), rounded to f32 one by one. `ULPS` states each function's bound against float64, which
tests measure. Results below the smallest normal are 0, as XLA's, which runs with denormals flushed.

Large angles are reduced modulo π/2 from as many bits of 2/π as their exponent asks for: Payne and
Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983.
"""

from __future__ import annotations

import itertools
import math

from eqsat.execute.kernels.kinds import I32, I64, Value, vector
from eqsat.execute.kernels.lanes import Lanes

# largest error in units in the last place of the correctly rounded f32
ULPS = {
    "exp": 1.5,
    "exp2": 1.25,
    "expm1": 2.0,
    "log": 1.0,
    "log1p": 2.0,
    "rsqrt": 1.5,
    "logistic": 2.5,
    "tanh": 5.0,
    "erf": 5.5,
    "erfc": 6.0,
    "sin": 1.5,
    "cos": 1.6,
    "tan": 3.5,
    "erf_inv": 4.0,
}

_INF = math.inf
_SMALLEST = 2.0**-126
_ROUND = 1.5 * 2**23  # added to a float of at most 22 bits, it leaves the nearest integer below
_LN2 = (0.6931471824645996, -1.9046542121259336e-09)
_EXP = (0.9999998, 0.50000554, 0.16661166, 0.041911345, 0.007796208, 0.0019472213)  # (eʳ - 1) / r
_EXP2 = (0.69314706, 0.2402291, 0.055486068, 0.009674083, 0.0012478862, 0.00021579543)
_EXPM1 = (0.49999994, 0.16666521, 0.04166827, 0.008368681, 0.0013820432)  # (eʳ - 1 - r) / r²
_LOG = (  # (log(1 + f) - f) / f²
    -0.49999988,
    0.33333325,
    -0.250016,
    0.20001961,
    -0.16608708,
    0.14182244,
    -0.13246477,
    0.12901847,
    -0.07609458,
)
_TANH = (  # tanh(x) / x in x²
    (
        1.0,
        0.13379205763339996,
        0.003493426600471139,
        2.0573463189066388e-05,
        1.3305152535281195e-08,
    ),
    (1.0, 0.46712520718574524, 0.02586876042187214, 0.0003282098041381687, 7.756331683594908e-07),
)
ERF_END = 3.92  # erf is 1 from here on
ERF = (  # erf(x) / x in x²
    (
        1.1283791065216064,
        0.19153940677642822,
        0.05287421867251396,
        0.003807751229032874,
        0.00028468866366893053,
        2.026126821874641e-06,
    ),
    (
        1.0,
        0.5030800700187683,
        0.11455530673265457,
        0.015054261311888695,
        0.0011706451186910272,
        3.783411375479773e-05,
    ),
)
_ERFCX = (  # exp(x²) · erfc(x)
    (1.0, 1.2392513751983643, 0.7324864268302917, 0.2296399474143982, 0.03288516029715538),
    (
        1.0,
        2.367631196975708,
        2.404062509536743,
        1.32701575756073,
        0.407052218914032,
        0.05828674137592316,
    ),
)
_ERF_INV = (  # erf⁻¹(x) / x in w - 2.5 and √w - 3, w = -log(1 - x²) (Giles, GPU Gems 4, 2011)
    (
        1.5014094197697179,
        0.24664074489115845,
        -0.004177690156738151,
        -0.0012537380741764795,
        0.00021858151396903655,
        -4.384945366037007e-06,
        -3.52189454108809e-06,
        3.424598691274827e-07,
        2.78457796078902e-08,
    ),
    (
        2.83297700794972,
        1.0016741289661686,
        0.009434907784114977,
        -0.00762474777841702,
        0.005765792772191799,
        -0.003662000243436367,
        0.0012940242938136142,
        8.826425787877363e-05,
        -0.00016335103220903953,
    ),
)
_SIN = (-0.16666655, 0.008332189, -0.00019518188)  # (sin(r) - r) / r³ in r²
_COS = (0.041666646, -0.0013887301, 2.4430668e-05)  # (cos(r) - 1 + r²/2) / r⁴ in r²
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_FAR = 2.0**17  # beyond, angles are reduced with more bits of π


def exp(v: Lanes, x: Value) -> Value:
    """eˣ; 0 below -87.34, infinite above 88.72."""
    x = v.most(v.c(88.8), v.least(v.c(-87.5), x))
    z = v.add(v.fma(x, v.c(math.log2(math.e)), v.c(-0.5)), v.c(_ROUND))
    k = v.sub(z, v.c(_ROUND))  # the integer below, so that all powers that count are floats
    r = v.fma(k, v.c(-_LN2[0]), x)
    r = v.fma(k, v.c(-_LN2[1]), r)
    return v.mul(v.fma(r, v.poly(r, _EXP), v.c(1.0)), _power_of_two(v, z))


def _power_of_two(v: Lanes, z: Value) -> Value:
    """2ᵏ of z = _ROUND + k, k from -127, whose power is 0, to 128, whose power is infinite."""
    return v.float_of(v.shl(v.plus(v.bits(z), 127), 23))


def exp2(v: Lanes, x: Value) -> Value:
    """2ˣ; 0 below -126."""
    x = v.most(v.c(128.0), v.least(v.c(-126.5), x))
    z = v.add(v.add(x, v.c(-0.5)), v.c(_ROUND))
    r = v.sub(x, v.sub(z, v.c(_ROUND)))
    return v.mul(v.fma(r, v.poly(r, _EXP2), v.c(1.0)), _power_of_two(v, z))


def expm1(v: Lanes, x: Value) -> Value:
    """eˣ - 1 = 2ᵏ · (eʳ - 1) + (2ᵏ - 1), |r| at most half of log 2."""
    inside = v.most(v.c(89.0), v.least(v.c(-80.0), x))
    z = v.fma(inside, v.c(math.log2(math.e)), v.c(_ROUND))
    k = v.sub(z, v.c(_ROUND))
    r = v.fma(k, v.c(-_LN2[0]), inside)
    r = v.fma(k, v.c(-_LN2[1]), r)
    half = _power_of_two(v, v.sub(z, v.c(1.0)))
    p = v.fma(v.mul(r, r), v.poly(r, _EXPM1), r)
    halved = v.fma(half, p, v.sub(half, v.c(0.5)))
    return v.copysign(v.add(halved, halved), x)


def log(v: Lanes, x: Value) -> Value:
    """Natural logarithm; -inf of 0 and of what is flushed to it, NaN below."""
    b = v.bits(x)
    # the exponent at which the mantissa lies in [√½, √2)
    e = v.ashr(v.plus(b, -0x3F3504F3), 23)
    m = v.float_of(v.code.builder.sub(b, v.shl(e, 23)))
    k, f = v.rounded(e), v.sub(m, v.c(1.0))
    p = v.fma(v.mul(f, f), v.poly(f, _LOG), v.mul(k, v.c(_LN2[1])))
    y = v.fma(k, v.c(_LN2[0]), v.add(f, p))
    y = v.select(v.test("<", x, v.c(_INF)), y, x)  # inf and NaN
    y = v.select(v.test("<", x, v.c(_SMALLEST)), v.c(-_INF), y)
    return v.select(v.test("<=", x, v.c(-_SMALLEST)), v.c(math.nan), y)


def log1p(v: Lanes, x: Value) -> Value:
    """log(1 + x) = log(u) + c / u for the rounded sum u and what it lost, c."""
    u = v.add(x, v.c(1.0))
    # what is lost is x - (u - 1) where 1 is the larger part, else 1 - (u - x)
    small = v.sub(x, v.sub(u, v.c(1.0)))
    large = v.sub(v.c(1.0), v.sub(u, x))
    lost = v.select(v.test("<", v.abs(x), v.c(1.0)), small, large)
    y = v.add(log(v, u), v.div(lost, u))
    plain = v.test("<", v.abs(y), v.c(_INF))  # not of -1 and of inf, where nothing is lost
    y = v.select(plain, y, log(v, u))
    return v.select(v.test("==", x, v.c(0.0)), x, y)


def rsqrt(v: Lanes, x: Value) -> Value:
    return v.div(v.c(1.0), v.sqrt(x))


def logistic(v: Lanes, x: Value) -> Value:
    """1 / (1 + e⁻ˣ)"""
    return v.div(v.c(1.0), v.add(v.c(1.0), exp(v, v.neg(x))))


def tanh(v: Lanes, x: Value) -> Value:
    return _odd_quotient(v, x, 9.02, _TANH)


def erf(v: Lanes, x: Value) -> Value:
    return _odd_quotient(v, x, ERF_END, ERF)


def _odd_quotient(
    v: Lanes, x: Value, end: float, parts: tuple[tuple[float, ...], tuple[float, ...]]
) -> Value:
    """x · P(x²) / Q(x²), which is no further from 0 than 1, and 1 from `end` on."""
    x = v.most(v.c(end), v.least(v.c(-end), x))
    square = v.mul(x, x)
    y = v.div(v.mul(x, v.poly(square, parts[0])), v.poly(square, parts[1]))
    return v.most(v.c(1.0), v.least(v.c(-1.0), y))


def erfc(v: Lanes, x: Value) -> Value:
    """1 - erf(x) = exp(-x²) · erfcx(|x|), and 2 minus that below 0."""
    a = v.most(v.c(10.0), v.abs(x))
    square = v.mul(a, a)
    lost = v.fma(a, a, v.neg(square))
    scaled = v.div(v.poly(a, _ERFCX[0]), v.poly(a, _ERFCX[1]))
    scaled = v.fma(v.neg(lost), scaled, scaled)  # exp(-lost) is 1 - lost
    y = v.mul(exp(v, v.neg(square)), scaled)
    return v.select(v.test("<", x, v.c(0.0)), v.sub(v.c(2.0), y), y)


def erf_inv(v: Lanes, x: Value) -> Value:
    """NaN beyond ±1, where it is infinite."""
    w = v.neg(log(v, v.mul(v.sub(v.c(1.0), x), v.add(v.c(1.0), x))))
    near = v.poly(v.sub(w, v.c(2.5)), _ERF_INV[0])
    far = v.poly(v.sub(v.sqrt(w), v.c(3.0)), _ERF_INV[1])
    y = v.mul(v.select(v.test("<", w, v.c(5.0)), near, far), x)
    return v.select(v.test("==", v.abs(x), v.c(1.0)), v.mul(x, v.c(_INF)), y)


# ---- angles --------------------------------------------------------------------------------------
def sin(v: Lanes, x: Value) -> Value:
    r, quadrant = _angle(v, x)
    y = _in_quadrant(v, r, quadrant)
    return v.select(v.test("==", x, v.c(0.0)), x, y)  # the sign of 0


def cos(v: Lanes, x: Value) -> Value:
    r, quadrant = _angle(v, x)
    return _in_quadrant(v, r, v.plus(quadrant, 1))


def tan(v: Lanes, x: Value) -> Value:
    r, quadrant = _angle(v, x)
    y = v.div(_in_quadrant(v, r, quadrant), _in_quadrant(v, r, v.plus(quadrant, 1)))
    return v.select(v.test("==", x, v.c(0.0)), x, y)


def _angle(v: Lanes, x: Value) -> tuple[Value, Value]:
    """r in ±π/4 and an integer with x = integer · π/2 + r; NaN for inf."""
    z = v.fma(x, v.c(2 / math.pi), v.c(_ROUND))
    k = v.sub(z, v.c(_ROUND))
    r = x
    for part in _HALF_PI:
        r = v.fma(k, v.c(-part), r)
    far = v.test(">=", v.abs(x), v.c(_FAR))
    near = v.bits(z)

    def with_far() -> list[Value]:

        far_r, quadrant = far_angle(v, x)
        return [v.select(far, far_r, r), v.select(far, quadrant, near)]

    r, quadrant = v.where_any(far, with_far, [r, near])
    return r, quadrant


def _in_quadrant(v: Lanes, r: Value, quadrant: Value) -> Value:
    """sin(quadrant · π/2 + r)"""
    s = v.mul(r, r)
    sine = v.fma(v.mul(r, s), v.poly(s, _SIN), r)
    cosine = v.fma(v.mul(s, s), v.poly(s, _COS), v.fma(s, v.c(-0.5), v.c(1.0)))
    odd = v.code.builder.icmp_unsigned("!=", v.masked(quadrant, 1), v.i(0))
    sign = v.shl(v.masked(quadrant, 2), 30)
    y = v.select(odd, cosine, sine)
    return v.float_of(v.code.builder.xor(v.bits(y), sign))


# 32 zero bits, then those of 2/π behind its point
_WORDS = (
    0x00000000,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)


def far_angle(v: Lanes, x: Value) -> tuple[Value, Value]:
    """r in ±π/4 and an integer with x = integer · π/2 + r, for |x| from 2¹⁷ on; NaN for inf.

    x is m · 2ᵉ with an integer m of 24 bits. Of 2/π the bits count from which on the product is
    below 4: 96 of them times m, modulo 2⁹⁶, are the quadrant in two bits and its fraction.
    """
    b = v.code.builder
    bits = v.bits(x)
    mantissa = b.or_(v.masked(bits, 0x7FFFFF), v.i(0x800000))
    m = b.zext(mantissa, vector(I64, v.lanes))
    # the first bit that counts lies at e - 1 = exponent - 127 - 23 - 1, from 1; 32 zeros precede it
    first = v.plus(v.masked(v.lshr(bits, 23), 0xFF), -127 - 23 - 1 + 31)
    w = _window(v, first)
    product = b.add(v.shl(b.mul(m, w[0]), 32), b.mul(m, w[1]))
    product = b.add(product, v.lshr(b.mul(m, w[2]), 32))
    quadrant = v.lshr(v.plus(product, 1 << 61), 62)  # to the nearest
    fraction = b.sub(product, v.shl(quadrant, 62))
    wide = v.wide
    r = v.narrowed(wide.mul(wide.rounded(fraction), wide.c(math.pi / 2 * 2.0**-62)))
    sign = v.masked(bits, 1 << 31)
    r = v.float_of(b.xor(v.bits(r), sign))
    quadrant = b.trunc(quadrant, vector(I32, v.lanes))
    negative = b.icmp_signed("<", bits, v.i(0))
    quadrant = b.select(negative, b.sub(v.i(0), quadrant), quadrant)
    return v.add(r, v.sub(x, x)), quadrant  # inf - inf is NaN


def _window(v: Lanes, first: Value) -> list[Value]:
    """Three words of 32 bits of the table, from bit `first` on, each in 64."""
    b = v.code.builder
    word, shift = v.lshr(first, 5), v.masked(first, 31)
    words = [_word(v, word, at) for at in range(4)]
    up = b.zext(shift, vector(I64, v.lanes))
    pairs = [b.or_(v.shl(high, 32), low) for high, low in itertools.pairwise(words)]
    return [v.lshr(b.shl(p, up), 32) for p in pairs]


def _word(v: Lanes, word: Value, offset: int) -> Value:
    """_WORDS[word + offset], word from 0 to 4."""
    chosen = v.wide.i(_WORDS[offset])
    for i in range(1, len(_WORDS) - 3):
        here = v.code.builder.icmp_unsigned("==", word, v.i(i))
        chosen = v.select(here, v.wide.i(_WORDS[i + offset]), chosen)
    return chosen
