"""The one place that imports onnx: files → protobuf messages, schemas of the standard, tensors.

Of a tensor every length is checked before anything is allocated or mapped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import Array, short
from eqsat.model.diag import EqsatError, fail
from eqsat.ops.meaning.programs import element_dtype

LARGEST_FILE_BYTES = 2**31 - 1  # what one protobuf message can hold


def onnx_module() -> Any:
    """The onnx package; EqsatError E360 if it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise fail(
            "E360",
            "reading ONNX files needs the package `onnx`, which is not installed",
            help="pip install 'eqsat[onnx]'",
        ) from error
    return onnx


def parse_model(path: Path) -> Any:
    """The ModelProto of a file; EqsatError E360 if it is not one."""
    onnx = onnx_module()
    data = _bytes(path)
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's own errors differ from version to version
        raise fail(
            "E360",
            f"`{path}` is not an ONNX file, or it is truncated: {_first_line(error)}",
            help="export it again, or check that the download is complete",
        ) from error
    if not model.HasField("graph"):
        raise fail("E360", f"`{path}` holds no graph: it is not an ONNX model, or it is empty")
    if not _is_text(model):
        raise fail("E360", f"`{path}` holds a name that is not UTF-8: it is damaged")
    return model


def converted(model: Any, opset: int, path: Path) -> Any:
    """The model in a later opset, as onnx converts it; EqsatError E361 where it cannot."""
    onnx = onnx_module()
    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception as error:  # an operator without a rule, or more than a message can hold
        reason = _first_line(error).rpartition("failed: ")[2]
        raise fail(
            "E361",
            f"`{path}` uses an opset before {opset}, and onnx cannot convert it: "
            f"{short(reason, 200)}",
            help=f"export the model again, for opset {opset} or newer",
        ) from error


