"""Quantisation and casts: round half to even, saturate; per tensor, per axis or per block."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall, operator
from eqsat.frontends.onnxgraph.ops.reductions import without_zero
from eqsat.frontends.onnxgraph.ops.windows import windowed_product
from eqsat.frontends.onnxgraph.tensors import stored_type
from eqsat.ops.meaning.programs import element_dtype

SMALL_FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
)  # fmt: skip


@operator("Cast", newest=28, fold=True)
def cast(c: OnnxCall) -> Any:
    stored = stored_type(int(c.needed("to")), c.node.label)
    return cast_to(c, c[0], element_dtype(stored.name))


@operator("CastLike", newest=25, fold=True)
def cast_like(c: OnnxCall) -> Any:
    return cast_to(c, c[0], c.dtype(1))


def cast_to(c: OnnxCall, x: Any, dtype: np.dtype[Any]) -> Any:
    """x in another element type; floats of 8 bits or less saturate unless the node says
    otherwise. To 4-bit integers: the low bits of the whole number.
    """
    if dtype.name in SMALL_FLOATS and x.dtype.kind != "b" and c.attribute("saturate", 1):
        import ml_dtypes

        most = float(ml_dtypes.finfo(dtype).max)
        wide = x.astype(np.float32) if x.dtype.kind in "iu" else x
        x = c.xp.where(c.xp.isnan(wide), wide, c.xp.clip(wide, -most, most))
    if dtype.kind == "b":
        return x != 0
    if dtype.name == "float8_e8m0fnu" and x.dtype != dtype:
        raise c.node.error("E365", "rounds to float8e8m0, which is read but not computed")
    if dtype.name == "uint4" and x.dtype.name not in ("uint4", "bool"):
        return (x.astype(np.int32) & 15).astype(dtype)
    if dtype.name == "int4" and x.dtype.name not in ("int4", "bool"):
        return ((x.astype(np.int32) & 15 ^ 8) - 8).astype(dtype)
    return x.astype(dtype)


def _spread(c: OnnxCall, held_shape: tuple[int, ...], value: Any) -> Any:
    """A scale or zero point broadcast over operand 0: one, one per axis element, or per block."""
    rank, block = len(held_shape), int(c.attribute("block_size", 0))
    if value.ndim == 0 or (value.ndim == 1 and value.shape[0] == 1 and not block):
        return value.reshape(())
    axis = c.axis(int(c.attribute("axis", 1)), rank)
    if block:
        wide = c.xp.repeat(value, block, axis=axis)
        cut = tuple(slice(0, s) if d == axis else slice(None) for d, s in enumerate(held_shape))
        return wide[cut]
    if value.ndim != 1 or value.shape[0] != held_shape[axis]:
        raise c.error("E368", f"has scales {list(value.shape)} along axis {axis} of {held_shape}")
    return value.reshape([-1 if d == axis else 1 for d in range(rank)])


def _zero_point(c: OnnxCall) -> Any | None:
    """Operand 2 broadcast over operand 0: one number where all are known to be equal, None where
    they are zeros, which exporters write per channel of symmetric weights."""
    if not c.has(2):
        return None
    held = c.held(2)
    if held.is_constant and held.dtype.kind in "iu" and held.array.size:
        first = held.array.flat[0]
        if (held.array == first).all():
            return np.asarray(first) if first else None
    return _spread(c, c.shape(0), c[2])


def _check(c: OnnxCall, dtype: np.dtype[Any]) -> None:
    """EqsatError E368 of a zero point that is no number of the quantised type, or a scale that is
    no number: what is divided by it would be none either."""
    if c.has(2):
        zero = c.held(2)
        if zero.dtype != dtype:
            raise c.error("E368", f"has a zero point of type {zero.dtype} for {dtype}")
        if zero.shape != c.shape(1) and zero.array.size != 1:
            scales = list(c.shape(1))
            raise c.error("E368", f"has zero points {list(zero.shape)} for scales {scales}")
    scale = c.held(1)
    if not scale.is_constant or scale.dtype.kind != "f":
        return
    divides = c.node.op == "QuantizeLinear"
    wrong = scale.array[~np.isfinite(scale.array) | (divides & (scale.array == 0))]
    if wrong.size:
        raise c.error("E368", f"has a scale of {wrong.flat[0]}")


@operator("QuantizeLinear", newest=28)
def quantize_linear(c: OnnxCall) -> Any:
    dtype = _quantized_type(c)
    if not _is_quantized(dtype):
        raise c.error("E368", f"has a zero point of type {dtype}, which is none to quantise to")
    _check(c, dtype)
    zero = _zero_point(c)
    scale, x = _spread(c, c.shape(0), c[1]), c[0]
    if x.dtype.kind == "i":
        x = x.astype(scale.dtype)
    return quantized(c, x, scale, zero, dtype)


def _quantized_type(c: OnnxCall) -> np.dtype[Any]:
    if c.has(2):
        return c.dtype(2)
    number = int(c.attribute("output_dtype", 0))
    if not number:
        return np.dtype(np.uint8)
    return element_dtype(stored_type(number, c.node.label).name)


def _is_quantized(dtype: np.dtype[Any]) -> bool:
    is_short = dtype.kind in "iu" and dtype.itemsize <= 2
    return is_short or dtype.name in ("int4", "uint4", *SMALL_FLOATS)


def quantised_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Least and greatest value of a quantised type."""
    if dtype.name in ("int4", "uint4"):
        return (-8, 7) if dtype.name == "int4" else (0, 15)
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantized(c: OnnxCall, x: Any, scale: Any, zero: Any | None, dtype: np.dtype[Any]) -> Any:
    """saturate(round(x / scale) + zero)."""
    if dtype.name in SMALL_FLOATS:
        return cast_to(c, x / scale.astype(x.dtype), dtype)
    steps = c.xp.round(x / scale.astype(x.dtype))
    if zero is not None:
        steps = steps + zero.astype(steps.dtype)
    low, high = quantised_range(dtype)
    return c.xp.clip(steps, low, high).astype(dtype)


