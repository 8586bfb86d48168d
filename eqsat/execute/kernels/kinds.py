"""Element types of tensors as LLVM's, vectors of them, and their constants."""

from __future__ import annotations

from collections.abc import Sequence
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
