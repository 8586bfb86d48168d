"""Convolutional nets as their papers state them, channels first, norms folded, random weights.

A model says the shape of each weight where it uses it: `w(*shape)` is the next weight.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from peergraph import Written

RELU = jax.nn.relu
NHWC = ("NHWC", "HWIO", "NHWC")
Function = Callable[..., Any]


def model(*inputs: Any, state: Mapping[str, int] | None = None) -> Callable[[Function], Function]:
    """A model on these inputs, arrays or shapes of f32, and on a list of weights if it takes `w`.

    Its `NAME_example`, `NAME_weights` and `NAME_state` are put beside it, as programs have them.
    """

    def make(function: Function) -> Function:
        given = [jax.ShapeDtypeStruct(x, "float32") if isinstance(x, tuple) else x for x in inputs]
        weighted = "w" in inspect.signature(function).parameters
        beside = {"example": lambda: (*given, *([_shapes(function, given)] if weighted else []))}
        said = beside | {"weights": ("w",) if weighted else (), "state": dict(state or {})}
        function.__globals__.update({f"{function.__name__}_{k}": v for k, v in said.items()})
        return _of_a_list(function) if weighted else function

    return make


def _shapes(function: Function, inputs: list[Any]) -> list[Any]:
    """The shapes that a model asks for, in order."""
    found: list[Any] = []

    def record(*shape: int) -> Any:
        found.append(jax.ShapeDtypeStruct(shape, "float32"))
        return jnp.zeros(shape)

    jax.eval_shape(lambda *xs: function(*xs, record), *inputs)
    return found


def _of_a_list(function: Function) -> Function:
    @functools.wraps(function)
    def call(*given: Any) -> Any:
        *inputs, weights = given
        left = iter(weights)

        def take(*shape: int) -> Any:
            found = next(left)
            assert found.shape == shape, (function.__name__, found.shape, shape)
            return jnp.asarray(found)

        return function(*inputs, take)

    return call


# ---- layers --------------------------------------------------------------------------------------
def conv(
    x: Any, w: Any, out: int, size: int | Sequence[int] = 3, stride: int = 1, groups: int = 1,
    dilation: int = 1, act: Any = RELU,
) -> Any:  # fmt: skip
    """A convolution with a bias over images of any rank, padded alike on both sides."""
    rank = x.ndim - 2
    sizes = (size,) * rank if isinstance(size, int) else tuple(size)
    filters = w(out, x.shape[1] // groups, *sizes)
    y = lax.conv_general_dilated(
        x, filters, (stride,) * rank, [(p, p) for p in (dilation * (s // 2) for s in sizes)],
        rhs_dilation=(dilation,) * rank, feature_group_count=groups,
    )  # fmt: skip
    return act(y + w(out).reshape(-1, *(1,) * rank))


def largest(x: Any, size: int, stride: int, pad: int = 0) -> Any:
    rank = x.ndim - 2
    ones, pads = (1, 1), ((0, 0), (0, 0), *((pad, pad),) * rank)
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (*ones, *(size,) * rank), (*ones, *(stride,) * rank), pads
    )


def mean3(x: Any) -> Any:
    """Means of 3 x 3 places, those beside the image as zeros."""
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    return lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 1, 1), pads) / 9


def classes(x: Any, w: Any, count: int = 1000) -> Any:
    """A mean over the image and a product."""
    x = x.mean(tuple(range(2, x.ndim)))
    return x @ w(x.shape[1], count) + w(count)


# ---- nets ----------------------------------------------------------------------------------------
@model((1, 512, 33, 33))
def deeplab(x: Any, w: Any) -> Any:
    """The head of DeepLab v3 (Chen et al. 2017): windows at three rates, 21 classes per place."""
    parts = [conv(x, w, 256, 1), *(conv(x, w, 256, dilation=d) for d in (6, 12, 18))]
    whole = conv(x.mean((2, 3), keepdims=True), w, 256, 1)
    parts.append(jnp.broadcast_to(whole, (1, 256, 33, 33)))
    return conv(conv(jnp.concatenate(parts, 1), w, 256, 1), w, 21, 1, act=lambda y: y)


@model((1, 3, 256, 256))
def yolo(x: Any, w: Any) -> Any:
    """A tiny YOLO v3 (Redmon & Farhadi 2018) with pools of three sizes; boxes at two scales."""

    def leaky(y: Any) -> Any:
        return jax.nn.leaky_relu(y, 0.1)

    for width in (16, 32, 64, 128):
        x = largest(conv(x, w, width, act=leaky), 2, 2)
    x = fine = conv(x, w, 256, act=leaky)
    x = conv(largest(x, 2, 2), w, 512, act=leaky)
    x = conv(x, w, 256, 1, act=leaky)
    x = jnp.concatenate([x, *(largest(x, s, 1, s // 2) for s in (5, 9, 13))], 1)
    x = conv(x, w, 256, 1, act=leaky)
    wide = jnp.repeat(jnp.repeat(conv(x, w, 128, 1, act=leaky), 2, 2), 2, 3)
    small = conv(jnp.concatenate([wide, fine], 1), w, 256, act=leaky)
    large = conv(x, w, 512, act=leaky)
    return boxes(large, w, 32), boxes(small, w, 16)


def boxes(x: Any, w: Any, step: int) -> Any:
    """[3, 85, h, w]: centres in pixels, sizes, an objectness and 80 classes."""
    size = x.shape[-1]
    y = conv(x, w, 255, 1, act=lambda y: y).reshape(3, 85, size, size)
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size))).astype("f4")
    centres = (jax.nn.sigmoid(y[:, :2]) + grid) * step
    return jnp.concatenate([centres, jnp.exp(y[:, 2:4]) * step, jax.nn.sigmoid(y[:, 4:])], 1)


@model((1, 3, 224, 224))
def resnext(x: Any, w: Any) -> Any:
    """ResNeXt-50 32x4d (Xie et al. 2017)."""
    x = largest(conv(x, w, 64, 7, 2), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride, width = 2 if stage and not block else 1, 128 * 2**stage
            y = conv(conv(x, w, width, 1), w, width, 3, stride, groups=32)
            y = conv(y, w, 2 * width, 1, act=lambda y: y)
            if not block:
                x = conv(x, w, 2 * width, 1, stride, act=lambda y: y)
            x = RELU(x + y)
    return classes(x, w)


@model((1, 3, 160, 160))
def densenet(x: Any, w: Any) -> Any:
    """DenseNet-121 (Huang et al. 2017); a norm ahead of a ReLU is a scale and a shift."""

    def normed(x: Any) -> Any:
        scale, shift = (w(x.shape[1])[:, None, None] for _ in range(2))
        return RELU(x * scale + shift)

    def plain(x: Any, out: int, size: int) -> Any:
        return lax.conv_general_dilated(x, w(out, x.shape[1], size, size), (1, 1), "SAME")

    x = largest(conv(x, w, 64, 7, 2), 3, 2, 1)
    for stage, layers in enumerate((6, 12, 24, 16)):
        if stage:
            x = plain(normed(x), x.shape[1] // 2, 1)
            window = (1, 1, 2, 2)
            x = lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / 4
        for _ in range(layers):
            x = jnp.concatenate([x, plain(normed(plain(normed(x), 128, 1)), 32, 3)], 1)
    return classes(normed(x), w)


@model((1, 3, 192, 192))
def inception(x: Any, w: Any) -> Any:
    """Inception v3 (Szegedy et al. 2016) with two blocks of each of its first two kinds."""
    x = conv(conv(conv(x, w, 32, 3, 2), w, 32), w, 64)
    x = largest(conv(conv(largest(x, 3, 2), w, 80, 1), w, 192), 3, 2)
    for pooled in (32, 64):
        five, double = conv(x, w, 48, 1), conv(conv(x, w, 64, 1), w, 96)
        parts = conv(x, w, 64, 1), conv(five, w, 64, 5), conv(double, w, 96)
        x = jnp.concatenate([*parts, conv(mean3(x), w, pooled, 1)], 1)
    reduced = conv(conv(conv(x, w, 64, 1), w, 96), w, 96, 3, 2)
    x = jnp.concatenate([conv(x, w, 384, 3, 2), reduced, largest(x, 3, 2, 1)], 1)
    for width in (128, 160):
        seven = conv(conv(conv(x, w, width, 1), w, width, (1, 7)), w, 192, (7, 1))
        double = conv(conv(conv(x, w, width, 1), w, width, (7, 1)), w, width, (1, 7))
        double = conv(conv(double, w, width, (7, 1)), w, 192, (1, 7))
        x = jnp.concatenate([conv(x, w, 192, 1), seven, double, conv(mean3(x), w, 192, 1)], 1)
    return classes(x, w)


@model((1, 3, 224, 224))
def vgg16(x: Any, w: Any) -> Any:
    """The convolutions of VGG-16 (Simonyan & Zisserman 2015), and one layer of classes."""
    for width, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            x = conv(x, w, width)
        x = largest(x, 2, 2)
    return classes(x, w)


@model((1, 3, 16, 56, 56))
def conv3d(x: Any, w: Any) -> Any:
    """C3D (Tran et al. 2015) at half its widths on 16 frames of 56 x 56."""
    x = lax.reduce_window(
        conv(x, w, 32), -jnp.inf, lax.max, (1, 1, 1, 2, 2), (1, 1, 1, 2, 2), "VALID"
    )
    for width, layers in ((64, 1), (128, 2), (256, 2)):
        for _ in range(layers):
            x = conv(x, w, width)
        x = largest(x, 2, 2)
    return classes(x, w, 101)


# ---- a step of training --------------------------------------------------------------------------
@model((16, 1, 28, 28), np.eye(10, dtype="f4")[np.arange(16) % 10], (16, 1, 5, 5), (32, 16, 5, 5),
       (1568, 10))  # fmt: skip
def traincnn(images: Any, labels: Any, first: Any, second: Any, last: Any) -> Any:
    """A step of gradient descent of LeNet's kind (LeCun et al. 1998) with maxima of 2 x 2."""

    def loss(filters: Any) -> Any:
        x = images
        for f in filters[:2]:
            x = largest(RELU(lax.conv_general_dilated(x, 0.1 * f, (1, 1), "SAME")), 2, 2)
        scores = x.reshape(16, -1) @ (0.02 * filters[2])
        return -(labels * jax.nn.log_softmax(scores)).sum(-1).mean()

    filters = first, second, last
    value, slopes = jax.value_and_grad(loss)(filters)
    return value, *(f - 0.1 * g for f, g in zip(filters, slopes, strict=True))


