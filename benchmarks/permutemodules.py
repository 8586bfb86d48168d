"""The 49 modules of ExecuTorch's permute matrix as JAX functions, with the permutes they export.

RFC 19299 and pull requests 21963, 22024 and 22130 of pytorch/executorch count the permutes of 36
modules: 138 as exported, 156 behind their own passes, 137 with those at the borders left to the
caller, 82 behind Arm's. 13 more take arguments that lie channels last. Each function here computes
what the module does with the ops of its exported graph and the published shapes: a linear layer
holds its weight as `[out, in]` and transposes it where it is used, a recurrent net is unrolled.
Tests hold that every function has as many transposes as were published for its module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = Any


@dataclass(frozen=True)
class Case:
    """A module: what it computes, the shapes of its arguments and weights, what was published.

    permutes: in the exported graph; None where its test says that the export fails. orders: how
    arguments and results lie, outermost dim first, where that is not plain.
    """

    compute: Callable[..., Array]
    arguments: tuple[tuple[int, ...], ...]
    weights: dict[str, tuple[int, ...]]
    permutes: int | None
    orders: dict[str, tuple[int, ...]]

    @property
    def function(self) -> Callable[..., Array]:
        """Of the arguments `x0`, `x1` … and `weights`."""
        names = ", ".join(f"x{i}" for i in range(len(self.arguments)))
        compute = self.compute
        takes: dict[str, Any] = {"compute": compute}
        exec(f"def module({names}, weights):\n    return compute(weights, {names})\n", takes)
        return takes["module"]

    @property
    def example(self) -> tuple[Any, ...]:
        """Arguments and weights as shapes."""
        of = lambda s: jax.ShapeDtypeStruct(s, jnp.float32)  # noqa: E731
        return (*map(of, self.arguments), {k: of(s) for k, s in self.weights.items()})


# ---- layers --------------------------------------------------------------------------------------
def linear(x: Array, w: Array, b: Array) -> Array:
    """x @ w.T + b over the last dim, the others as one."""
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ w.T + b).reshape(*x.shape[:-1], w.shape[0])


def conv(x: Array, w: Array, b: Array | None = None, **how: Any) -> Array:
    """A convolution, channels first, over one to three places."""
    places = "DHW"[3 - (x.ndim - 2) :]
    names = (f"NC{places}", f"OI{places}", f"NC{places}")
    padding, dilation = how.get("padding", 0), how.get("dilation", 1)
    y = lax.conv_general_dilated(
        x, w, (1,) * len(places), [(padding, padding)] * len(places),
        rhs_dilation=(dilation,) * len(places), dimension_numbers=names,
        feature_group_count=how.get("groups", 1),
    )  # fmt: skip
    return y if b is None else y + b.reshape(1, -1, *(1,) * len(places))


def unbatched(layer: Callable[..., Array]) -> Callable[..., Array]:
    """A layer on one image without a dim for images."""
    return lambda x, *rest, **how: layer(x[None], *rest, **how)[0]


def pool(x: Array, size: int, stride: int, *, mean: bool = False, **how: Any) -> Array:
    """The maximum or mean of windows over all but the first two dims."""
    places = x.ndim - 2
    window, strides = (1, 1, *(size,) * places), (1, 1, *(stride,) * places)
    edge, dilation = how.get("padding", 0), (1, 1, *(how.get("dilation", 1),) * places)
    edges = ((0, 0), (0, 0), *((edge, edge),) * places)
    if mean:
        total = lax.reduce_window(x, 0.0, lax.add, window, strides, edges)
        return total / size**places
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, edges, None, dilation)


def batch_norm(x: Array, w: dict[str, Array]) -> Array:
    """Of inference, over dim 1."""
    over = [1, -1, *(1,) * (x.ndim - 2)]
    mean, var, scale, shift = (w[k].reshape(over) for k in ("mean", "var", "scale", "shift"))
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + shift


def normalised(x: Array, axes: tuple[int, ...]) -> Array:
    mean = x.mean(axes, keepdims=True)
    var = ((x - mean) ** 2).mean(axes, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5)


def layer_norm(x: Array, w: dict[str, Array]) -> Array:
    return normalised(x, (-1,)) * w["gain"] + w["gain_offset"]


def attended(q: Array, k: Array, v: Array) -> Array:
    """Of `[batch, heads, tokens, channels]`; the result is permuted there and back, as exported."""
    root = q.shape[-1] ** -0.25
    scores = (q * root) @ (k.transpose(0, 1, 3, 2) * root)
    out = jax.nn.softmax(scores, axis=-1) @ v
    return out.transpose(2, 0, 1, 3).transpose(1, 2, 0, 3)


def attention(x: Array, w: dict[str, Array], heads: int = 2) -> Array:
    """Self attention of `[batch, tokens, channels]`, q, k and v by one product; or of one batch."""
    channels = x.shape[-1]
    if x.ndim == 2:  # as exported, three products with a third of the weight each
        xs = x[:, None]
        thirds = [w["in_proj"][i * channels : (i + 1) * channels] for i in range(3)]
        offsets = [w["in_offset"][i * channels : (i + 1) * channels] for i in range(3)]
        q, k, v = (linear(xs, *pair) for pair in zip(thirds, offsets, strict=True))
    else:
        xs = x.transpose(1, 0, 2)
        qkv = linear(xs, w["in_proj"], w["in_offset"])
        apart = qkv.reshape(*xs.shape[:2], 3, channels)[None].transpose(3, 1, 2, 0, 4)[..., 0, :]
        q, k, v = apart
    tokens, batch = xs.shape[:2]
    by_head = [
        a.reshape(tokens, batch * heads, channels // heads)
        .transpose(1, 0, 2)
        .reshape(batch, heads, tokens, channels // heads)
        for a in (q, k, v)
    ]
    out = attended(*by_head).transpose(2, 0, 1, 3).reshape(tokens * batch, channels)
    out = linear(out, w["out_proj"], w["out_offset"]).reshape(tokens, batch, channels)
    return out[:, 0] if x.ndim == 2 else out.transpose(1, 0, 2)


def lstm(x: Array, w: dict[str, Array]) -> Array:
    """Of `[batch, steps, channels]`, unrolled."""
    size = w["hidden"].shape[1]
    steps = linear(x.transpose(1, 0, 2), w["input"], w["input_offset"])
    h = c = jnp.zeros((x.shape[0], size), x.dtype)
    out = []
    for t in range(x.shape[1]):
        gates = steps[t] + linear(h, w["hidden"], w["hidden_offset"])
        i, f, g, o = (gates[:, n * size : (n + 1) * size] for n in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        out.append(h)
    return jnp.stack(out).transpose(1, 0, 2)


def gru(x: Array, w: dict[str, Array]) -> Array:
    """Of `[batch, steps, channels]`, unrolled."""
    size = w["hidden"].shape[1]
    steps = linear(x.transpose(1, 0, 2), w["input"], w["input_offset"])
    h = jnp.zeros((x.shape[0], size), x.dtype)
    out = []
    for t in range(x.shape[1]):
        inner = linear(h, w["hidden"], w["hidden_offset"])
        (ri, zi, ni), (rh, zh, nh) = (
            [a[:, n * size : (n + 1) * size] for n in range(3)] for a in (steps[t], inner)
        )
        r, z = jax.nn.sigmoid(ri + rh), jax.nn.sigmoid(zi + zh)
        new = jnp.tanh(ni + r * nh)
        h = (h - new) * z + new
        out.append(h)
    return jnp.stack(out).transpose(1, 0, 2)


# ---- modules -------------------------------------------------------------------------------------
def transposed_conv(w: dict[str, Array], x: Array) -> Array:
    """A convolution by the flipped filters over the padded image; the flip is done ahead."""
    size = w["conv"].shape[-1]
    return conv(x, w["conv"], w["offset"], padding=size - 1)


def pixel_shuffle(w: dict[str, Array], x: Array) -> Array:
    n, c, h, wide = x.shape
    apart = x.reshape(n, c // 4, 2, 2, h, wide).transpose(0, 1, 4, 2, 5, 3)
    return apart.reshape(n, c // 4, 2 * h, 2 * wide)


def views(w: dict[str, Array], x: Array) -> Array:
    x = pool(x, 1, 1).reshape(1, 4, 2, 2) * 2.0
    return pool(x.reshape(1, 2, 4, 2) * 2.0, 1, 1)


def group_norm(w: dict[str, Array], x: Array) -> Array:
    n, c = x.shape[:2]
    y = normalised(x.reshape(n, 2, -1), (2,)).reshape(x.shape)
    return y * w["gain"].reshape(1, c, 1, 1) + w["gain_offset"].reshape(1, c, 1, 1)


def model_1(w: dict[str, Array], x: Array) -> Array:
    y = pool(conv(x, w["conv"], w["offset"], padding=1), 2, 2) + pool(x, 2, 2)
    return linear(y.transpose(0, 2, 1), w["linear"], w["linear_offset"])


def model_2(w: dict[str, Array], x: Array) -> Array:
    y = conv(x, w["conv"], w["offset"], padding=1).transpose(0, 2, 1)
    return layer_norm(linear(attention(y, w), w["linear"], w["linear_offset"]), w)


def model_4(w: dict[str, Array], x: Array) -> Array:
    y = lstm(conv(x, w["conv"], w["offset"], padding=1).transpose(0, 2, 1), w)
    return layer_norm(linear(y, w["linear"], w["linear_offset"]), w)


def model_5(w: dict[str, Array], x: Array) -> Array:
    y = jax.nn.gelu(conv(x, w["conv"], padding=1, groups=8), approximate=False)
    y = layer_norm(y.transpose(0, 2, 3, 1), w).transpose(0, 3, 1, 2)
    return pool(y, 2, 2, mean=True)


def by_channel(w: dict[str, Array], x: Array) -> Array:
    """A depthwise convolution, a batch norm, and the channels made the last dim."""
    return batch_norm(conv(x, w["conv"], padding=1, groups=8), w).transpose(0, 2, 1)


def model_7(w: dict[str, Array], x: Array) -> Array:
    return linear(by_channel(w, x), w["linear"], w["linear_offset"])


def model_8(w: dict[str, Array], x: Array) -> Array:
    y = batch_norm(conv(x, w["conv"], w["offset"], padding=1), w)
    return pool(y, 2, 2) + pool(x, 2, 2)


def model_9(w: dict[str, Array], x: Array) -> Array:
    y = batch_norm(conv(x, w["conv"], w["offset"], padding=2, dilation=2), w)
    return pool(y, 2, 2, mean=True) + pool(x, 2, 2, mean=True)


def model_10(w: dict[str, Array], x: Array) -> Array:
    y = by_channel(w, x)
    sides = [linear(y, w[f"linear_{s}"], w[f"offset_{s}"]) for s in "ab"]
    return jnp.concatenate(sides, -1)


def recurrent(cell: Callable[..., Array]) -> Callable[..., Array]:
    return lambda w, x: linear(cell(x, w), w["linear"], w["linear_offset"])


# ---- weights -------------------------------------------------------------------------------------
Shapes = dict[str, tuple[int, ...]]


def dense(inputs: int, outputs: int) -> Shapes:
    return {"linear": (outputs, inputs), "linear_offset": (outputs,)}


def filters(*shape: int) -> Shapes:
    return {"conv": shape, "offset": shape[:1]}


def cell(gates: int, inputs: int, size: int) -> Shapes:
    rows = gates * size
    offsets: Shapes = {"input_offset": (rows,), "hidden_offset": (rows,)}
    return {**offsets, "input": (rows, inputs), "hidden": (rows, size)}


NORM: Shapes = dict.fromkeys(("mean", "var", "scale", "shift"), (8,))
HEADS: Shapes = {
    "in_proj": (24, 8), "in_offset": (24,), "out_proj": (8, 8), "out_offset": (8,),
}  # fmt: skip


def affine(size: int) -> Shapes:
    return dict.fromkeys(("gain", "gain_offset"), (size,))


def _layer(layer: Callable[..., Array], **how: Any) -> Callable[..., Array]:
    return lambda w, x: layer(x, w["conv"], w["offset"], **how)


def _linear(w: dict[str, Array], x: Array) -> Array:
    return linear(x, w["linear"], w["linear_offset"])


def case(
    compute: Callable[..., Array], *arguments: tuple[int, ...], permutes: int | None = 0,
    weights: Shapes | None = None, **orders: tuple[int, ...],
) -> Case:  # fmt: skip
    return Case(compute, arguments, weights or {}, permutes, orders)


def put(w: dict[str, Array], x: Array, values: Array) -> Array:
    return x.at[jnp.array([0, 1]), jnp.array([2, 3])].set(values)


_F2, _F3 = filters(4, 2, 3, 3), filters(4, 2, 3, 3, 3)
_DEPTHWISE: Shapes = {"conv": (8, 1, 3)} | NORM
_DILATED: dict[str, Any] = {"padding": 1, "dilation": 2}
CASES: dict[str, Case] = {
    "conv1d_rank2": case(_layer(unbatched(conv)), (2, 8), weights=filters(4, 2, 3)),
    "conv1d_rank3": case(_layer(conv), (1, 2, 8), weights=filters(4, 2, 3)),
    "conv2d_rank3": case(_layer(unbatched(conv)), (2, 8, 8), weights=_F2),
    "conv2d_rank4": case(_layer(conv), (1, 2, 8, 8), weights=_F2),
    "conv3d_rank4": case(_layer(unbatched(conv)), (2, 6, 6, 6), weights=_F3),
    "conv3d_rank5": case(_layer(conv), (1, 2, 6, 6, 6), weights=_F3),
    "linear_rank2": case(_linear, (2, 8), permutes=1, weights=dense(8, 4)),
    "linear_rank3": case(_linear, (2, 2, 8), permutes=1, weights=dense(8, 4)),
    "linear_rank4": case(_linear, (1, 2, 2, 8), permutes=1, weights=dense(8, 4)),
    "matmul_rank2": case(lambda w, a, b: a @ b, (2, 3), (3, 4)),
    "matmul_rank4": case(lambda w, a, b: a @ b, (2, 2, 2, 3), (2, 2, 3, 4)),
    "index_put": case(put, (2, 4), (2,)),
    "pixel_shuffle": case(pixel_shuffle, (1, 8, 2, 2), permutes=1),
    "index_select": case(lambda w, x: x[:, jnp.array([0, 2])], (2, 4, 3)),
    "grouped_conv": case(_layer(conv, groups=2), (1, 4, 8, 8), weights=filters(4, 2, 3, 3)),
    "transpose_conv": case(transposed_conv, (1, 2, 8, 8), weights=_F2),
    "views": case(views, (1, 2, 2, 4)),
    "transposes": case(
        lambda w, x: x.transpose(0, 1, 3, 2).transpose(0, 3, 1, 2), (1, 2, 3, 4), permutes=2
    ),
    "maxpool2d_dilation": case(lambda w, x: pool(x, 3, 1, **_DILATED), (1, 2, 8, 8)),
    "lstm": case(lambda w, x: lstm(x, w), (2, 4, 8), permutes=7, weights=cell(4, 8, 4)),
    "groupnorm": case(group_norm, (1, 4, 4, 4), weights=affine(4)),
    "multihead_attention_rank2": case(
        lambda w, x: attention(x, w), (4, 8), permutes=11, weights=HEADS
    ),
    "multihead_attention_rank3": case(
        lambda w, x: attention(x, w), (2, 4, 8), permutes=12, weights=HEADS
    ),
    "cumsum_rank3_dim0": case(lambda w, x: jnp.cumsum(x, 1), (2, 3, 4)),
    "cumsum_rank4_dim3": case(lambda w, x: jnp.cumsum(x, 3), (1, 2, 3, 4)),
    "model_1_conv_maxpool_residual_linear": case(
        model_1, (2, 8, 64), permutes=2, weights=filters(8, 8, 3) | dense(8, 6)
    ),
    "model_2_conv_mha_linear_layernorm": case(
        model_2, (2, 8, 32), permutes=14,
        weights=HEADS | dense(8, 8) | affine(8) | filters(8, 8, 3),
    ),
    "model_3_lstm_linear": case(
        recurrent(lstm), (2, 16, 8), permutes=20, weights=cell(4, 8, 8) | dense(8, 6)
    ),
    "model_4_conv_lstm_linear_layernorm": case(
        model_4, (2, 8, 32), permutes=37,
        weights=filters(8, 8, 3) | cell(4, 8, 6) | dense(6, 4) | affine(4),
    ),
    "model_5_dwconv_gelu_layernorm_avgpool": case(
        model_5, (1, 8, 16, 16), permutes=2, weights={"conv": (8, 1, 3, 3)} | affine(8)
    ),
    "model_6_gru_linear": case(
        recurrent(gru), (2, 16, 8), permutes=20, weights=cell(3, 8, 6) | dense(6, 4)
    ),
    "model_7_dwconv_batchnorm_linear": case(
        model_7, (2, 8, 64), permutes=2, weights=_DEPTHWISE | dense(8, 4)
    ),
    "model_8_conv_batchnorm_maxpool_residual": case(
        model_8, (1, 8, 16, 16), weights=filters(8, 8, 3, 3) | NORM
    ),
    "model_9_dilated_conv_batchnorm_avgpool_residual": case(
        model_9, (1, 8, 16, 16), weights=filters(8, 8, 3, 3) | NORM
    ),
    "model_10_dwconv_batchnorm_linear_cat": case(
        model_10, (2, 8, 64), permutes=3,
        weights=_DEPTHWISE | {f"linear_{s}": (4, 8) for s in "ab"}
        | {f"offset_{s}": (4,) for s in "ab"},
    ),
    "permute_silu_permute": case(
        lambda w, x: jax.nn.silu(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), (1, 2, 3, 4),
        permutes=2,
    ),
}  # fmt: skip

# Arguments that lie channels last. The results of ops that keep the order of their argument lie so,
# too; those of products, views and permutes are plain.
NHWC, NDHWC = (0, 2, 3, 1), (0, 2, 3, 4, 1)
_KEPT: Shapes = {"x0": NHWC, "result0": NHWC}
_LIE: dict[str, Shapes] = {
    "conv2d_rank4": _KEPT,
    "conv3d_rank4": {"x0": NHWC},
    "conv3d_rank5": {"x0": NDHWC, "result0": NDHWC},
    "linear_rank4": {"x0": NHWC},
    "matmul_rank4": {"x0": NHWC, "x1": NHWC},
    "pixel_shuffle": {"x0": NHWC},
    "grouped_conv": _KEPT,
    "transpose_conv": _KEPT,
    "views": {"x0": NHWC},
    "transposes": {"x0": NHWC},
    "maxpool2d_dilation": _KEPT,
    "groupnorm": _KEPT,
    "cumsum_rank4_dim3": _KEPT,
}
LAST: dict[str, Case] = {
    f"{name}_channels_last": replace(
        CASES[name], orders=orders, permutes=None if name == "views" else CASES[name].permutes
    )
    for name, orders in _LIE.items()
}