def _is_text(message: Any) -> bool:
    """Whether every string is one: protobuf hands out bytes for what is not UTF-8."""
    if message.DESCRIPTOR.name == "TensorProto":  # its data would be copied
        strings = [message.name, *(t for e in message.external_data for t in (e.key, e.value))]
        return not any(isinstance(t, bytes) for t in strings)
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            several = [value] if isinstance(value, str | bytes) else value
            if any(isinstance(t, bytes) for t in several):
                return False
        elif field.type == field.TYPE_MESSAGE:
            several = [value] if hasattr(value, "ListFields") else value
            if not all(_is_text(m) for m in several):
                return False
    return True


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise fail(
                "E360",
                f"`{path}` has {size} bytes, more than a protobuf file can have",
                help="save the model with external data: the weights in a file beside it",
            )
        return path.read_bytes()
    except OSError as error:
        raise fail("E360", f"`{path}` cannot be read: {error.strerror or error}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@lru_cache(maxsize=4096)
def operator_schema(domain: str, op: str, opset: int) -> Any | None:
    """The standard's record of an operator at an opset version, None if it has none."""
    defs = onnx_module().defs
    if not 0 < opset < 2**31:
        return None
    try:
        return defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None


def newest_opset() -> int:
    """The newest opset of the standard that the installed onnx knows."""
    return int(onnx_module().defs.onnx_opset_version())


@lru_cache(maxsize=64)
def known_ops(domain: str) -> tuple[str, ...]:
    """Names of all operators the standard has in a domain."""
    schemas = onnx_module().defs.get_all_schemas_with_history()
    return tuple(sorted({s.name for s in schemas if s.domain == domain}))


def schema_defaults(standard: Any, names: Iterable[str]) -> dict[str, Any]:
    """The schema's default values of these attributes, those that are numbers, strings or lists."""
    if not standard:
        return {}
    defaults = {name: standard.attributes[name].default_value for name in names}
    return {name: _plain_attribute(a) for name, a in defaults.items() if a is not None and a.type}


def _plain_attribute(a: Any) -> Any:
    fields = {1: "f", 2: "i", 6: "floats", 7: "ints"}
    if a.type == 3:
        return a.s.decode("utf-8")
    value = getattr(a, fields[a.type])
    return tuple(value) if a.type in (6, 7) else value


def function_body(
    domain: str, op: str, opset: int, node: Any, operands: tuple[Any | None, ...]
) -> Any | None:
    """The FunctionProto by which the standard defines an operator, None if it has none.

    node: a function that makes the NodeProto; operands: (element type number, shape) or None.
    """
    record = operator_schema(domain, op, opset)
    if record is None:
        return None
    onnx = onnx_module()
    message = b""
    if record.has_function:
        message = record.get_function_with_opset_version(record.since_version) or b""
    elif record.has_context_dependent_function:
        message = _in_context(record, node(onnx), operands, onnx)
    return onnx.FunctionProto.FromString(message) if message else None


def _in_context(record: Any, node: Any, operands: tuple[Any | None, ...], onnx: Any) -> bytes:
    types = [
        onnx.TypeProto() if o is None else onnx.helper.make_tensor_type_proto(o[0], o[1])
        for o in operands
    ]
    data = [t.SerializeToString() for t in types]
    versions = sorted(record.context_dependent_function_opset_versions)
    at = versions[-1]
    try:
        return record.get_context_dependent_function_with_opset_version(
            at, node.SerializeToString(), data
        )
    except Exception:  # a body that needs what this node lacks: the op counts as unsupported
        return b""


MOST_ELEMENTS = 2**33  # of one value; no machine that runs these programs holds more
LONGEST = 2**27  # elements of one dim: positions along one may be counted in an array
HIGHEST_RANK = 32  # NumPy's own bound is 64, XLA's layouts get slow long before


@dataclass(frozen=True)
class ElementType:
    """How the format stores an element type: bits in raw data, and the field for typed data."""

    name: str  # ours
    bits: int
    field: str


# TensorProto.DataType → storage
ELEMENT_TYPES: dict[int, ElementType] = {
    1: ElementType("f32", 32, "float_data"),
    2: ElementType("u8", 8, "int32_data"),
    3: ElementType("i8", 8, "int32_data"),
    4: ElementType("u16", 16, "int32_data"),
    5: ElementType("i16", 16, "int32_data"),
    6: ElementType("i32", 32, "int32_data"),
    7: ElementType("i64", 64, "int64_data"),
    9: ElementType("bool", 8, "int32_data"),
    10: ElementType("f16", 16, "int32_data"),
    11: ElementType("f64", 64, "double_data"),
    12: ElementType("u32", 32, "uint64_data"),
    13: ElementType("u64", 64, "uint64_data"),
    16: ElementType("bf16", 16, "int32_data"),
    17: ElementType("f8e4m3fn", 8, "int32_data"),
    18: ElementType("f8e4m3fnuz", 8, "int32_data"),
    19: ElementType("f8e5m2", 8, "int32_data"),
    20: ElementType("f8e5m2fnuz", 8, "int32_data"),
    21: ElementType("u4", 4, "int32_data"),
    22: ElementType("i4", 4, "int32_data"),
    23: ElementType("f4e2m1fn", 4, "int32_data"),
    24: ElementType("f8e8m0fnu", 8, "int32_data"),
}
UNSUPPORTED_TYPES = {
    8: "strings", 14: "complex64", 15: "complex128", 25: "uint2", 26: "int2",
}  # fmt: skip
_AS_BITS = ("f16", "bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu")


def stored_type(number: int, what: str) -> ElementType:
    """The storage of an element type; EqsatError E363 for one that programs cannot hold."""
    if number not in ELEMENT_TYPES:
        name = UNSUPPORTED_TYPES.get(number, f"number {number}, which ONNX does not define")
        raise fail(
            "E363",
            f"{what} has element type {name}, which programs cannot hold",
            help="real numbers of 4 to 64 bits, integers and bools can be read",
        )
    return ELEMENT_TYPES[number]


def data_type_number(dtype: np.dtype[Any]) -> int:
    """TensorProto.DataType of a NumPy type, 0 if it has none."""
    return next((n for n, t in ELEMENT_TYPES.items() if element_dtype(t.name) == dtype), 0)


def read_tensor(tensor: Any, folder: Path, what: str = "") -> Array:
    """The array of a TensorProto.

    folder: where the model lies, the only place external data may come from. EqsatError E363: its
    type, dims and data do not fit; E364: its external data is missing, short or elsewhere.
    """
    title = what or f"tensor `{short(tensor.name)}`"
    stored = stored_type(tensor.data_type, title)
    shape = tuple(int(d) for d in tensor.dims)
    size = _size(shape, title)
    if tensor.data_location == 1:
        return _decoded(_mapped(tensor, folder, stored, size, title), stored, shape)
    if tensor.HasField("segment"):
        raise fail("E363", f"{title} is stored in segments, which is not read")
    if tensor.HasField("raw_data"):
        wanted = _byte_count(stored, size)
        if len(tensor.raw_data) != wanted:
            raise fail(
                "E363",
                f"{title} is {_type_text(stored, shape)}, {wanted} bytes, "
                f"but holds {len(tensor.raw_data)}",
            )
        return _decoded(np.frombuffer(tensor.raw_data, np.uint8), stored, shape)
    return _typed(tensor, stored, shape, size, title)


def _size(shape: tuple[int, ...], title: str) -> int:
    if any(d < 0 for d in shape) or len(shape) > HIGHEST_RANK:
        raise fail("E363", f"{title} has dims {_dims_text(shape)}: not a shape")
    size = math.prod(shape)
    if not is_bearable(shape):
        raise fail("E363", f"{title} has dims {_dims_text(shape)}: {size} elements are too many")
    return size


def is_bearable(shape: tuple[int, ...]) -> bool:
    """Whether a value of this shape may be worked on at all."""
    return math.prod(shape) <= MOST_ELEMENTS and max(shape, default=0) <= LONGEST


def _dims_text(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if len(shape) <= HIGHEST_RANK else f"of rank {len(shape)}"


def _type_text(stored: ElementType, shape: tuple[int, ...]) -> str:
    return f"{stored.name}[{', '.join(map(str, shape))}]"


def _byte_count(stored: ElementType, size: int) -> int:
    return -(-size * stored.bits // 8)


def _decoded(data: Array, stored: ElementType, shape: tuple[int, ...]) -> Array:
    """Little-endian bytes → an array; two 4-bit elements a byte, the low half first."""
    if stored.bits == 4:
        return _nibbles(data, stored, shape)
    if stored.name == "bool":
        return (data != 0).reshape(shape)
    return data.view(element_dtype(stored.name).newbyteorder("<")).reshape(shape)


def _nibbles(data: Array, stored: ElementType, shape: tuple[int, ...]) -> Array:
    halves = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[: math.prod(shape)]
    if stored.name == "f4e2m1fn":
        return halves.view(element_dtype(stored.name)).reshape(shape)
    if stored.name == "i4":
        halves = np.where(halves > 7, halves.astype(np.int8) - 16, halves.astype(np.int8))
    return halves.astype(element_dtype(stored.name)).reshape(shape)


def _typed(
    tensor: Any, stored: ElementType, shape: tuple[int, ...], size: int, title: str
) -> Array:
    values = getattr(tensor, stored.field)
    wanted = -(-size // 2) if stored.bits == 4 else size
    if len(values) != wanted:
        raise fail(
            "E363",
            f"{title} is {_type_text(stored, shape)}, but holds {len(values)} values of {wanted}",
        )
    if stored.field in ("float_data", "double_data"):
        return np.array(values, element_dtype(stored.name)).reshape(shape)
    whole = np.array(values, np.uint64 if stored.field == "uint64_data" else np.int64)
    if stored.bits == 4:
        return _nibbles(whole.astype(np.uint8), stored, shape)
    if stored.name in _AS_BITS:
        held = np.uint16 if stored.bits == 16 else np.uint8
        return _checked(whole, held, title).view(element_dtype(stored.name)).reshape(shape)
    if stored.name == "bool":
        return (whole != 0).reshape(shape)
    return _checked(whole, element_dtype(stored.name), title).reshape(shape)


def _checked(values: Array, dtype: Any, title: str) -> Array:
    held = values.astype(dtype)
    if (held.astype(values.dtype) != values).any():
        raise fail("E363", f"{title} holds values that do not fit {np.dtype(dtype).name}")
    return held


# ---- external data -------------------------------------------------------------------------------
def _mapped(tensor: Any, folder: Path, stored: ElementType, size: int, title: str) -> Array:
    """The bytes of a tensor in a file beside the model, mapped and not read."""
    entries = {e.key: e.value for e in tensor.external_data}
    path = _inside(entries.get("location", ""), folder, title)
    wanted = _byte_count(stored, size)
    offset = _number(entries.get("offset", "0"), "offset", title)
    length = _number(entries.get("length", str(wanted)), "length", title)
    if length != wanted:
        raise fail(
            "E364", f"{title} needs {wanted} bytes of `{path.name}`, its entry says {length}"
        )
    try:
        held = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, title, error) from error
    if offset + wanted > held:
        raise fail(
            "E364",
            f"{title} needs bytes {offset} to {offset + wanted} of `{path.name}`, which has {held}",
            help="the data file is truncated or belongs to another model",
        )
    if wanted == 0:
        return np.zeros(0, np.uint8)
    try:
        return np.memmap(path, np.uint8, "r", offset, (wanted,))
    except (OSError, ValueError) as error:
        raise _unreadable(path, title, error) from error


def _unreadable(path: Path, title: str, error: Exception) -> EqsatError:
    reason = getattr(error, "strerror", None) or error
    return fail("E364", f"{title}: its data file `{path.name}` cannot be read: {reason}")


def _inside(location: str, folder: Path, title: str) -> Path:
    """The file a location names; E364 unless it lies in the model's folder or below."""
    shown = short(location)
    pure = PurePosixPath(location)
    outside = pure.is_absolute() or PureWindowsPath(location).drive or ".." in pure.parts
    if not location or "\0" in location or "\\" in location or outside:
        raise fail(
            "E364",
            f"{title} keeps its data in `{shown}`, which is not a path inside the model's folder",
            help="external data is read from files beside the model only; save the model again",
        )
    try:
        path, root = (folder / location).resolve(), folder.resolve()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # loops of links, names too long
        raise fail("E364", f"{title}: its data file `{shown}` cannot be found") from error
    if not path.is_relative_to(root):
        raise fail(
            "E364",
            f"{title} keeps its data in `{shown}`, a link that leads out of the model's folder",
            help="copy the file itself beside the model",
        )
    if not is_file:
        raise fail(
            "E364",
            f"{title} keeps its data in `{shown}`, and there is no such file in `{folder}`",
            help="copy the model's data files beside it",
        )
    return path


def _number(text: str, key: str, title: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise fail("E364", f"{title}: `{key}` of its external data is `{short(text)}`, no number")
    return int(text)
