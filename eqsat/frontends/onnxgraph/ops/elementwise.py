"""Elementwise operators, activations among them: ONNX broadcasts as NumPy does.

Recurrent layers name some of the activations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall, operator

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
