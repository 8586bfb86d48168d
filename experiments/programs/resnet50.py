"""ResNet-50 for one image, NCHW, with the shapes of the paper (He et al. 2015, table 1).

Batch norms are a scale and a shift per channel, as inference folds them. The weights are arguments
that are known by their shapes, so there is nothing to download or to make up.
"""

import jax
import jax.numpy as jnp

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks and inner channels
EXPANSION, STEM, CLASSES, SIZE = 4, 64, 1000, 224
resnet50_weights = ("params",)


def parameters():
    """Shapes of all weights: stem, blocks in order, classifier."""
    blocks, channels = [], STEM
    for stage, (count, middle) in enumerate(STAGES):
        for i in range(count):
            stride = 2 if stage and not i else 1
            blocks.append(_block(channels, middle, has_project=i == 0) | {"stride": stride})
            channels = EXPANSION * middle
    strides = tuple(b.pop("stride") for b in blocks)
    head = (_shape(channels, CLASSES), _shape(CLASSES))
    return {"stem": _filters(STEM, 3, 7), "blocks": blocks, "head": head}, strides


def _shape(*dims):
    return jax.ShapeDtypeStruct(dims, "float32")


def _filters(out, channels, size):
    """Filters as OIHW, and a scale and a shift per channel."""
    return _shape(out, channels, size, size), _shape(out), _shape(out)


def _block(channels, middle, has_project):
    out = EXPANSION * middle
    found = {"reduce": _filters(middle, channels, 1), "spatial": _filters(middle, middle, 3)}
    found |= {"expand": _filters(out, middle, 1)}
    return found | ({"project": _filters(out, channels, 1)} if has_project else {})


def convolve(x, weights, stride=1):
    filters, scale, shift = weights
    pad = filters.shape[-1] // 2
    y = jax.lax.conv_general_dilated(
        x, filters, (stride, stride), ((pad, pad), (pad, pad)),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )  # fmt: skip
    return y * scale[:, None, None] + shift[:, None, None]


def bottleneck(x, p, stride):
    y = jax.nn.relu(convolve(x, p["reduce"]))
    y = jax.nn.relu(convolve(y, p["spatial"], stride))
    y = convolve(y, p["expand"])
    return jax.nn.relu(y + (convolve(x, p["project"], stride) if "project" in p else x))


def max_pool(x):
    window, strides, pad = (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, pad)


def resnet50(x, params):
    """f32[1, 3, 224, 224] to f32[1, 1000]."""
    _, strides = parameters()
    x = max_pool(jax.nn.relu(convolve(x, params["stem"], 2)))
    for p, stride in zip(params["blocks"], strides, strict=True):
        x = bottleneck(x, p, stride)
    weights, bias = params["head"]
    return x.mean((2, 3)) @ weights + bias


def resnet50_example():
    return _shape(1, 3, SIZE, SIZE), parameters()[0]
