"""Reduction of large angles: x modulo π/2 from as many bits of 2/π as its exponent asks for.

Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983.
"""

from __future__ import annotations

import itertools
import math

from eqsat.execute.kernels.kinds import I32, I64, Value, vector
from eqsat.execute.kernels.lanes import Lanes

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
    found = [_word(v, word, at) for at in range(4)]
    up = b.zext(shift, vector(I64, v.lanes))
    pairs = [b.or_(v.shl(high, 32), low) for high, low in itertools.pairwise(found)]
    return [v.lshr(b.shl(p, up), 32) for p in pairs]


def _word(v: Lanes, word: Value, offset: int) -> Value:
    """_WORDS[word + offset], word from 0 to 4."""
    chosen = v.wide.i(_WORDS[offset])
    for i in range(1, len(_WORDS) - 3):
        here = v.code.builder.icmp_unsigned("==", word, v.i(i))
        chosen = v.select(here, v.wide.i(_WORDS[i + offset]), chosen)
    return chosen
