"""SSA values while a function is read: types, constants, and access by operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.mlir.parser import place_of
from eqsat.frontends.mlir.source import ModuleText
from eqsat.frontends.values import Context, Tensor, round_to
from eqsat.model.affine import Map
from eqsat.model.attr import Shape
from eqsat.model.diag import EqsatError, Span, fail
from eqsat.model.extents import Extent, is_symbolic
from eqsat.model.layout import Border
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.programs import element_dtype

# ---- types and constants -------------------------------------------------------------------------
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
    match = _TENSOR.match(text)
    if match is None:
        if text.startswith(("tensor<", "memref<", "vector<", "complex<", "!", "(")):
            raise fail("E377", f"a value of type `{text[:80]}` is no tensor of known rank", where)
        return (), element_type(text, where)
    dims = tuple(None if d == "?" else int(d) for d in match[1].split("x")[:-1])
    if any(d is not None and d > LARGEST_DIM for d in dims):
        raise fail("E371", f"a dimension of `{text[:80]}` is above {LARGEST_DIM}", where)
    return dims, element_type(match[2], where)


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
    match = re.match(r"dense_resource<([^>]+)>", str(attribute))
    if match is None:
        raise fail("E377", "a constant is `dense` or `dense_resource`; this one is neither", where)
    return _resource(match[1], shape, dtype, source, where)


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
    blob = start >= 0 and re.compile(_BLOB.format(re.escape(plain_name))).search(
        source.original, start
    )
    if not blob or len(blob[1]) % 2:
        help_text = "write it into the file's `dialect_resources`"
        raise fail("E370", f"resource `{plain_name}` is not in the file", where, help=help_text)
    data = bytes.fromhex(blob[1])[4:]
    if dtype == "bool":
        return _from_bytes(data, shape, "u8", where) != 0
    return _from_bytes(data, shape, dtype, where)


# ---- values --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Undefined:
    """A tensor that is not written yet (`tensor.empty`): it has a shape, and no elements."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Nothing:
    """A value without elements: a fence, a device, an argument not yet a tensor."""

    number: int = -1  # of the argument


Item = Tensor | Undefined | int | Nothing


@dataclass
class Environment:
    """The program being built, and the values of the function being read.

    contractions: extents of the loops of those whose operands are encoded, by their maps' text;
    () if two differ. A first reading finds them, a second writes them into the encodings.
    """

    source: ModuleText
    ctx: Context
    values: dict[Any, Item] = field(default_factory=dict)
    contractions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    borders: dict[Border, Span] = field(default_factory=dict)  # where encoded ones are
    # attributes and types are unique in their context: what was read of one holds for the next op
    maps: dict[Any, list[Map]] = field(default_factory=dict)
    reduced: dict[Any, list[bool]] = field(default_factory=dict)
    _types: dict[Any, tuple[Dims, str]] = field(default_factory=dict)

    def where(self, op: Any) -> Span | None:
        return place_of(self.source, op.location)

    def fail(self, code: str, message: str, op: Any, **extra: Any) -> EqsatError:
        return fail(code, message, self.where(op), **extra)

    def item(self, value: Any, op: Any) -> Item:
        if value not in self.values:
            raise self.fail("E375", f"`{op.name}` reads a value from outside its function", op)
        return self.values[value]

    def tensor(self, value: Any, op: Any) -> Tensor:
        """The value as a tensor or scalar with elements; E375 if it has none."""
        item = self.item(value, op)
        if is_symbolic(item):
            raise self.unknown_number(op)
        if isinstance(item, int | Extent):
            return Tensor((), "i32", constant=item)
        if isinstance(item, Undefined):
            why = f"`{op.name}` reads an uninitialised tensor"
            raise self.fail("E375", why, op, help="fill it first, with `linalg.fill`")
        if isinstance(item, Nothing):
            raise self.fail("E375", f"`{op.name}` reads something that is no tensor", op)
        return item

    def unknown_number(self, op: Any) -> EqsatError:
        why = f"`{op.name}` computes with a size that is not known"
        return self.fail("E375", why, op, help="give it: an argument's type names its sizes")

    def shaped(self, value: Any, op: Any) -> Tensor | Undefined:
        """The value with its shape, whether anybody has written it or not."""
        item = self.item(value, op)
        return item if isinstance(item, Undefined) else self.tensor(value, op)

    def index(self, value: Any, op: Any) -> int:
        """A size or position; E376 if it is not known while reading."""
        item = self.item(value, op)
        if isinstance(item, int | Extent):
            return item
        if isinstance(item, Tensor) and item.is_constant and not item.shape:
            return int(item.constant)
        raise self.fail("E376", f"`{op.name}` needs a size or position that the data decide", op)

    def mixed(self, static: Any, dynamic: Sequence[Any], op: Any) -> list[int]:
        """A list of sizes some of which are SSA values."""
        rest = iter(dynamic)
        sizes = [int(s) for s in static]
        return [self.index(next(rest), op) if s == DYNAMIC else s for s in sizes]

    def type(self, value: Any, op: Any) -> tuple[Dims, str]:
        type_ = value.type
        if type_ not in self._types:  # where it is wrong is asked for the first time only
            self._types[type_] = ranked_type(type_, self.where(op))
        return self._types[type_]


Handler = Callable[[Environment, Any], "list[Item]"]


def numbers(op: Any, name: str) -> list[int]:
    """An array attribute of integers, [] where it is absent."""
    if name not in op.attributes:
        return []
    return [int(getattr(v, "value", v)) for v in op.attributes[name]]


def segments(op: Any) -> list[list[Any]]:
    """The operands by `operandSegmentSizes`."""
    rest = list(op.operands)
    groups = []
    for count in numbers(op, "operandSegmentSizes"):
        groups.append(rest[:count])
        rest = rest[count:]
    return groups
