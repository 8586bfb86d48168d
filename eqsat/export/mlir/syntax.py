"""The text of MLIR types, affine maps, scalars and constant tensors.

Integers are signless, as arith and linalg want them: `u8` is `i8`, its ops are the unsigned ones.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from eqsat.export.ahead import little_endian
from eqsat.model.affine import Affine, Map
from eqsat.model.tensor import DTYPES, TensorType, is_float
from eqsat.ops.meaning.programs import element_dtype

Array = np.ndarray[Any, Any]
_FLOATS = {
    "f8e4m3fn": "f8E4M3FN",
    "f8e5m2": "f8E5M2",
    "f8e4m3fnuz": "f8E4M3FNUZ",
    "f8e5m2fnuz": "f8E5M2FNUZ",
    "f8e8m0fnu": "f8E8M0FNU",
    "f6e2m3fn": "f6E2M3FN",
    "f6e3m2fn": "f6E3M2FN",
    "f4e2m1fn": "f4E2M1FN",
}


def element(dtype: str) -> str:
    """`i8` for u8, `i1` for bool, `f8E4M3FN` for f8e4m3fn."""
    bits, kind = DTYPES[dtype]
    return _FLOATS.get(dtype, dtype) if kind == "f" else f"i{1 if kind == 'b' else bits}"


def tensor(t: TensorType) -> str:
    """`tensor<4x8xf32>`."""
    return f"tensor<{''.join(f'{d}x' for d in t.shape)}{element(t.dtype)}>"


def ints(values: Iterable[int]) -> str:
    """`[1, 0]`."""
    return f"[{', '.join(map(str, values))}]"


def scalar(value: bool | int | float, dtype: str) -> str:
    """The literal of a scalar without its type; infinities and NaN as bit patterns."""
    if DTYPES[dtype][1] == "b":
        return "true" if value else "false"
    if not is_float(dtype):
        return str(int(value))
    if not np.isfinite(value):
        bits = np.array(value).astype(element_dtype(dtype))
        return f"0x{bits.tobytes()[::-1].hex().upper()}"
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{e}{exponent}"


def affine_map(m: Map, loops: int) -> str:
    """`affine_map<(d0, d1) -> (d0 * 2 + d1)>`."""
    names = ", ".join(f"d{d}" for d in range(loops))
    return f"affine_map<({names}) -> ({', '.join(map(_expression, m))})>"


def _expression(e: Affine) -> str:
    parts = [f"d{d}" if s == 1 else f"d{d} * {s}" for d, s in e.terms]
    if e.constant or not parts:
        parts.append(str(e.constant))
    return " + ".join(parts)


def dense(array: Array, t: TensorType) -> str:
    """`dense<"0x…"> : tensor<…>`, or with one value if all elements are the same bytes."""
    data = little_endian(array)
    width = len(data) // max(1, t.size)
    if t.size == 0:
        return f"dense<> : {tensor(t)}"
    if data == data[:width] * t.size:
        value = np.asarray(array).reshape(-1)[0].item()
        return splat(value, t)
    return f'dense<"0x{data.hex().upper()}"> : {tensor(t)}'


def splat(value: Any, t: TensorType) -> str:
    """A constant tensor that holds one value everywhere."""
    return f"dense<{scalar(value, t.dtype)}> : {tensor(t)}"


def resource(array: Array) -> bytes:
    """The blob of a dense resource: its alignment, then its elements, in hex."""
    alignment = max(4, np.asarray(array).dtype.itemsize)
    return hexlify(alignment.to_bytes(4, "little") + little_endian(array))


def quoted(text: str) -> str:
    """A string literal; bytes outside printable ASCII are escaped as MLIR does."""
    safe = re.sub(
        rb'[^\x20-\x7e]|["\\]', lambda m: b"\\%02X" % m[0][0], text.encode("utf-8", "replace")
    )
    return f'"{safe.decode()}"'


def listed(types: Sequence[TensorType]) -> str:
    """`tensor<…>`, or `(tensor<…>, tensor<…>)` for several."""
    texts = [tensor(t) for t in types]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
