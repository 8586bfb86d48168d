"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall
from eqsat.frontends.onnxgraph.registry import operator

operator("MatMul", newest=13)(lambda c: c.xp.matmul(c[0], c[1]))


@operator("Gemm", newest=13)
def gemm(c: OnnxCall) -> Any:
    """alpha A B + beta C."""
    a = c[0].T if c.attribute("transA", 0) else c[0]
    b = c[1].T if c.attribute("transB", 0) else c[1]
    found = scaled(a @ b, c.attribute("alpha", 1.0))
    return found + scaled(c[2], c.attribute("beta", 1.0)) if c.has(2) else found


def scaled(x: Any, factor: float) -> Any:
    """factor · x in x's type."""
    return x if factor == 1 else (x * factor).astype(x.dtype)


@operator("MatMulInteger", newest=10)
def matmul_integer(c: OnnxCall) -> Any:
    a, b = c[0], c[1]
    return integer_product(c, a, b, _row_zero(c, c.get(2), a), c.get(3))


def _row_zero(c: OnnxCall, zero: Any | None, a: Any) -> Any | None:
    """The zero point of the left operand, one per row if it is a vector."""
    if zero is None or zero.ndim != 1 or a.ndim < 2 or zero.shape[0] == 1:
        return zero
    return zero[:, None]


def integer_product(c: OnnxCall, a: Any, b: Any, a_zero: Any | None, b_zero: Any | None) -> Any:
    """(a - a_zero) (b - b_zero) in 32 bits; without zero points a product of small integers."""
    small = a.dtype == b.dtype
    a = a if a_zero is None and small else without_zero(a, a_zero)
    b = b if b_zero is None and small else without_zero(b, b_zero)
    if a.dtype != b.dtype:
        a, b = a.astype(np.int32), b.astype(np.int32)
    return c.xp.matmul(a, b, preferred_element_type=np.int32)


def without_zero(x: Any, zero: Any | None) -> Any:
    """x - zero in 32 bits."""
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero.astype(np.int32)
