"""Elementwise operators, activations, casts and quantisation: ONNX broadcasts as NumPy does.

Quantisation rounds half to even and saturates, per tensor, per axis or per block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import OnnxCall, operator
from eqsat.frontends.onnxgraph.ops.reductions import without_zero
from eqsat.frontends.onnxgraph.ops.windows import windowed_product
from eqsat.frontends.onnxgraph.proto import stored_type
from eqsat.ops.meaning.programs import element_dtype

SELU = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


@dataclass(frozen=True)
class Activation:
    """function: of the call, x and the parameters, which are attributes with these defaults.

    newest: the last version of the operator of this name; 0 if only recurrent layers have it.
    """

    newest: int
    function: Callable[..., Any]
    parameters: Mapping[str, float] = field(default_factory=dict)


def softplus(c: OnnxCall, x: Any) -> Any:
    """log(1 + e^x) without overflow."""
    return c.xp.maximum(x, 0) + c.xp.log1p(c.xp.exp(-c.xp.abs(x)))


def _celu(c: OnnxCall, x: Any, alpha: float) -> Any:
    return c.xp.maximum(x, 0) + c.xp.minimum(alpha * c.xp.expm1(x / alpha), 0)


def _selu(c: OnnxCall, x: Any, alpha: float, gamma: float) -> Any:
    return gamma * c.xp.where(x <= 0, alpha * c.xp.expm1(x), x)


def _within_one(c: OnnxCall, x: Any) -> Any:
    return c.xp.minimum(c.xp.maximum(x, 0), 1)


def _hard_sigmoid(c: OnnxCall, x: Any, alpha: float, beta: float) -> Any:
    return _within_one(c, alpha * x + beta)


def swish(c: OnnxCall, x: Any, alpha: float) -> Any:
    return x * c.lax.logistic(alpha * x)


def gelu_exact(c: OnnxCall, x: Any) -> Any:
    """x/2 (1 + erf(x / √2))."""
    return 0.5 * x * (1 + c.lax.erf(x * math.sqrt(0.5)))


def gelu_tanh(c: OnnxCall, x: Any) -> Any:
    """The tanh approximation of `gelu_exact`."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * c.lax.integer_pow(x, 3))
    return 0.5 * x * (1 + c.xp.tanh(inner))


