"""The one place that imports onnx: files → protobuf messages, and the standard's own schemas."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from eqsat.model.diag import fail

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