def _to_the_largest(ops: Written, xs: Sequence[str], shapes: Sequence[Sequence[int]]) -> list[str]:
    """What comes back through maxima of 2 x 2 goes to where they were, as `MaxPool` tells."""
    slopes, image = xs
    _, places = ops.several("MaxPool", 2, image, kernel_shape=[2, 2], strides=[2, 2])
    line, shape = np.array([-1]), np.array(shapes[1])
    zeros = ops("ConstantOfShape", np.array([shape.prod()]))
    given = (ops("Reshape", x, line) for x in (places, slopes))
    return [ops("Reshape", ops("ScatterElements", zeros, *given), shape)]


traincnn_ops = {"select_and_scatter_add": _to_the_largest}


# ---- quantised, as `quantize_static` of onnxruntime writes it: u8 activations, i8 weights, all QDQ
SIGNED, POSITIVE = (0.04, 128), (0.03, 0)  # scale and zero point, of any values and behind a ReLU
Layers = Callable[..., tuple[Any, Any, Any]]


def drawn() -> Layers:
    """The next layer of a net: i8 filters of a shape, [out, ...], with a scale and bias each."""
    rng = np.random.default_rng(0)

    def layer(*shape: int) -> tuple[Any, Any, Any]:
        values = rng.standard_normal(shape, "f4") * (2 / np.prod(shape[1:])) ** 0.5
        scale = np.abs(values).reshape(shape[0], -1).max(1) / 127
        each = scale.reshape(-1, *(1,) * (len(shape) - 1))
        bias = 0.1 * rng.standard_normal(shape[0], "f4")
        return np.round(values / each).astype("i1"), scale.astype("f4"), bias

    return layer