ACTIVATIONS = {
    "Affine": Activation(0, lambda c, x, a, b: a * x + b, {"alpha": 1.0, "beta": 0.0}),
    "Celu": Activation(28, _celu, {"alpha": 1.0}),
    "Elu": Activation(22, lambda c, x, a: c.xp.where(x < 0, a * c.xp.expm1(x), x), {"alpha": 1.0}),
    "HardSigmoid": Activation(22, _hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": Activation(22, lambda c, x: x * _within_one(c, x / 6 + 0.5)),
    "LeakyRelu": Activation(16, lambda c, x, a: c.xp.where(x < 0, x * a, x), {"alpha": 0.01}),
    "Mish": Activation(22, lambda c, x: x * c.xp.tanh(softplus(c, x))),
    "Relu": Activation(14, lambda c, x: c.xp.maximum(x, np.zeros((), x.dtype))),
    "ScaledTanh": Activation(
        0, lambda c, x, a, b: a * c.xp.tanh(b * x), {"alpha": 1.0, "beta": 1.0}
    ),
    "Selu": Activation(22, _selu, SELU),
    "Sigmoid": Activation(13, lambda c, x: c.lax.logistic(x)),
    "Softplus": Activation(22, softplus),
    "Softsign": Activation(22, lambda c, x: x / (1 + c.xp.abs(x))),
    "Swish": Activation(24, swish, {"alpha": 1.0}),
    "Tanh": Activation(0, lambda c, x: c.xp.tanh(x)),
    "ThresholdedRelu": Activation(22, lambda c, x, a: c.xp.where(x > a, x, 0), {"alpha": 1.0}),
}


# operator → (function of that name in numpy and jax.numpy, newest version)
UNARY = {
    "Abs": ("abs", 13), "Neg": ("negative", 13), "Exp": ("exp", 13), "Log": ("log", 13),
    "Sqrt": ("sqrt", 13), "Ceil": ("ceil", 13), "Floor": ("floor", 13), "Sin": ("sin", 22),
    "Cos": ("cos", 22), "Tan": ("tan", 22), "Asin": ("arcsin", 22), "Acos": ("arccos", 22),
    "Atan": ("arctan", 22), "Sinh": ("sinh", 22), "Cosh": ("cosh", 22), "Tanh": ("tanh", 13),
    "Asinh": ("arcsinh", 22), "Acosh": ("arccosh", 22), "Atanh": ("arctanh", 22),
    "Sign": ("sign", 13), "IsNaN": ("isnan", 20), "Not": ("logical_not", 1), "Round": ("round", 22),
    "BitwiseNot": ("invert", 18),
}  # fmt: skip
BINARY = {
    "Add": ("add", 14), "Sub": ("subtract", 14), "Mul": ("multiply", 14), "Equal": ("equal", 19),
    "Greater": ("greater", 13), "Less": ("less", 13), "GreaterOrEqual": ("greater_equal", 16),
    "LessOrEqual": ("less_equal", 16), "And": ("logical_and", 7), "Or": ("logical_or", 7),
    "Xor": ("logical_xor", 7), "BitwiseAnd": ("bitwise_and", 18), "BitwiseOr": ("bitwise_or", 18),
    "BitwiseXor": ("bitwise_xor", 18),
}  # fmt: skip
VARIADIC = {"Max": ("maximum", 13), "Min": ("minimum", 13), "Sum": ("add", 13)}


def _unary(name: str) -> Callable[[OnnxCall], Any]:
    return lambda c: _as(c, getattr(c.xp, name)(c[0]), name)


def _as(c: OnnxCall, result: Any, name: str) -> Any:
    """NumPy's half precision functions may widen; ONNX's never do."""
    has_dtype = name in ("isnan", "logical_not") or result.dtype == c[0].dtype
    return result if has_dtype else result.astype(c[0].dtype)


def _binary(name: str) -> Callable[[OnnxCall], Any]:
    return lambda c: getattr(c.xp, name)(c[0], c[1])


def _variadic(name: str) -> Callable[[OnnxCall], Any]:
    return lambda c: functools.reduce(getattr(c.xp, name), c.all)


def _activation(name: str) -> Callable[[OnnxCall], Any]:
    activation = ACTIVATIONS[name]
    defaults = activation.parameters.items()
    return lambda c: activation.function(c, c[0], *(c.attribute(k, v) for k, v in defaults))


for _op, (_name, _version) in UNARY.items():
    operator(_op, newest=_version, fold=True)(_unary(_name))
for _op, (_name, _version) in BINARY.items():
    operator(_op, newest=_version, fold=True)(_binary(_name))
for _op, (_name, _version) in VARIADIC.items():
    operator(_op, newest=_version, fold=True)(_variadic(_name))
for _op, _record in ACTIVATIONS.items():
    if _record.newest:
        operator(_op, newest=_record.newest, fold=_op == "Relu")(_activation(_op))
operator("Mean", newest=13)(lambda c: functools.reduce(c.xp.add, c.all) / len(c))
operator("Reciprocal", newest=13, fold=True)(lambda c: 1 / c[0])
operator("Where", newest=16, fold=True)(lambda c: c.xp.where(c[0], c[1], c[2]))
operator("PRelu", newest=16)(lambda c: c.xp.where(c[0] < 0, c[0] * c[1], c[0]))
operator("Erf", newest=13)(lambda c: c.lax.erf(c[0]))
operator("Identity", newest=25)(lambda c: c.held(0))


@operator("Div", newest=14, fold=True)
def div(c: OnnxCall) -> Any:
    """Integers are divided towards zero."""
    if c.dtype(0).kind not in "iu":
        return c.xp.divide(c[0], c[1])
    if c.xp is not np:
        a, b = c.xp.broadcast_arrays(c[0], c[1])
        return c.lax.div(a, b)
    if not np.all(c[1]):
        raise c.error("E368", "divides whole numbers by zero")
    sign = np.sign(c[0]) * np.sign(c[1])
    return (sign * (np.abs(c[0]) // np.abs(c[1]))).astype(c[0].dtype)


@operator("Mod", newest=28, fold=True)
def mod(c: OnnxCall) -> Any:
    """fmod=1: the sign of the dividend, as C; else that of the divisor, as Python."""
    if c.attribute("fmod", 0):
        return c.xp.fmod(c[0], c[1])
    if c.xp is np and not np.all(c[1]):
        raise c.error("E368", "divides whole numbers by zero")
    return c.xp.mod(c[0], c[1])


@operator("Pow", newest=15, fold=True)
def power(c: OnnxCall) -> Any:
    """The result has the base's type; small whole constant exponents are products."""
    base, exponent = c[0], c[1]
    held = c.held(1)
    if c.xp is not np and held.is_constant and held.array.size == 1 and not held.array.ndim:
        value = float(held.array)
        if value == 0.5 and c.dtype(0).kind == "f":
            return c.xp.sqrt(base)
        if value.is_integer() and 1 <= value <= 8:
            return c.lax.integer_pow(base, int(value))
    if c.dtype(0).kind == "f":
        return c.xp.power(base, exponent.astype(base.dtype))
    if exponent.dtype.kind == "f":
        return c.xp.power(base.astype(exponent.dtype), exponent).astype(base.dtype)
    return c.xp.power(base, exponent.astype(base.dtype))


@operator("IsInf", newest=20, fold=True)
def is_inf(c: OnnxCall) -> Any:
    x, result = c[0], c.xp.zeros(c.shape(0), bool)
    if c.attribute("detect_positive", 1):
        result = result | (c.xp.isinf(x) & (x > 0))
    if c.attribute("detect_negative", 1):
        result = result | (c.xp.isinf(x) & (x < 0))
    return result


@operator("BitShift", newest=28, fold=True)
def bit_shift(c: OnnxCall) -> Any:
    left = c.needed("direction") == "LEFT"
    return c.xp.left_shift(c[0], c[1]) if left else c.xp.right_shift(c[0], c[1])


@operator("Clip", newest=13, fold=True)
def clip(c: OnnxCall) -> Any:
    x = c[0]
    if c.has(1):
        x = c.xp.maximum(x, c[1])
    return c.xp.minimum(x, c[2]) if c.has(2) else x


@operator("Shrink", newest=9)
def shrink(c: OnnxCall) -> Any:
    x, bias, limit = c[0], c.attribute("bias", 0.0), c.attribute("lambd", 0.5)
    upper = c.xp.where(x > limit, x - bias, 0)
    return c.xp.where(x < -limit, x + bias, upper).astype(x.dtype)


@operator("Gelu", newest=20)
def gelu(c: OnnxCall) -> Any:
    how = c.attribute("approximate", "none")
    if how not in ("none", "tanh"):
        raise c.unsupported(f"the approximation `{how}`")
    return gelu_tanh(c, c[0]) if how == "tanh" else gelu_exact(c, c[0])


@operator("Dropout", newest=22)
def dropout(c: OnnxCall) -> Any:
    """Inference only: what comes in, and a mask of ones."""
    if c.has(2) and c.static(2, "training mode").any():
        raise c.unsupported("training mode", "export the model for inference")
    return (c.held(0), np.ones(c.shape(0), bool)) if c.wants(1) else c.held(0)


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
