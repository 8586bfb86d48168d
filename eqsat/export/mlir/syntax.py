"""Syntax of MLIR: types, affine maps, scalars and constant tensors, and lines as they are written.

Names occur once.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.export.plan import OpenShape, little_endian
from eqsat.model.affine import Affine, Map
from eqsat.model.layout import Layout
from eqsat.model.tensor import DEFAULT, DTYPES, NONE, TensorType, is_float
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


def tensor(t: TensorType, open_shape: OpenShape | None = None) -> str:
    """`tensor<4x8xf32>`, or `tensor<?x8xf32>` by an open shape."""
    dims = t.shape if open_shape is None else ["?" if d is None else d for d in open_shape]
    return f"tensor<{''.join(f'{d}x' for d in dims)}{element(t.dtype)}>"


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


@dataclass(frozen=True)
class Value:
    """A tensor by its name in the text."""

    name: str
    type: TensorType


class Writer:
    """Appends ops to the body of one function; methods return the name of the value they made."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rows: dict[str, Layout] = {}  # of values that are encoded: their longer rows
        self._count = 0

    def fresh(self) -> str:
        """An unused name."""
        self._count += 1
        return f"%t{self._count}"

    def line(self, text: str, depth: int = 2) -> None:
        """One more line."""
        self.lines.append(f"{'  ' * depth}{text}")

    def op(self, text: str, name: str = "") -> str:
        """An op with one result, named `name` or afresh."""
        result = name or self.fresh()
        self.line(f"{result} = {text}")
        return result

    def constant(self, value: bool | int | float, dtype: str) -> str:
        """A scalar constant."""
        literal = scalar(value, dtype)
        typed = literal if dtype == "bool" else f"{literal} : {element(dtype)}"
        return self.op(f"arith.constant {typed}")

    def empty(self, t: TensorType) -> str:
        """A tensor of which no element is read."""
        return self.op(f"tensor.empty() : {tensor(t)}")

    def filled(self, value: bool | int | float, t: TensorType) -> str:
        """A tensor that holds one value, to be written over."""
        into, text = self.empty(t), tensor(t)
        start = self.constant(value, t.dtype)
        return self.op(
            f"linalg.fill ins({start} : {element(t.dtype)}) outs({into} : {text}) -> {text}"
        )

    def structured(
        self,
        name: str,
        maps: Sequence[str],
        iterators: Sequence[str],
        ins: Sequence[tuple[str, TensorType]],
        outs: Sequence[tuple[str, TensorType]],
        precision: str = NONE,
    ) -> None:
        """The head of a `linalg.generic`, up to its block; `line` writes what follows.

        linalg has no precisions: one that is not the default is an attribute of ours.
        """
        kinds = ", ".join(f'"{k}"' for k in iterators)
        several = f":{len(outs)}" if len(outs) > 1 else ""
        self.line(f"{name}{several} = linalg.generic {{indexing_maps = [{', '.join(maps)}],")
        attribute = "" if precision in (NONE, DEFAULT) else f', eqsat.precision = "{precision}"'
        self.line(f"  iterator_types = [{kinds}]{attribute}}}{_operands('ins', ins)}")
        self.line(f" {_operands('outs', outs)} {{")


def _operands(word: str, values: Sequence[tuple[str, TensorType]]) -> str:
    if not values:
        return ""
    names = ", ".join(v for v, _ in values)
    return f" {word}({names} : {', '.join(tensor(t) for _, t in values)})"
