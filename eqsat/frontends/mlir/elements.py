"""Types and constants of MLIR → ours."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from eqsat.frontends.mlir.source import ModuleText
from eqsat.frontends.values import round_to
from eqsat.model.diag import Span, fail
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.programs import element_dtype

LARGEST_DIM = 1 << 40
DYNAMIC = -(2**63)  # what MLIR writes for a size that is not known
INDEX = "index"
_TENSOR = re.compile(r"tensor<((?:[?\d]+x)*)([^,<>]+)(?:,.*)?>$", re.S)
_SPELLINGS = {"i1": "bool"} | {
    f"{s}i{b}": f"{k}{b}" for s, k in (("s", "i"), ("u", "u")) for b in (4, 8, 16, 32, 64)
}
_BLOB = r'\b{}\s*:\s*"0x([0-9A-Fa-f]*)"'

Dims = tuple[int | None, ...]


def element_type(text: str, where: Span | None) -> str:
    """Our name of an MLIR element type; EqsatError E377 if we have none."""
    text = text.strip()
    if text == INDEX:
        return "i32"  # of an extent; arrays of indices hold no larger ones
    name = _SPELLINGS.get(text, text.lower())
    if name not in DTYPES or text in ("bool",) or (text[0] == "u" and text not in _SPELLINGS):
        raise fail("E377", f"programs cannot hold element type `{text}`", where)
    return name


def ranked_type(type_: Any, where: Span | None) -> tuple[Dims, str]:
    """Dims (None where dynamic) and element type of a ranked tensor or a scalar; E377."""
    text = str(type_)
    found = _TENSOR.match(text)
    if found is None:
        if text.startswith(("tensor<", "memref<", "vector<", "complex<", "!", "(")):
            raise fail("E377", f"a value of type `{text[:80]}` is no tensor of known rank", where)
        return (), element_type(text, where)
    dims = tuple(None if d == "?" else int(d) for d in found[1].split("x")[:-1])
    if any(d is not None and d > LARGEST_DIM for d in dims):
        raise fail("E371", f"a dimension of `{text[:80]}` is above {LARGEST_DIM}", where)
    return dims, element_type(found[2], where)


def is_index(type_: Any) -> bool:
    return str(type_) == INDEX


# ---- constants -----------------------------------------------------------------------------------
def splat_value(attribute: Any, dtype: str) -> bool | int | float | None:
    """The value a dense attribute holds everywhere, None if it holds several."""
    if not getattr(attribute, "is_splat", False):
        return None
    return scalar_value(attribute.get_splat_value(), dtype)


def scalar_value(attribute: Any, dtype: str) -> bool | int | float:
    """A Python scalar from a scalar attribute."""
    value = attribute.value
    if dtype == "bool":
        return bool(value)
    return round_to(float(value) if is_float(dtype) else int(value), dtype)


def array(
    attribute: Any, shape: tuple[int, ...], dtype: str, source: ModuleText, where: Any
) -> Any:
    """The elements of a dense attribute, or of a resource written into the file; E370, E377."""
    if str(attribute.type).startswith("tensor") and hasattr(attribute, "is_splat"):
        return _dense(attribute, shape, dtype, where)
    found = re.match(r"dense_resource<([^>]+)>", str(attribute))
    if found is None:
        raise fail("E377", "a constant is `dense` or `dense_resource`; this one is neither", where)
    return _resource(found[1], shape, dtype, source, where)


def _dense(attribute: Any, shape: tuple[int, ...], dtype: str, where: Any) -> Any:
    stored = element_dtype(dtype)
    try:
        return np.array(attribute).astype(stored).reshape(shape)
    except TypeError:  # bf16 and narrow types have no buffer; their text is read
        return _from_text(str(attribute), shape, dtype, where)


def _from_text(text: str, shape: tuple[int, ...], dtype: str, where: Any) -> Any:
    inside = text[text.index("<") + 1 : text.rindex("> :")]
    stored = element_dtype(dtype)
    if inside.startswith('"0x'):
        return _from_bytes(bytes.fromhex(inside[3:-1]), shape, dtype, where)
    words = re.findall(r"[^\s,\[\]]+", inside)
    bits = np.dtype(f"u{stored.itemsize}")
    values = [
        np.asarray(int(w, 16), bits).view(stored) if w.startswith("0x") else np.asarray(float(w))
        for w in words
    ]
    return np.array([v.astype(stored) for v in values]).astype(stored).reshape(shape)


def _from_bytes(data: bytes, shape: tuple[int, ...], dtype: str, where: Any) -> Any:
    stored = element_dtype(dtype)
    count = int(np.prod(shape, dtype=object))
    if len(data) != count * stored.itemsize:
        raise fail("E370", f"a constant has {len(data)} bytes, which its type does not", where)
    return np.frombuffer(data, stored).reshape(shape)


def _resource(name: str, shape: tuple[int, ...], dtype: str, source: ModuleText, where: Any) -> Any:
    """The bytes of `name` in the file's `dialect_resources`: four of alignment, then the data."""
    start = source.original.rfind("dialect_resources")
    plain_name = name.strip('"')
    found = start >= 0 and re.compile(_BLOB.format(re.escape(plain_name))).search(
        source.original, start
    )
    if not found or len(found[1]) % 2:
        help_text = "write it into the file's `dialect_resources`"
        raise fail("E370", f"resource `{plain_name}` is not in the file", where, help=help_text)
    data = bytes.fromhex(found[1])[4:]
    if dtype == "bool":
        return _from_bytes(data, shape, "u8", where) != 0
    return _from_bytes(data, shape, dtype, where)
