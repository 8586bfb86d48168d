"""What models put behind their sums: operators of one operand, and what recurrent layers name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall

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
