"""Arithmetic on vectors of one width: what the approximations of functions are written in.

Floats are f32 (or f64, the same lanes twice as wide), integers of their bits. NaN goes through
`least` and `most`, which is what the order of their operands is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from eqsat.execute.kernels.ir import Code
from eqsat.execute.kernels.kinds import I32, I64, Value, lanes_of, vector

F32, F64 = ll.FloatType(), ll.DoubleType()


@dataclass(frozen=True)
class Lanes:
    """Vectors of `lanes` elements of a float type, written at the end of `code`."""

    code: Code
    lanes: int
    kind: Any = F32

    @property
    def wide(self) -> Lanes:
        """The same lanes in f64."""
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
