"""Three image classifiers of `keras.applications` as functions of an image and of their weights.

Each function takes f32[1, 224, 224, 3], pixels of 0 to 255, and a list of arrays, and gives the
probabilities of 1,000 classes. Weights are random, always the same, and of sizes that keep values
near 1 from layer to layer; nothing is downloaded. Keras runs on JAX, images are NHWC.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "jax")
PIXELS = 224
GAIN = 1.2  # of variances from layer to layer, ahead of an activation
mobilenet_weights = efficientnet_weights = convnext_weights = ("params",)


@cache
def application(name: str) -> Any:
    """A model of `keras.applications`, known by its shapes; its variables have no arrays."""
    import keras

    with keras.StatelessScope(initialize_variables=False):
        return getattr(keras.applications, name)(input_shape=(PIXELS, PIXELS, 3), weights=None)


def mobilenet(x: Any, params: Any) -> Any:
    """MobileNetV3-Large (Howard et al. 2019)."""
    return _called("MobileNetV3Large", x, params)


def efficientnet(x: Any, params: Any) -> Any:
    """EfficientNetV2-B0 (Tan and Le 2021)."""
    return _called("EfficientNetV2B0", x, params)


def convnext(x: Any, params: Any) -> Any:
    """ConvNeXt-Tiny (Liu et al. 2022)."""
    return _called("ConvNeXtTiny", x, params)


def mobilenet_example() -> tuple[Any, ...]:
    return _example("MobileNetV3Large")


def efficientnet_example() -> tuple[Any, ...]:
    return _example("EfficientNetV2B0")


def convnext_example() -> tuple[Any, ...]:
    return _example("ConvNeXtTiny")


def _called(name: str, x: Any, params: Any) -> Any:
    model = application(name)
    count = len(model.trainable_variables)
    return model.stateless_call(params[:count], params[count:], x, training=False)[0]


def _example(name: str) -> tuple[Any, ...]:
    model, rng = application(name), np.random.default_rng(0)
    variables = (*model.trainable_variables, *model.non_trainable_variables)
    image = rng.uniform(0, 255, (1, PIXELS, PIXELS, 3)).astype("f4")
    return image, [_drawn(v.path.rsplit("/", 1)[-1], v.shape, rng) for v in variables]


def _drawn(role: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Values of a variable of this role: filters and matrices by their fan-in (He et al. 2015)."""
    noise = rng.standard_normal(shape)
    if len(shape) > 1:
        is_depthwise = len(shape) == 4 and shape[-1] == 1
        inner = np.prod(shape[:2] if is_depthwise else shape[:-1])
        return (noise * np.sqrt(GAIN / inner)).astype("f4")
    level = 1.0 if role in ("gamma", "moving_variance") or "scale" in role else 0.0
    return (level + 0.1 * np.clip(noise, -3, 3)).astype("f4")