def rounded(x: Any, kind: tuple[float, int]) -> Any:
    """To u8 and back."""
    scale, zero = kind
    whole = jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(jnp.uint8)
    return (whole.astype(jnp.int32) - zero).astype(jnp.float32) * scale


def dequantised(whole: Any, scale: Any) -> Any:
    return jnp.asarray(whole).astype(jnp.float32) * scale


def byte_conv(x: Any, layer: Layers, out: int, size: int, stride: int = 1, groups: int = 1) -> Any:
    """A convolution of an image with a bias, padded alike on both sides."""
    filters, scale, bias = layer(out, x.shape[1] // groups, size, size)
    pad = size // 2
    y = lax.conv_general_dilated(
        x, dequantised(filters, scale[:, None, None, None]), (stride,) * 2, [(pad, pad)] * 2,
        feature_group_count=groups,
    )  # fmt: skip
    return y + bias[:, None, None]


def byte_dense(x: Any, layer: Layers, out: int) -> Any:
    matrix, scale, bias = layer(out, x.shape[-1])
    return x @ dequantised(matrix, scale[:, None]).T + bias


@model((1, 3, 224, 224))
def q18(x: Any) -> Any:
    """Logits of a quantised ResNet-18 (He et al. 2016)."""
    relu, layer = jax.nn.relu, drawn()
    x = rounded(relu(byte_conv(rounded(x, SIGNED), layer, 64, 7, 2)), POSITIVE)
    x = rounded(largest(x, 3, 2, 1), POSITIVE)
    for out in (64, 128, 256, 512):
        for stride in (1 if out == 64 else 2, 1):
            y = rounded(relu(byte_conv(x, layer, out, 3, stride)), POSITIVE)
            y = rounded(byte_conv(y, layer, out, 3), SIGNED)
            x = rounded(byte_conv(x, layer, out, 1, stride), SIGNED) if stride == 2 else x
            x = rounded(relu(x + y), POSITIVE)
    return rounded(byte_dense(rounded(x.mean((2, 3)), POSITIVE), layer, 1000), SIGNED)


# ---- by hand -------------------------------------------------------------------------------------
def by_hand(program: Any) -> Callable[..., Any]:
    """ResNet-50 (the module of the program) over NHWC images and HWIO filters, written by hand."""

    def convolve(x: Any, weights: Any, stride: int = 1) -> Any:
        filters, scale, shift = weights
        pad = ((filters.shape[0] // 2,) * 2,) * 2
        y = jax.lax.conv_general_dilated(x, filters, (stride,) * 2, pad, dimension_numbers=NHWC)
        return y * scale + shift

    def bottleneck(x: Any, p: Any, stride: int) -> Any:
        y = jax.nn.relu(convolve(x, p["reduce"]))
        y = convolve(jax.nn.relu(convolve(y, p["spatial"], stride)), p["expand"])
        return jax.nn.relu(y + (convolve(x, p["project"], stride) if "project" in p else x))

    def network(x: Any, params: Any) -> Any:
        _, strides = program.parameters()
        x = jax.nn.relu(convolve(x, params["stem"], 2))
        pad = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pad)
        for p, stride in zip(params["blocks"], strides, strict=True):
            x = bottleneck(x, p, stride)
        weights, bias = params["head"]
        return x.mean((1, 2)) @ weights + bias

    return network


def channels_last(params: Any) -> Any:
    """Filters as HWIO, everything else as it is."""
    return jax.tree.map(
        lambda w: np.ascontiguousarray(w.transpose(2, 3, 1, 0)) if w.ndim == 4 else w, params
    )
