"""Vectors of bf16 two at once: each word of 32 bits holds two elements, an f32's upper half each.

To spread the elements of one vector over words is a shuffle; a shift and a mask need none.
"""

from __future__ import annotations

from eqsat.execute.kernels.ir import Code
from eqsat.execute.kernels.kinds import I32, TYPES, Value, constants, lanes_of, vector

F32 = TYPES["f32"]
UPPER = 0xFFFF0000


def even_and_odd(code: Code, x: Value) -> tuple[Value, Value]:
    """Of a vector of bf16 the elements of even and of odd number, as f32."""
    lanes, b = lanes_of(x) // 2, code.builder
    words = b.bitcast(x, vector(I32, lanes))
    even = b.shl(words, constants(I32, [16] * lanes))
    odd = b.and_(words, constants(I32, [UPPER] * lanes))
    return b.bitcast(even, vector(F32, lanes)), b.bitcast(odd, vector(F32, lanes))


def in_order(code: Code, even: Value, odd: Value) -> tuple[Value, Value]:
    """The elements of both, in order: the first half of them, the second."""
    lanes = lanes_of(even)
    order = [n // 2 + lanes * (n % 2) for n in range(2 * lanes)]
    first, second = (constants(I32, order[n : n + lanes]) for n in (0, lanes))
    shuffle = code.builder.shuffle_vector
    return shuffle(even, odd, first), shuffle(even, odd, second)