@operator("DequantizeLinear", newest=28)
def dequantize_linear(c: OnnxCall) -> Any:
    _check(c, c.dtype(0))
    scale = _spread(c, c.shape(0), c[1])
    number = int(c.attribute("output_dtype", 0))
    dtype = element_dtype(stored_type(number, c.node.label).name) if number else scale.dtype
    return dequantized(c[0], scale, _zero_point(c)).astype(dtype)


def dequantized(x: Any, scale: Any, zero: Any | None) -> Any:
    """(x - zero) scale."""
    if x.dtype.kind in "iu" or x.dtype.name in ("int4", "uint4"):
        x = without_zero(x, zero)
        return x.astype(scale.dtype) * scale
    wide = x.astype(scale.dtype)
    return (wide if zero is None else wide - zero.astype(scale.dtype)) * scale


@operator("DynamicQuantizeLinear", newest=11)
def dynamic_quantize_linear(c: OnnxCall) -> Any:
    """To u8, with the scale and zero point of the tensor's own range, which contains 0."""
    low = c.xp.minimum(c.xp.min(c[0]), 0)
    high = c.xp.maximum(c.xp.max(c[0]), 0)
    scale = (high - low) / 255
    safe = c.xp.where(scale == 0, 1, scale)
    zero = c.xp.clip(c.xp.round(-low / safe), 0, 255).astype(np.uint8)
    return quantized(c, c[0], safe, zero, np.dtype(np.uint8)), scale, zero


@operator("QLinearMatMul", newest=21)
def qlinear_matmul(c: OnnxCall) -> Any:
    """a, its scale and zero; b, its; the result's."""
    a_scale, a_zero = _rows(c[1]), _rows(c[2])
    total = c.xp.matmul(
        without_zero(c[0], a_zero), without_zero(c[3], c[5]), preferred_element_type=np.int32
    )
    real = total.astype(np.float32) * (a_scale * c[4]).astype(np.float32)
    return quantized(c, real, _rows(c[6]), _rows(c[7]), c.dtype(7))


def _rows(value: Any) -> Any:
    """One value, or one per row of the matrix it belongs to."""
    return value.reshape(()) if value.size == 1 else value[..., None] if value.ndim == 1 else value


@operator("QLinearConv", newest=10)
def qlinear_conv(c: OnnxCall) -> Any:
    """x, its scale and zero; w, its (per output channel); the result's; a bias of 32 bits."""
    rank = c.rank(0)
    w_zero = _channels(c[5], c.rank(3), 0)
    total = windowed_product(c, without_zero(c[0], c[2]), without_zero(c[3], w_zero))
    if c.has(8):
        total = total + c[8].reshape(1, -1, *([1] * (rank - 2)))
    factor = c[1].reshape(()) * _channels(c[4], rank, 1)
    return quantized(c, total.astype(np.float32) * factor, c[6], c[7], c.dtype(7))


def _channels(value: Any, rank: int, axis: int) -> Any:
    if value.size == 1:
        return value.reshape(())
    return value.reshape([-1 if d == axis else 1 for d in range(rank)])


@operator("ConvInteger", newest=10)
def conv_integer(c: OnnxCall) -> Any:
    w_zero = _channels(c[3], c.rank(1), 0) if c.has(3) else None
    return windowed_product(c, without_zero(c[0], c.get(2)), without_zero(c[1], w_zero))
