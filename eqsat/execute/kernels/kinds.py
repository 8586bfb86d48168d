"""Types and values of LLVM IR: elements of tensors, vectors of them, constants, and indices.

Indices are Python ints where they are known, i64 values where not: arithmetic on ints is done here,
so that a kernel's constant offsets cost no instruction.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from eqsat.model.nest import NoNest

Value = Any  # a value of llvmlite.ir, which has no type hints

I1, I8, I32, I64 = (ll.IntType(n) for n in (1, 8, 32, 64))
POINTER = ll.PointerType()
TYPES = {
    "f32": ll.FloatType(),
    "f64": ll.DoubleType(),
    "f16": ll.HalfType(),
    "bf16": ll.IntType(16),  # the upper half of an f32
    "bool": I8,  # a byte in memory
    "i8": I8,
    "u8": I8,
    "i16": ll.IntType(16),
    "i32": I32,
    "u32": I32,
    "i64": I64,
    "u64": I64,
}
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}
_BYTES = {"float": 4, "double": 8, "half": 2}


def memory_type(dtype: str) -> Any:
    """The type of an element in memory; NoNest for one that kernels do not read."""
    if dtype not in TYPES:
        raise NoNest(f"kernels read and write no {dtype}")
    return TYPES[dtype]


def nbytes(kind: Any) -> int:
    """Bytes of an element type in memory."""
    return _BYTES.get(str(kind)) or max(1, kind.width // 8)


def vector(kind: Any, lanes: int) -> Any:
    """The vector type of so many lanes; one lane is a scalar."""
    return kind if lanes == 1 else ll.VectorType(kind, lanes)


def lanes_of(value: Value) -> int:
    return value.type.count if isinstance(value.type, ll.VectorType) else 1


def mangled(kind: Any) -> str:
    """The type as names of LLVM's intrinsics spell it."""
    if isinstance(kind, ll.VectorType):
        return f"v{kind.count}{mangled(kind.element)}"
    if isinstance(kind, ll.PointerType):
        return "p0"
    return _SUFFIX.get(str(kind)) or str(kind)


def constants(kind: Any, values: Sequence[float]) -> Value:
    """A constant vector, or the scalar if there is one value."""
    ones = [ll.Constant(kind, x) for x in values]
    return ones[0] if len(ones) == 1 else ll.Constant(vector(kind, len(ones)), ones)


# ---- indices -------------------------------------------------------------------------------------
Index = Any  # int, or an i64 value


@dataclass
class IndexCode:
    """Index arithmetic in a function that is being written."""

    module: Any
    function: Any
    builder: Any  # llvmlite's

    def index(self, x: Index) -> Value:
        """The i64 value of an index."""
        return ll.Constant(I64, x) if isinstance(x, int) else x

    def _arithmetic(self, fold: Any, emit: Any, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return emit(self.index(a), self.index(b))

    def add(self, *terms: Index) -> Index:
        constant = sum(t for t in terms if isinstance(t, int))
        total: Index = None
        for t in terms:
            if not isinstance(t, int):
                total = t if total is None else self.builder.add(total, t, flags=("nsw",))
        if total is None:
            return constant
        return self.builder.add(total, self.index(constant), flags=("nsw",)) if constant else total

    def sub(self, a: Index, b: Index) -> Index:
        if isinstance(b, int):
            return self.add(a, -b)
        return self.builder.sub(self.index(a), b, flags=("nsw",))

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int):
            if isinstance(a, int) or b == 1:
                return a * b if isinstance(a, int) else a
            if b == 0:
                return 0
        return self.builder.mul(a, self.index(b), flags=("nsw",))

    def div(self, a: Index, b: int) -> Index:
        """Quotient of indices that are not negative."""
        return a if b == 1 else self._arithmetic(operator.floordiv, self.builder.udiv, a, b)

    def rem(self, a: Index, b: int) -> Index:
        """Remainder of indices that are not negative."""
        return 0 if b == 1 else self._arithmetic(operator.mod, self.builder.urem, a, b)

    def min(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("llvm.smin", self.index(a), self.index(b))

    def max(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.intrinsic("llvm.smax", self.index(a), self.index(b))

    def affine(self, base: Index, strides: Sequence[int], at: Sequence[Index]) -> Index:
        """base + Σ strides[i] · at[i]"""
        return self.add(base, *(self.mul(x, s) for s, x in zip(strides, at, strict=True) if s))

    def digits(self, number: Index, sizes: Sequence[int]) -> list[Index]:
        """The mixed-radix digits of a number, the last size fastest."""
        digits: list[Index] = []
        for size in reversed(sizes[1:]):
            digits.append(self.rem(number, size))
            number = self.div(number, size)
        return [*([number] if sizes else []), *reversed(digits)]

    def compare(self, how: str, a: Index, b: Index) -> Any:
        """A signed comparison of indices: a bool where both are known, else an i1."""
        if isinstance(a, int) and isinstance(b, int):
            return _COMPARE[how](a, b)
        return self.builder.icmp_signed(how, self.index(a), self.index(b))

    # ---- calls -----------------------------------------------------------------------------------
    def intrinsic(self, name: str, *arguments: Value, result: Any = None) -> Value:
        """Call an intrinsic that is overloaded by its first argument's type, which it returns."""
        kind = arguments[0].type
        full = f"{name}.{mangled(kind)}"
        return self.call_external(full, result or kind, arguments)

    def call_external(
        self, name: str, result: Any, arguments: Sequence[Value], fastmath: Sequence[str] = ()
    ) -> Value:
        function = self.module.globals.get(name)
        if function is None:
            kinds = [a.type for a in arguments]
            function = ll.Function(self.module, ll.FunctionType(result, kinds), name)
        return self.builder.call(function, list(arguments), fastmath=tuple(fastmath))


_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
